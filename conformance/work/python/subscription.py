"""The scenario that the product exists for: a simulation, a table, a chart, a summary."""
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(2024)
customers, months = 1000.0, []
for month in pd.date_range("2024-01-01", periods=12, freq="MS"):
    joined, left = customers * 0.06, customers * 0.02
    customers += joined - left
    months.append({"month": month, "joined": joined, "left": left, "customers": customers})
table = pd.DataFrame(months)
assert abs(table["customers"].iloc[-1] - 1000 * 1.04**12) < 1e-6
table.to_csv("/out/customers.csv", index=False)
figure, axes = plt.subplots(figsize=(8, 4))
axes.plot(table["month"], table["customers"])
axes.set_title("Customers")
figure.autofmt_xdate()
figure.savefig("/out/customers.png", dpi=120)
back = pd.read_csv("/out/customers.csv", parse_dates=["month"])
assert len(back) == 12 and back["month"].dt.month.tolist() == list(range(1, 13))
print(table.tail(1).to_string(index=False))
print("work ok: 3 checks")
