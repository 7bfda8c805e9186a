// Schemas of a registry: subjects, versions, compatibility levels, differences between versions.

import { get, post, part } from "./api.js";
import { h, action, ask, card, choice, number, table, tag, toast } from "./dom.js";
import { List } from "./list.js";

const LEVELS = ["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"];
const KINDS = [["AVRO", "Avro"], ["PROTOBUF", "Protobuf"], ["JSON", "JSON Schema"]];
let registry = 0;  // the registry of the list, where there are several

const query = (terms) => new URLSearchParams(terms).toString();

export async function schemas(view, signal) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search subjects  ( / )", "aria-label": "Search subjects", autocomplete: "off" });
  const count = h("small", { role: "status" });
  const now = await get(`/schemas?${query({ registry })}`, signal);
  const actions = [
    action("Compatibility", () => level(null, now.level), { why: now.missing && "no registry" }),
    action("Register schema", () => register("", "AVRO"), { why: now.missing && "no registry", style: "main" }),
  ];
  const list = new List("Subjects", [
    { name: "Subject", class: "name", sort: (name) => name, cell: (name) => h("a", { href: `#/schemas/${registry}/${part(name)}` }, h("bdi", {}, name)) },
  ], now.missing ?? "the registry has no subjects");
  const which = choice("Registry", "registry", now.registries.map((url, at) => [String(at), url]), String(registry));
  which.addEventListener("change", () => { registry = Number(which.lastChild.value); dispatchEvent(new Event("hashchange")); });
  view.append(h("div", { class: "head" }, h("h1", {}, "Schemas"), count, h("span", { class: "grow" }), search, actions),
    now.registries.length > 1 ? which : now.registries.length ? h("small", {}, `registry ${now.registries[0]}, compatibility level ${now.level}`) : "", list.element);
  function show() {
    const wanted = search.value.trim().toLowerCase();
    const shown = now.subjects.filter((name) => name.toLowerCase().includes(wanted));
    count.textContent = `${number(shown.length)} subject${shown.length === 1 ? "" : "s"}`;
    list.set(shown);
  }
  search.addEventListener("input", show);
  show();
}

export async function subject(view, signal, index, name, chosen) {
  registry = Number(index);
  const found = await get(`/schemas/subject?${query({ registry, subject: name })}`, signal);
  const version = Number(chosen ?? found.versions.at(-1));
  const now = await get(`/schemas/version?${query({ registry, subject: name, version })}`, signal);
  const previous = found.versions.filter((one) => one < version).at(-1);
  const address = (one) => `#/schemas/${registry}/${part(name)}/${one}`;
  const select = choice("Version", "version", found.versions.map((one) => [String(one), String(one)]).reverse(), String(version));
  select.addEventListener("change", () => { location.hash = address(select.lastChild.value); });
  const others = found.versions.filter((one) => one !== version);
  const against = choice("Compare with", "against", others.map((one) => [String(one), `version ${one}`]).reverse(), String(previous ?? others.at(-1)));
  const place = h("div");
  const text = h("pre", { tabindex: 0, "aria-label": `Schema of ${name}, version ${version}` }, now.schema);
  async function compare() {
    const [from, to] = [Number(against.lastChild.value), version].sort((a, b) => a - b);
    try {
      const { lines } = await get(`/schemas/difference?${query({ registry, subject: name, from, to })}`, signal);
      const changed = lines.filter(([sign]) => sign !== "=").length;
      place.replaceChildren(h("small", { role: "status" }, changed ? `Version ${from} to version ${to}: ${number(changed)} lines differ.` : `Versions ${from} and ${to} are equal.`),
        h("pre", { class: "diff", tabindex: 0, "aria-label": "Difference" }, lines.map(([sign, line]) => h("span", { class: { "+": "added", "-": "removed" }[sign] ?? null }, `${sign === "=" ? " " : sign} ${line}\n`))));
    } catch (error) {
      place.replaceChildren(h("div", { class: "error", role: "alert" }, error.message));
    }
  }
  view.append(
    h("div", { class: "head" }, h("div", { class: "crumb" }, h("a", { href: "#/schemas" }, "Schemas"), " /"),
      h("h1", {}, h("bdi", {}, name)), tag(now.type), tag(found.level), h("span", { class: "grow" }),
      action("Compatibility", () => level(name, found.level)),
      action("New version", () => register(name, now.type, now.schema), { style: "main" })),
    h("section", { class: "card pad" }, h("div", { class: "fields" }, select,
      h("dl", { class: "facts" }, h("dt", {}, "Schema id"), h("dd", {}, String(now.id)), h("dt", {}, "References"), h("dd", {}, now.references.join(", ") || "none")))),
    card(`Version ${version}`, h("div", { class: "pad" }, text, now.cut && h("small", {}, "The beginning of the schema."))),
    card("Difference", h("div", { class: "pad stack" }, others.length ? h("div", { class: "fields" }, against, h("div", { class: "buttons" }, h("button", { type: "button", onclick: compare }, "Compare"))) : h("small", {}, "The subject has one version."), place)));
}

// The subjects and versions of a schema id, which records begin with.
export async function schemaId(view, signal, id) {
  const now = await get(`/schemas/id/${id}`, signal);
  view.append(h("div", { class: "head" }, h("div", { class: "crumb" }, h("a", { href: "#/schemas" }, "Schemas"), " /"), h("h1", {}, `Schema id ${id}`)),
    card("Versions with this id", table("Versions with this id", [
      { name: "Subject", cell: ([name, version]) => h("a", { href: `#/schemas/0/${part(name)}/${version}` }, h("bdi", {}, name)) },
      { name: "Version", number: true, cell: ([, version]) => version },
    ], now.versions, { empty: "no subject has this id" })));
}

function level(subject, now) {
  ask(subject === null ? "Global compatibility level" : `Compatibility level of ${subject}`,
    choice("Level", "level", LEVELS.map((one) => [one, one]), now), {
      note: h("small", {}, subject === null ? "It applies to subjects without a level of their own." : "The registry accepts a new version if it is compatible by this level."),
      act: async (data) => {
        await post("/schemas/level", { registry, subject, ...data });
        toast(`compatibility level ${data.level}`);
        dispatchEvent(new Event("hashchange"));
      },
    });
}

function register(name, kind, text = "") {
  const schema = h("textarea", { name: "schema", rows: 14, required: true, spellcheck: "false", title: "the text of a schema" });
  schema.value = text;
  const answer = h("div", { role: "status" });
  const values = (form) => ({ registry, ...Object.fromEntries(new FormData(form)) });
  async function check(event) {
    try {
      const { messages } = await post("/schemas/check", values(event.target.form));
      answer.className = messages.length ? "error" : "note good";
      answer.textContent = messages.length ? `Not compatible: ${messages.join("; ")}` : "Compatible with the latest version.";
    } catch (error) {
      answer.className = "error";
      answer.textContent = error.message;
    }
  }
  ask(name ? `New version of ${name}` : "Register schema", [
    h("div", { class: "fields" },
      h("label", {}, h("span", {}, "Subject"), h("input", { name: "subject", value: name, readonly: name !== "", required: true, autocomplete: "off", spellcheck: "false", placeholder: "orders-value", title: "a name, such as orders-value for the values of topic orders" })),
      choice("Type", "type", KINDS, kind)),
    h("label", {}, h("span", {}, "Schema"), schema),
    name && h("div", { class: "buttons" }, h("button", { type: "button", onclick: check }, "Check compatibility")), answer,
  ], {
    verb: "Register",
    small: false,
    act: async (data) => {
      const done = await post("/schemas/register", { registry, ...data });
      toast(`registered with schema id ${done.id}`);
      const to = `#/schemas/${registry}/${part(data.subject)}`;
      if (location.hash === to) dispatchEvent(new Event("hashchange")); else location.hash = to;
    },
  });
}
