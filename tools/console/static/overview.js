// The cluster and its activity.

import { get, every, part } from "./api.js";
import { h, bar, bytes, card, compact, number, table } from "./dom.js";
import { brokersTable, disksTable } from "./brokers.js";
import { Plot } from "./plot.js";

export async function overview(view, signal) {
  const rate = (format) => (value) => `${format(value)}/s`;
  const messages = new Plot("Messages in", [{ name: "in", class: "a" }], rate(compact));
  const traffic = new Plot("Bytes", [{ name: "in", class: "a" }, { name: "out", class: "b" }], rate(bytes));
  const stats = h("div", { class: "stats" });
  const id = h("small", { class: "mono" });
  const brokers = h("div");
  const busiest = h("div");
  const disks = h("div");
  view.append(
    h("div", { class: "head" }, h("h1", {}, "Overview"), id),
    stats,
    h("div", { class: "grid" }, messages.element, traffic.element),
    card("Brokers", brokers),
    h("div", { class: "grid" }, card("Busiest topics", busiest), card("Log directories", disks)));

  async function facts() {
    const now = await get("/overview", signal);
    id.textContent = `cluster ${now.cluster_id}`;
    const down = now.brokers.filter((one) => !one.is_live).length;
    stats.replaceChildren(
      stat("Brokers", down ? `${now.brokers.length - down} of ${now.brokers.length}` : now.brokers.length, "#/brokers", down > 0),
      stat("Controller", now.controller < 0 ? "none" : now.controller, now.controller < 0 ? null : `#/brokers/${now.controller}`, now.controller < 0),
      stat("Topics", number(now.topics), "#/topics"),
      stat("Partitions", number(now.partitions)),
      stat("Under-replicated", number(now.under_replicated), "#/partitions/under-replicated", now.under_replicated > 0),
      stat("Without a leader", number(now.offline), "#/partitions/offline", now.offline > 0));
    brokers.replaceChildren(brokersTable(now));
  }

  async function rates() {
    const now = await get("/rates", signal);
    messages.set(now.points.map(([at, in_]) => [at, in_]));
    traffic.set(now.points.map(([at, , in_, out]) => [at, in_, out]));
    const most = Math.max(1e-9, ...now.busiest.map((one) => one.messages));
    busiest.replaceChildren(table("Busiest topics", [
      { name: "Topic", cell: (t) => h("a", { href: `#/topics/${part(t.topic)}` }, t.topic) },
      { name: "", class: "optional", cell: (t) => bar(t.messages / most) },
      { name: "Messages/s", number: true, cell: (t) => compact(t.messages) },
    ], now.busiest, { empty: now.points.length ? "no topics" : "measuring…" }));
  }

  async function space() {
    const { dirs } = await get("/disks", signal);
    disks.replaceChildren(disksTable(dirs));
  }

  await facts();
  every(2, signal, rates);
  every(2, signal, facts);
  every(15, signal, space);
}

// A tile with a problem is red and links to it.
const stat = (name, value, link, bad) => h(link ? "a" : "div", { class: bad ? "stat bad" : "stat", href: link }, h("b", {}, String(value)), h("span", {}, name));
