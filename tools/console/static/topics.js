// All topics, however many; a new one.

import { get, post, every, part } from "./api.js";
import { h, ask, bytes, choice, field, number, tag, toast } from "./dom.js";
import { List } from "./list.js";

// The format of the name of a topic, which an error names.
export const TOPIC_NAME = {
  required: true, pattern: "[a-zA-Z0-9._\\-]+", maxlength: 249, spellcheck: "false",
  title: "up to 249 of the characters a-z, A-Z, 0-9, . (dot), _ (underscore) and - (hyphen)",
};

export async function topics(view, signal) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search topics  ( / )", "aria-label": "Search topics", autocomplete: "off", spellcheck: "false" });
  const internal = h("input", { type: "checkbox" });
  const internals = h("span", {}, "internal");
  const count = h("small", { role: "status" });
  let [rows, sizes] = [[], {}];
  const list = new List("Topics", [
    { name: "Topic", class: "name", sort: (t) => t[0], cell: (t) => [h("a", { href: `#/topics/${part(t[0])}` }, t[0]), t[4] ? [" ", tag("internal")] : null, t[3] > 0 && [" ", tag(`${number(t[3])} under-replicated`, "bad")]] },
    { name: "Partitions", number: true, sort: (t) => t[1], cell: (t) => number(t[1]) },
    { name: "Replicas", number: true, sort: (t) => t[2], cell: (t) => t[2] },
    { name: "Size", number: true, sort: (t) => sizes[t[0]] ?? null, cell: (t) => bytes(sizes[t[0]]) },
  ], "no topic has this text in its name");
  view.append(
    h("div", { class: "head" }, h("h1", {}, "Topics"), count, h("span", { class: "grow" }),
      h("label", { class: "line" }, internal, internals), search,
      h("button", { class: "main", onclick: () => create(signal, look) }, "New topic")),
    list.element);

  function show() {
    const wanted = search.value.trim().toLowerCase();
    const shown = rows.filter((t) => (internal.checked || !t[4]) && t[0].toLowerCase().includes(wanted));
    const partitions = shown.reduce((sum, t) => sum + t[1], 0);
    count.textContent = `${number(shown.length)} topics, ${number(partitions)} partitions`;
    internals.textContent = `${number(rows.filter((t) => t[4]).length)} internal`;
    list.set(shown);
  }

  async function look() {
    ({ rows } = await get("/topics", signal));
    show();
  }

  search.addEventListener("input", show);
  internal.addEventListener("change", show);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    list.link(0)?.[event.key === "Enter" ? "click" : "focus"]();
  });
  await look();
  every(10, signal, async () => { ({ sizes } = await get("/sizes", signal)); await look(); });
}

function create(signal, look) {
  ask("New topic", [
    field("Name", "name", { ...TOPIC_NAME, autofocus: true }),
    h("div", { class: "fields" },
      field("Partitions", "partitions", { type: "number", min: 1, placeholder: "default", title: "a number from 1 on, or empty for the default of the broker" }),
      field("Replication factor", "replication", { type: "number", min: 1, placeholder: "default", title: "a number from 1 on, or empty for the default of the broker" }),
      choice("Cleanup policy", "policy", [["", "default"], ["delete", "delete"], ["compact", "compact"], ["compact,delete", "compact,delete"]], "")),
    h("label", {}, h("span", {}, "Settings, one key=value per line"), h("textarea", { name: "configs", rows: 3, placeholder: "retention.ms=604800000", spellcheck: "false" })),
  ], {
    verb: "Create",
    act: async (data) => {
      const lines = data.configs.split("\n").map((line) => line.trim()).filter(Boolean);
      const configs = Object.fromEntries(lines.map((line) => {
        const at = line.indexOf("=");
        if (at < 1) throw new Error(`${line}: expected key=value, such as retention.ms=604800000`);
        return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      }));
      if (data.policy) configs["cleanup.policy"] = data.policy;
      await post("/topics", { ...data, configs });
      toast(`created ${data.name}`);
      await look();
    },
  });
}
