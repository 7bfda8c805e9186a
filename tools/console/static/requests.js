// How long requests take, by API, and the slowest single ones.

import { get, every } from "./api.js";
import { h, number, table, time } from "./dom.js";

// Kafka's LocalTimeMs, RemoteTimeMs and ResponseSendTimeMs.
const PHASES = [["local", "Local"], ["remote", "Remote"], ["send", "Response send"]];
const ms = (value) => (value === undefined ? "–" : value < 10 ? value.toFixed(2) : number(value));

export async function requests(view, signal) {
  const place = h("div", { class: "card" });
  const single = h("div");
  view.append(h("div", { class: "head" }, h("h1", {}, "Requests"), h("small", {}, "ms, of the last thousand timed requests of each API")), place,
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "The slowest requests"), h("small", {}, "ms, of the last five minutes, without the wait that clients requested")), single));
  async function look() {
    const { requests: found, slow: slowest } = await get("/requests", signal);
    const slow = (row) => row.total?.["0.99"] ?? -1;
    found.sort((a, b) => slow(b) - slow(a) || a.api.localeCompare(b.api));
    place.replaceChildren(table("Requests", [
      { name: "API", cell: (r) => r.api },
      { name: "Requests", number: true, cell: (r) => number(r.count) },
      { name: "Median", number: true, cell: (r) => ms(r.total?.["0.50"]) },
      { name: "99 %", number: true, cell: (r) => ms(r.total?.["0.99"]) },
      { name: "99.9 %", number: true, class: "optional", cell: (r) => ms(r.total?.["0.999"]) },
      ...PHASES.map(([phase, name]) => ({ name: `${name}, 99 %`, number: true, class: "optional", cell: (r) => ms(r[phase]?.["0.99"]) })),
    ], found, { empty: "no requests yet, or the broker does not measure requests" }));
    single.replaceChildren(table("The slowest requests", [
      { name: "API", cell: (r) => [r.api, " ", h("small", {}, `v${r.version}`)] },
      { name: "Duration", number: true, cell: (r) => ms(r.slowness) },
      { name: "Time", class: "mono", cell: (r) => time(r.time) },
      { name: "Client", class: "cut", cell: (r) => [h("bdi", {}, r.client_id || "–"), h("div", {}, h("small", {}, h("bdi", {}, r.principal)))] },
      { name: "Host", class: "mono", cell: (r) => r.host },
      ...PHASES.map(([phase, name]) => ({ name, number: true, class: "optional", cell: (r) => ms(r[phase]) })),
    ], slowest, { empty: "no request was slow" }));
  }
  await look();
  every(2, signal, look);
}
