// The settings of a topic or a broker: their values, sources and descriptions, and changes.

import { get, post } from "./api.js";
import { h, ask, bytes, choice, field, sentence, span, tag, title, toast } from "./dom.js";

const POLICIES = ["delete", "compact", "compact,delete"];
const TIMESTAMPS = ["CreateTime", "LogAppendTime"];
const CODECS = ["producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"];
const VALUES = {
  "cleanup.policy": POLICIES, "log.cleanup.policy": POLICIES, "compression.type": CODECS,
  "message.timestamp.type": TIMESTAMPS, "log.message.timestamp.type": TIMESTAMPS,
};

// `path` is the address of the settings, `own` are the sources whose settings are first.
export async function settings(view, signal, { path, label, own }) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search settings  ( / )", "aria-label": "Search settings", autocomplete: "off" });
  const place = h("div", { class: "card" });
  let configs = [];
  view.append(h("div", { class: "head" }, search, h("small", {}, `Settings with the source ${own.join(" or ")} are first.`)), place);

  function show() {
    const wanted = search.value.trim().toLowerCase();
    const shown = configs.filter((c) => c.name.includes(wanted) || (c.doc ?? "").toLowerCase().includes(wanted));
    place.replaceChildren(h("table", { class: "settings", "aria-label": label },
      h("thead", {}, h("tr", {}, [{ name: "Setting" }, { name: "Value" }, { name: "Source" }, {}].map(title))),
      h("tbody", {}, shown.map((c) => h("tr", {},
        h("td", {}, h("code", {}, c.name), c.doc && h("div", {}, h("small", {}, sentence(c.doc)))),
        h("td", { class: "mono" }, value(c)),
        h("td", {}, tag(c.source, own.includes(c.source) ? "good" : null)),
        h("td", { class: "does" }, c.read_only ? h("small", {}, "read-only") : h("button", { class: "quiet", "aria-label": `Change ${c.name}`, onclick: () => change(c) }, "Change")))))));
  }

  function change(config) {
    const isOwn = own.includes(config.source);
    const reset = h("input", { type: "checkbox", name: "reset" });
    const given = input(config);
    // The browser has no hidden value: without a new one, saving would empty the setting.
    reset.addEventListener("change", () => { if (config.sensitive) given.lastChild.required = !reset.checked; });
    ask(config.name, [
      given,
      isOwn && h("label", { class: "line" }, reset, h("span", {}, "reset to the default")),
    ], {
      note: config.doc && h("small", {}, sentence(config.doc)),
      act: async (data) => {
        await post(path, { key: config.name, value: data.reset ? null : data.value });
        toast(`changed ${config.name}`);
        await look();
      },
    });
  }

  async function look() {
    ({ configs } = await get(path, signal));
    configs.sort((a, b) => own.includes(b.source) - own.includes(a.source) || a.name.localeCompare(b.name));
    show();
  }

  search.addEventListener("input", show);
  await look();
}

function value(config) {
  if (config.sensitive) return h("span", { class: "none" }, "hidden");
  if (config.value === "") return h("span", { class: "none" }, "empty");
  return [config.value ?? "–", readable(config.name, config.value)];
}

// A select for a setting with few possible values.
function input({ name, value, sensitive }) {
  if (sensitive) return field("New value", "value", { type: "password", required: true, autocomplete: "new-password", placeholder: "hidden", autofocus: true });
  const values = VALUES[name] ?? (["true", "false"].includes(value) ? ["true", "false"] : null);
  if (!values) return field("Value", "value", { value: value ?? "", autofocus: true, spellcheck: "false" });
  const all = values.includes(value) || !value ? values : [value, ...values];
  return choice("Value", "value", all.map((one) => [one, one]), value, { autofocus: true });
}

// Readable forms of numbers of milliseconds and bytes. -1 and the largest number of 64 bits mean no limit.
export function readable(name, value) {
  const note = (text) => h("div", {}, h("small", {}, text));
  const isTime = name.endsWith(".ms");
  const isLimit = isTime || /\.(bytes|messages|hours|minutes)$/.test(name);
  if (isLimit && (value === "-1" || value === "9223372036854775807")) return note(name.endsWith(".bytes") ? "no limit" : "never");
  const amount = Number(value);
  if (!Number.isSafeInteger(amount) || amount < 1000) return null;
  return isTime ? note(span(amount)) : name.endsWith(".bytes") ? note(bytes(amount)) : null;
}
