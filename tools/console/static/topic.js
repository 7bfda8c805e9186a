// One topic: its partitions, its settings, its records, its consumers.

import { get, post, every, part } from "./api.js";
import { h, action, ask, bytes, field, number, ownBroker, tag, toast } from "./dom.js";
import { disk } from "./disk.js";
import { consumerColumns } from "./groups.js";
import { List } from "./list.js";
import { records } from "./records.js";
import { settings } from "./settings.js";
import { TOPIC_NAME } from "./topics.js";

const TABS = [["", "Partitions", partitions], ["records", "Records", records], ["consumers", "Consumers", consumers], ["settings", "Settings", topicSettings]];
if (ownBroker) TABS.push(["disk", "On disk", disk]);

export async function topic(view, signal, name, tab = "") {
  const here = `#/topics/${part(name)}`;
  const [path, , show] = TABS.find(([path]) => path === tab) ?? TABS[0];
  const place = h("div");
  place.style.display = "contents";
  const [facts, { configs }] = await Promise.all([
    get(`/topics/${part(name)}`, signal),
    get(`/topics/${part(name)}/configs`, signal).catch(() => ({ configs: [] })),  // the user may not describe settings
  ]);
  const policy = configs.find((one) => one.name === "cleanup.policy")?.value ?? "delete";
  const keeps = facts.internal ? "internal topic" : policy.includes("delete") ? null : `cleanup.policy=${policy}`;
  view.append(
    h("div", { class: "head" },
      h("div", { class: "crumb" }, h("a", { href: "#/topics" }, "Topics"), " /"),
      h("h1", {}, name), facts.internal && tag("internal"), tag(`${number(facts.rows.length)} partition${facts.rows.length === 1 ? "" : "s"}`),
      h("span", { class: "grow" }),
      action("Add partitions", () => grow(name, facts.rows.length)),
      action("Clone", () => clone(name)),
      action("Empty", () => empty(name), { why: keeps }),
      action("Delete", () => remove(name))),
    h("nav", { class: "tabs", "aria-label": `Parts of ${name}` }, TABS.map(([to, label]) =>
      h("a", { href: to ? `${here}/${to}` : here, "aria-current": to === path ? "page" : null }, label))),
    place);
  await show(place, signal, name, facts);
}

async function partitions(view, signal, name, facts) {
  let extents = {};
  const of = (p) => extents[p[0]] ?? [null, null, null];
  const total = h("small", { role: "status" });
  const count = (p) => (of(p)[1] === null ? null : of(p)[1] - of(p)[0]);
  const list = new List(`Partitions of ${name}`, [
    { name: "Partition", class: "id", sort: (p) => p[0], cell: (p) => h("a", { href: `#/topics/${part(name)}/records?${p[0]}`, onclick: (e) => { e.preventDefault(); sessionStorage.setItem("partition", p[0]); location.hash = `#/topics/${part(name)}/records`; } }, String(p[0])) },
    { name: "Leader", number: true, sort: (p) => p[1], cell: (p) => (p[1] < 0 ? tag("none", "bad") : p[1]) },
    { name: "Replicas", class: "mono", cell: (p) => p[3].join(" ") },
    { name: "In sync", class: "mono", sort: (p) => p[4].length - p[3].length, cell: (p) => [p[4].join(" "), p[4].length < p[3].length && [" ", tag(`${p[3].length - p[4].length} out of sync`, "bad")]] },
    { name: "Start offset", number: true, sort: (p) => of(p)[0], cell: (p) => number(of(p)[0]) },
    { name: "End offset", number: true, sort: (p) => of(p)[1], cell: (p) => number(of(p)[1]) },
    { name: "Offsets", number: true, sort: count, cell: (p) => number(count(p)) },
    { name: "Size", number: true, sort: (p) => of(p)[2], cell: (p) => bytes(of(p)[2]) },
  ]);
  view.append(total, list.element);
  list.set(facts.rows);
  every(facts.rows.length > 1000 ? 10 : 2, signal, async () => {
    const [now, found] = await Promise.all([get(`/topics/${part(name)}`, signal), get(`/topics/${part(name)}/extents`, signal)]);
    extents = found.extents;
    const all = Object.values(extents);
    const sum = (pick) => all.reduce((total, one) => total + (pick(one) ?? 0), 0);
    total.textContent = `${number(sum((e) => e[1] - e[0]))} offsets, ${bytes(sum((e) => e[2]))}, id ${facts.id}`;
    list.set(now.rows);
  });
}

async function consumers(view, signal, name) {
  const note = h("small", { role: "status" }, "reading the offsets of all groups…");
  const list = new List(`Consumers of ${name}`, consumerColumns, "no group has an offset or a member for this topic");
  list.none.hidden = true;
  list.table.hidden = true;
  view.append(note, list.element);
  async function look() {
    const now = await get(`/topics/${part(name)}/consumers`, signal);
    note.textContent = `${number(now.rows.length)} group${now.rows.length === 1 ? "" : "s"}${now.unknown ? `; the offsets of ${number(now.unknown)} groups are not available` : ""}`;
    list.set(now.rows);
  }
  every(4, signal, look);
}

function topicSettings(view, signal, name) {
  return settings(view, signal, { path: `/topics/${part(name)}/configs`, label: `Settings of ${name}`, own: ["topic"] });
}

function grow(name, now) {
  ask(`Add partitions to ${name}`, field("Number of partitions", "partitions", { type: "number", min: now + 1, value: now + 1, required: true, autofocus: true, title: `a number above ${now}, the present number of partitions` }), {
    verb: "Add partitions",
    note: h("small", {}, "The number of partitions cannot be decreased later, and records with a key are produced to other partitions than before."),
    act: async (data) => {
      await post(`/topics/${part(name)}/partitions`, data);
      toast(`${name} has ${data.partitions} partitions`);
      dispatchEvent(new Event("hashchange"));
    },
  });
}

function clone(name) {
  ask(`Clone ${name}`, field("Name of the new topic", "name", { ...TOPIC_NAME, value: `${name}-copy`, autofocus: true }), {
    verb: "Clone",
    note: h("small", {}, "The new topic has the same number of partitions, replication factor and settings. Records are not copied."),
    act: async (data) => {
      await post(`/topics/${part(name)}/clone`, data);
      toast(`created ${data.name}`);
      location.hash = `#/topics/${part(data.name)}`;
    },
  });
}

const typed = (name) => field(`Enter the name ${name}`, "confirm", { required: true, autofocus: true, spellcheck: "false" });

function empty(name) {
  ask(`Empty ${name}?`, typed(name), {
    verb: "Empty",
    bad: true,
    note: h("small", {}, "All records up to now are deleted. The topic, its settings and its offsets remain: new records continue after the deleted ones."),
    act: async (data) => {
      await post(`/topics/${part(name)}/empty`, data);
      toast(`deleted all records of ${name}`);
      dispatchEvent(new Event("hashchange"));
    },
  });
}

function remove(name) {
  ask(`Delete ${name}?`, typed(name), {
    verb: "Delete",
    bad: true,
    note: h("small", {}, "The topic is deleted with all its records and settings."),
    act: async (data) => {
      await post(`/topics/${part(name)}/delete`, data);
      toast(`deleted ${name}`);
      location.hash = "#/topics";
    },
  });
}
