// Quotas of users, client ids and addresses.

import { get, post, every } from "./api.js";
import { h, action, ask, bytes, choice, decimal, field, toast } from "./dom.js";
import { List } from "./list.js";

const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const UNITS = { producer_byte_rate: "bytes/s", consumer_byte_rate: "bytes/s", request_percentage: "% of a thread", controller_mutation_rate: "partitions/s", connection_creation_rate: "connections/s" };
const words = (name) => name.replaceAll("_", " ");
const entityText = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", ");
const amount = (key, value) => `${words(key)} ${key.endsWith("byte_rate") ? `${bytes(value)}/s` : `${decimal(value)} ${UNITS[key] ?? ""}`}`;

export async function quotas(view, signal) {
  const actions = h("span");
  const list = new List("Quotas", [
    { name: "Entity", class: "name", sort: (q) => entityText(q.entity), cell: (q) => Object.entries(q.entity).map(([kind, name]) => [h("small", {}, `${kind} `), h("bdi", {}, name ?? "(default)"), " "]) },
    { name: "Quotas", cell: (q) => Object.entries(q.values).map(([key, value]) => amount(key, value)).join(", ") },
    { name: "", class: "does", cell: (q) => h("button", { class: "quiet", "aria-label": `Change the quotas of ${entityText(q.entity)}`, onclick: () => change(q, look) }, "Change") },
  ], "no quotas");
  view.append(h("div", { class: "head" }, h("h1", {}, "Quotas"), h("span", { class: "grow" }), actions), list.element);
  let shown = "";
  async function look() {
    const now = await get("/quotas", signal);
    const found = JSON.stringify(now);
    if (found === shown) return;  // keep the buttons in place during a click
    shown = found;
    list.none.textContent = now.missing ?? "no quotas";
    actions.replaceChildren(action("Set quota", () => add(look), { why: now.missing, style: "main" }));
    list.set(now.quotas);
  }
  await look();
  every(5, signal, look);
}

function add(look) {
  const kind = choice("Entity type", "kind", [["user", "user"], ["client-id", "client id"], ["ip", "address (ip)"]], "user");
  const key = choice("Quota", "key", [], "");
  const unit = h("span", {}, "Value");
  const value = h("label", {}, unit, h("input", { name: "value", type: "number", min: 0, step: "any", required: true, autocomplete: "off", title: "a number from 0 on" }));
  const fit = () => { unit.textContent = `Value in ${UNITS[key.lastChild.value]}`; };
  // An address has the quota of connections only, and other entities have all but it.
  const fill = () => {
    const isAddress = kind.lastChild.value === "ip";
    key.lastChild.replaceChildren(...QUOTAS.filter((one) => (one === "connection_creation_rate") === isAddress).map((one) => h("option", { value: one }, words(one))));
    fit();
  };
  kind.addEventListener("change", fill);
  key.addEventListener("change", fit);
  fill();
  ask("Set quota", [kind, field("Name", "name", { spellcheck: "false", placeholder: "empty for the default quota", autofocus: true }), key, value], {
    verb: "Set",
    act: async (data) => {
      await post("/quotas", { entity: { [data.kind]: data.name === "" ? null : data.name }, values: { [data.key]: data.value } });
      toast("set the quota");
      await look();
    },
  });
}

function change(quota, look) {
  ask(entityText(quota.entity), Object.entries(quota.values).map(([key, value]) => field(`${words(key)}${UNITS[key] ? ` in ${UNITS[key]}` : ""}`, key, { type: "number", min: 0, step: "any", value, placeholder: "none", title: "a number from 0 on, or empty" })), {
    verb: "Save",
    note: h("small", {}, "Clear a field to remove that quota."),
    act: async (data) => {
      const values = Object.fromEntries(Object.keys(quota.values).map((key) => [key, data[key] === "" ? null : data[key]]));
      await post("/quotas", { entity: quota.entity, values });
      toast("changed the quotas");
      await look();
    },
  });
}
