// The cluster and its activity.

import { get, every, part } from "./api.js";
import { h, bytes, compact, number, table, tag } from "./dom.js";
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
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Brokers")), brokers),
    h("div", { class: "grid" },
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Busiest topics")), busiest),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Log directories")), disks)));

  async function facts() {
    const now = await get("/overview", signal);
    id.textContent = `cluster ${now.cluster_id}`;
    stats.replaceChildren(
      stat("Brokers", now.brokers.length),
      stat("Controller", now.controller < 0 ? "none" : now.controller, now.controller < 0),
      stat("Topics", number(now.topics)),
      stat("Partitions", number(now.partitions)),
      stat("Under-replicated", number(now.under_replicated), now.under_replicated > 0),
      stat("Without a leader", number(now.offline), now.offline > 0));
    brokers.replaceChildren(table("Brokers", [
      { name: "Id", cell: (b) => h("b", {}, b.id) },
      { name: "Address", class: "mono", cell: (b) => b.address },
      { name: "Rack", class: "optional", cell: (b) => b.rack ?? "–" },
      { name: "Leads", number: true, cell: (b) => number(b.leads) },
      { name: "Holds", number: true, cell: (b) => number(b.holds) },
      { name: "", cell: (b) => [b.id === now.controller && tag("controller", "good"), b.behind > 0 && tag(`${b.behind} not in sync`, "bad")] },
    ], now.brokers));
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
    disks.replaceChildren(table("Log directories", [
      { name: "Broker", cell: (d) => d.broker },
      { name: "Path", class: "mono cut", cell: (d) => h("span", { title: d.path }, d.path) },
      { name: "Logs", number: true, cell: (d) => bytes(d.bytes) },
      { name: "Free", number: true, cell: (d) => (d.error ? tag(d.error, "bad") : bytes(d.free)) },
    ], dirs, { empty: "not reported by the brokers" }));
  }

  await facts();
  every(2, signal, rates);
  every(2, signal, facts);
  every(15, signal, space);
}

const stat = (name, value, bad) => h("div", { class: bad ? "stat bad" : "stat" }, h("b", {}, String(value)), h("span", {}, name));

export function bar(share) {
  const fill = h("i");
  fill.style.width = `${Math.round(100 * Math.min(1, share))}%`;
  return h("div", { class: "bar" }, fill);
}
