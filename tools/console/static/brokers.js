// Brokers, one broker with its log directories and settings, and the partitions with a problem.

import { get, every, part } from "./api.js";
import { h, bar, bytes, card, number, table, tag } from "./dom.js";
import { List } from "./list.js";
import { settings } from "./settings.js";

const LOW = 0.1;  // share of free space below which a log directory has a warning

export const brokersTable = (now) => table("Brokers", [
  { name: "Broker", class: "id", cell: (b) => h("a", { href: `#/brokers/${b.id}` }, String(b.id)) },
  { name: "State", cell: (b) => [b.is_live ? tag("up", "good") : tag("down", "bad"), b.id === now.controller && [" ", tag("controller")]] },
  { name: "Address", class: "mono", cell: (b) => b.address ?? "unknown" },
  { name: "Rack", cell: (b) => b.rack ?? "–" },
  { name: "Leaders", number: true, cell: (b) => number(b.leaders) },
  { name: "Replicas", number: true, cell: (b) => number(b.replicas) },
  { name: "Out of sync", number: true, cell: (b) => (b.behind ? h("a", { class: "tag bad", href: `#/partitions/under-replicated/${b.id}` }, number(b.behind)) : "0") },
], now.brokers, { empty: "no brokers" });

export const disksTable = (dirs, isOfOne = false) => table("Log directories", [
  ...(isOfOne ? [] : [{ name: "Broker", class: "id", cell: (d) => h("a", { href: `#/brokers/${d.broker}` }, String(d.broker)) }]),
  { name: "Path", class: "mono path", cell: (d) => d.path },
  { name: "Logs", number: true, cell: (d) => bytes(d.bytes) },
  { name: "Free space", class: "room", cell: room },
], dirs, { empty: "not reported by the brokers" });

// The used share of the disk, and the free bytes.
function room(d) {
  if (d.error) return tag(d.error, "bad");
  if (d.total <= 0 || d.free < 0) return "not reported";
  const isLow = d.free < LOW * d.total;
  return [bar(1 - d.free / d.total, isLow ? "bad" : null),
    h("small", {}, `${bytes(d.free)} of ${bytes(d.total)} free`), isLow && [" ", tag("low", "bad")]];
}

export async function brokers(view, signal) {
  const [place, disks, features] = [h("div"), h("div"), h("small", { class: "mono" })];
  view.append(h("div", { class: "head" }, h("h1", {}, "Brokers"), features), card("Brokers", place), card("Log directories", disks));
  async function look() {
    const now = await get("/overview", signal);
    features.textContent = `cluster ${now.cluster_id}`;
    place.replaceChildren(brokersTable(now));
  }
  await look();
  every(2, signal, look);
  every(15, signal, async () => { disks.replaceChildren(disksTable((await get("/disks", signal)).dirs)); });
}

export async function broker(view, signal, id, tab = "") {
  const here = `#/brokers/${id}`;
  const now = await get(`/brokers/${id}`, signal);
  const place = h("div");
  place.style.display = "contents";
  view.append(
    h("div", { class: "head" }, h("div", { class: "crumb" }, h("a", { href: "#/brokers" }, "Brokers"), " /"),
      h("h1", {}, `Broker ${id}`), now.is_live ? tag("up", "good") : tag("down", "bad"), now.is_controller && tag("controller")),
    h("nav", { class: "tabs", "aria-label": `Parts of broker ${id}` }, [["", "Log directories"], ["settings", "Settings"]].map(([to, label]) =>
      h("a", { href: to ? `${here}/${to}` : here, "aria-current": to === tab ? "page" : null }, label))),
    place);
  if (!now.is_live) {
    place.append(h("div", { class: "error", role: "alert" }, `Broker ${id} is down: its settings and log directories are not available.`), facts(now));
  } else if (tab === "settings") {
    await settings(place, signal, { path: `/brokers/${id}/configs`, label: `Settings of broker ${id}`, own: ["dynamic broker", "static broker"] });
  } else {
    place.append(facts(now), card("Log directories", disksTable(now.dirs, true), now.dirs_missing && h("div", { class: "pad" }, now.dirs_missing)),
      ...now.dirs.map((d) => card(`Largest partitions in ${d.path}`, table(`Largest partitions in ${d.path}`, [
        { name: "Topic", class: "name", cell: ([, topic]) => h("a", { href: `#/topics/${part(topic)}` }, topic) },
        { name: "Partition", number: true, cell: ([, , partition]) => partition },
        { name: "Size", number: true, cell: ([size]) => bytes(size) },
      ], d.largest, { empty: "no partitions" }))),
      card("Features", table("Features", [
        { name: "Feature", class: "mono", cell: ([name]) => name },
        { name: "Finalized level", number: true, cell: ([, level]) => level },
        { name: "Supported levels", number: true, cell: ([, , min, max]) => `${min}–${max}` },
      ], now.features, { empty: "the broker reports no features" })));
  }
}

const facts = (now) => h("section", { class: "card pad" }, h("dl", { class: "facts" }, [
  ["Address", h("code", {}, now.address ?? "unknown")],
  ["Rack", now.rack ?? "–"],
  ["Version", now.version ? `APIs of Kafka ${now.version}, by its highest metadata.version` : "not reported: brokers report it with metadata.version"],
  ["Leaders", number(now.leaders)],
  ["Replicas", number(now.replicas)],
  ["Out of sync", now.behind ? h("a", { href: `#/partitions/under-replicated/${now.id}` }, number(now.behind)) : "0"],
].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));

const PROBLEMS = { "under-replicated": "Under-replicated partitions", offline: "Partitions without a leader" };

export async function partitions(view, signal, problem, id) {
  const count = h("small", { role: "status" });
  const list = new List(PROBLEMS[problem] ?? problem, [
    { name: "Topic", class: "name", sort: (p) => p[0], cell: (p) => h("a", { href: `#/topics/${part(p[0])}` }, p[0]) },
    { name: "Partition", number: true, sort: (p) => p[1], cell: (p) => p[1] },
    { name: "Leader", number: true, sort: (p) => p[2], cell: (p) => (p[2] < 0 ? tag("none", "bad") : h("a", { href: `#/brokers/${p[2]}` }, String(p[2]))) },
    { name: "Replicas", class: "mono", cell: (p) => p[3].join(" ") },
    { name: "In sync", class: "mono", cell: (p) => p[4].join(" ") || "none" },
    { name: "Out of sync", class: "mono", cell: (p) => p[3].filter((one) => !p[4].includes(one)).join(" ") || "none" },
  ], "no partition has this problem");
  view.append(h("div", { class: "head" }, h("div", { class: "crumb" }, h("a", { href: "#/" }, "Overview"), " /"),
    h("h1", {}, PROBLEMS[problem] ?? problem), id && tag(`broker ${id}`), count), list.element);
  async function look() {
    const now = await get(`/partitions?problem=${part(problem)}${id ? `&broker=${id}` : ""}`, signal);
    count.textContent = now.count > now.rows.length ? `${number(now.rows.length)} of ${number(now.count)} partitions` : `${number(now.count)} partitions`;
    list.set(now.rows);
  }
  await look();
  every(4, signal, look);
}
