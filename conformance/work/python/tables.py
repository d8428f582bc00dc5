"""pandas: reading, writing, grouping, dates and time zones."""
import io
import os

import pandas as pd

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


rows = 1000
frame = pd.DataFrame({
    "day": pd.date_range("2024-01-01", periods=rows, freq="h", tz="UTC"),
    "city": [("Praha", "東京", "São Paulo")[n % 3] for n in range(rows)],
    "amount": [n * 0.5 for n in range(rows)],
})
frame.to_csv("/work/table.csv", index=False)
back = pd.read_csv("/work/table.csv", parse_dates=["day"])
check(len(back) == rows, "every row comes back")
check(back["day"].iloc[24] == pd.Timestamp("2024-01-02", tz="UTC"), "dates come back as dates")
check(set(back["city"]) == {"Praha", "東京", "São Paulo"}, "text in every script comes back")
grouped = back.groupby("city")["amount"].agg(["sum", "count"])
check(abs(grouped["sum"].sum() - sum(n * 0.5 for n in range(rows))) < 1e-6, "groups add up")
check(grouped["count"].sum() == rows, "groups count up")
monthly = back.set_index("day").resample("D")["amount"].mean()
check(len(monthly) == 42, "resampling by day")
local = back["day"].dt.tz_convert("Asia/Tokyo")
check(local.iloc[0].hour == 9, "time zones are known")
check(pd.to_datetime("2024-03-31 01:30").tz_localize("Europe/Prague").utcoffset().seconds == 3600, "and their summer times")
joined = back.merge(pd.DataFrame({"city": ["Praha"], "country": ["CZ"]}), on="city", how="left")
check(joined["country"].notna().sum() == 334, "a join")
pivot = back.pivot_table(index="city", values="amount", aggfunc="max")
check(pivot.loc["Praha", "amount"] == 499.5, "a pivot")
text = io.StringIO()
back.to_json(text, orient="records", force_ascii=False, date_format="iso")
check("東京" in text.getvalue(), "JSON keeps text")
back.head(10).to_csv("/out/head.csv", index=False)
check(os.path.getsize("/out/head.csv") > 100, "an artifact is written")
check(back.describe().loc["mean", "amount"] == back["amount"].mean(), "a description")
print(f"work ok: {checks} checks")
