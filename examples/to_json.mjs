// Turns the input customers.csv into /out/customers.json.
import { readFile, writeFile } from "node:fs/promises";

const [header, ...lines] = (await readFile("customers.csv", "utf8")).trimEnd().split(/\r?\n/);
const names = header.split(",");
const value = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
const months = lines.map((line) =>
  Object.fromEntries(line.split(",").map((text, column) => [names[column], value(text)])),
);

await writeFile("/out/customers.json", JSON.stringify(months, null, 2) + "\n");

const last = months.at(-1);
console.log(`${months.length} months written to customers.json; ${last.month} ends with ${last.customers} customers.`);
