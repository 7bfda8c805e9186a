// One topic: its partitions, its settings, its records.

import { get, post, every, part } from "./api.js";
import { h, ask, bytes, field, number, ownBroker, sentence, span, tag, title, toast } from "./dom.js";
import { List } from "./list.js";
import { disk } from "./disk.js";
import { records } from "./records.js";

const TABS = [["", "Partitions", partitions], ["records", "Records", records], ["settings", "Settings", settings]];
if (ownBroker) TABS.push(["disk", "On disk", disk]);

export async function topic(view, signal, name, tab = "") {
  const here = `#/topics/${part(name)}`;
  const [path, , show] = TABS.find(([path]) => path === tab) ?? TABS[0];
  const place = h("div");
  place.style.display = "contents";
  const facts = await get(`/topics/${part(name)}`, signal);
  view.append(
    h("div", { class: "head" },
      h("div", { class: "crumb" }, h("a", { href: "#/topics" }, "Topics"), " /"),
      h("h1", {}, name), facts.internal && tag("internal"), tag(`${number(facts.rows.length)} partition${facts.rows.length === 1 ? "" : "s"}`),
      h("span", { class: "grow" }),
      h("button", { onclick: () => grow(name, facts.rows.length) }, "Grow"),
      h("button", { onclick: () => remove(name) }, "Delete")),
    h("nav", { class: "tabs", "aria-label": `Parts of ${name}` }, TABS.map(([to, label]) =>
      h("a", { href: to ? `${here}/${to}` : here, "aria-current": to === path ? "page" : null }, label))),
    place);
  await show(place, signal, name, facts);
}

async function partitions(view, signal, name, facts) {
  let extents = {};
  const of = (p) => extents[p[0]] ?? [null, null, null];
  const total = h("small", { role: "status" });
  const list = new List(`Partitions of ${name}`, [
    { name: "Partition", cell: (p) => h("a", { href: `#/topics/${part(name)}/records?${p[0]}`, onclick: (e) => { e.preventDefault(); sessionStorage.setItem("partition", p[0]); location.hash = `#/topics/${part(name)}/records`; } }, String(p[0])) },
    { name: "Leader", number: true, cell: (p) => (p[1] < 0 ? tag("none", "bad") : p[1]) },
    { name: "In sync", class: "mono", cell: (p) => [p[4].join(" "), p[4].length < p[3].length && [" ", tag(`${p[3].length - p[4].length} behind`, "bad")]] },
    { name: "Replicas", class: "mono optional", cell: (p) => p[3].join(" ") },
    { name: "First offset", number: true, class: "optional", cell: (p) => number(of(p)[0]) },
    { name: "Next offset", number: true, cell: (p) => number(of(p)[1]) },
    { name: "Records", number: true, class: "optional", cell: (p) => (of(p)[1] === null ? "–" : number(of(p)[1] - of(p)[0])) },
    { name: "Size", number: true, cell: (p) => bytes(of(p)[2]) },
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

async function settings(view, signal, name) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search settings  ( / )", "aria-label": "Search settings", autocomplete: "off" });
  const place = h("div", { class: "card scroll tall", tabindex: 0, role: "region", "aria-label": `Settings of ${name}` });
  let configs = [];
  view.append(h("div", { class: "head" }, search, h("small", {}, "Settings of this topic are first.")), place);

  function show() {
    const wanted = search.value.trim().toLowerCase();
    const shown = configs.filter((c) => c.name.includes(wanted) || (c.doc ?? "").toLowerCase().includes(wanted));
    place.replaceChildren(h("table", { class: "settings", "aria-label": `Settings of ${name}` },
      h("thead", {}, h("tr", {}, [{ name: "Setting" }, { name: "Value" }, { name: "Origin", class: "optional" }, {}].map(title))),
      h("tbody", {}, shown.map((c) => h("tr", {},
        h("td", {}, h("code", {}, c.name), c.doc && h("div", {}, h("small", {}, sentence(c.doc)))),
        h("td", { class: "mono" }, c.sensitive ? h("span", { class: "none" }, "hidden") : c.value === "" ? h("span", { class: "none" }, "empty") : [c.value ?? "–", readable(c.name, c.value)]),
        h("td", { class: "optional" }, tag(c.source, c.source === "topic" ? "good" : null)),
        h("td", { class: "does" }, !c.read_only && h("button", { class: "quiet", "aria-label": `Change ${c.name}`, onclick: () => change(c) }, "Change")))))));
  }

  function change(config) {
    const own = config.source === "topic";
    const reset = h("input", { type: "checkbox", name: "reset" });
    ask(config.name, [
      field("Value", "value", { value: config.value ?? "", autofocus: true, spellcheck: "false" }),
      own && h("label", { class: "line" }, reset, h("span", {}, "reset to the default")),
    ], {
      note: config.doc && h("small", {}, sentence(config.doc)),
      act: async (data) => {
        await post(`/topics/${part(name)}/configs`, { key: config.name, value: data.reset ? null : data.value });
        toast(`changed ${config.name}`);
        await look();
      },
    });
  }

  async function look() {
    ({ configs } = await get(`/topics/${part(name)}/configs`, signal));
    configs.sort((a, b) => (b.source === "topic") - (a.source === "topic") || a.name.localeCompare(b.name));
    show();
  }

  search.addEventListener("input", show);
  await look();
}

// Readable forms of large numbers of milliseconds and bytes.
function readable(name, value) {
  const amount = Number(value);
  if (!Number.isSafeInteger(amount) || amount < 1000) return null;
  const said = name.endsWith(".ms") ? span(amount) : name.endsWith(".bytes") ? bytes(amount) : null;
  return said && h("div", {}, h("small", {}, said));
}

function grow(name, now) {
  ask(`Grow ${name}`, field("Partitions in all", "partitions", { type: "number", min: now + 1, value: now + 1, required: true, autofocus: true }), {
    verb: "Grow",
    note: h("small", {}, "Partitions cannot be taken away again, and keys will go to other partitions than before."),
    act: async (data) => {
      await post(`/topics/${part(name)}/partitions`, data);
      toast(`${name} has ${data.partitions} partitions`);
      dispatchEvent(new Event("hashchange"));
    },
  });
}

function remove(name) {
  ask(`Delete ${name}?`, field(`Write its name to delete it with all its records`, "confirm", { required: true, autofocus: true, spellcheck: "false" }), {
    verb: "Delete",
    bad: true,
    act: async (data) => {
      await post(`/topics/${part(name)}/delete`, data);
      toast(`deleted ${name}`);
      location.hash = "#/topics";
    },
  });
}
