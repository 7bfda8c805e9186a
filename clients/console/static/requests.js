// How long requests take, by API: the slowest first.

import { get, every } from "./api.js";
import { h, number, table } from "./dom.js";

const PHASES = [["local", "In the handler"], ["remote", "Waiting"], ["send", "Sending"]];
const ms = (value) => (value === undefined ? "–" : value < 10 ? value.toFixed(2) : number(value));

export async function requests(view, signal) {
  const place = h("div", { class: "card" });
  view.append(h("div", { class: "head" }, h("h1", {}, "Requests"), h("small", {}, "ms, of the last thousand of each that were timed")), place);
  async function look() {
    const found = (await get("/requests", signal)).requests;
    const slow = (row) => row.total?.["0.99"] ?? -1;
    found.sort((a, b) => slow(b) - slow(a) || a.api.localeCompare(b.api));
    place.replaceChildren(table("Requests", [
      { name: "API", cell: (r) => r.api },
      { name: "Requests", number: true, cell: (r) => number(r.count) },
      { name: "Median", number: true, cell: (r) => ms(r.total?.["0.50"]) },
      { name: "99 %", number: true, cell: (r) => ms(r.total?.["0.99"]) },
      { name: "99.9 %", number: true, class: "optional", cell: (r) => ms(r.total?.["0.999"]) },
      ...PHASES.map(([phase, name]) => ({ name: `${name}, 99 %`, number: true, class: "optional", cell: (r) => ms(r[phase]?.["0.99"]) })),
    ], found, { empty: "nothing was asked for yet, or the broker does not measure" }));
  }
  await look();
  every(2, signal, look);
}
