"""Twelve months of a subscription business, simulated.

It starts with 1 000 customers. Every month new ones come, 6 % of those who were there, and 2 % leave; both
are drawn at random (with a fixed seed, so that two runs agree). /out gets the table as customers.csv and a
chart as customers.png.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import StrMethodFormatter

MONTHS = 12
START = 1_000
GROWTH = 0.06
CHURN = 0.02
PRICE = 29.0

rng = np.random.default_rng(seed=2024)


def simulate() -> pd.DataFrame:
    rows = []
    customers = START
    for month in pd.date_range("2024-01-01", periods=MONTHS, freq="MS"):
        joined = int(rng.poisson(customers * GROWTH))
        left = int(rng.binomial(customers, CHURN))
        begin, customers = customers, customers + joined - left
        rows.append(
            {
                "month": month.strftime("%Y-%m"),
                "begin": begin,
                "joined": joined,
                "left": left,
                "customers": customers,
                "revenue": round(customers * PRICE, 2),
            }
        )
    return pd.DataFrame(rows)


def chart(table: pd.DataFrame, path: str) -> None:
    ink, grey = "#1f2933", "#9aa5b1"
    plt.rcParams.update({"font.size": 10, "axes.edgecolor": grey, "text.color": ink, "axes.labelcolor": ink})
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 6), dpi=120, sharex=True, height_ratios=[3, 1.4], layout="constrained"
    )
    x = np.arange(len(table))
    top.plot(x, table["customers"], color="#2563eb", linewidth=2.5, marker="o", markersize=5)
    top.fill_between(x, table["customers"], table["begin"].iloc[0] * 0.95, color="#2563eb", alpha=0.10)
    top.annotate(
        f"{table['customers'].iloc[-1]:,}",
        (x[-1], table["customers"].iloc[-1]),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        fontweight="bold",
        color="#2563eb",
    )
    top.set_ylim(bottom=table["begin"].iloc[0] * 0.95, top=table["customers"].max() * 1.06)
    top.set_ylabel("customers")
    top.set_title(
        f"{MONTHS} months at {GROWTH:.0%} growth and {CHURN:.0%} churn", loc="left", fontsize=14, fontweight="bold"
    )
    bottom.bar(x, table["joined"], color="#10b981", width=0.6, label="joined")
    bottom.bar(x, -table["left"], color="#ef4444", width=0.6, label="left")
    bottom.axhline(0, color=grey, linewidth=0.8)
    bottom.legend(frameon=False, ncols=2, loc="upper left", fontsize=9)
    bottom.set_ylim(top=table["joined"].max() * 1.6)
    bottom.set_ylabel("change")
    bottom.set_xticks(x, table["month"], rotation=45, ha="right")
    top.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    table = simulate()
    table.to_csv("/out/customers.csv", index=False)
    chart(table, "/out/customers.png")

    print(f"{'month':<8}{'begin':>8}{'joined':>8}{'left':>8}{'customers':>11}{'revenue':>12}")
    for row in table.itertuples():
        print(f"{row.month:<8}{row.begin:>8,}{row.joined:>8,}{row.left:>8,}{row.customers:>11,}{row.revenue:>12,.0f}")
    grown = table["customers"].iloc[-1] / START - 1
    print(f"\n{START:,} customers became {table['customers'].iloc[-1]:,} ({grown:+.1%}); ", end="")
    print(f"{table['joined'].sum():,} joined, {table['left'].sum():,} left, revenue {table['revenue'].sum():,.0f}.")


if __name__ == "__main__":
    main()
