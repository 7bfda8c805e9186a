// ACLs, quotas, and open transactions.

import { get, post, every } from "./api.js";
import { h, ask, bytes, choice, field, number, table, tag, toast } from "./dom.js";

const OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "all", "cluster_action", "describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "delegation_token", "user"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const words = (name) => name.replaceAll("_", " ");
const named = (names) => names.map((name) => [name, words(name)]);
const whose = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? "(all others)"}`).join(", ");

export async function rights(view, signal) {
  const [acls, quotas, transactions] = [h("div"), h("div"), h("div")];
  const addRule = h("button", { onclick: () => newRule(look) }, "Add an ACL…");
  const addQuota = h("button", { onclick: () => newQuota(look) }, "Set a quota…");
  view.append(h("div", { class: "head" }, h("h1", {}, "Permissions")),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "ACLs"), h("span", { class: "grow" }), addRule), acls),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Quotas"), h("span", { class: "grow" }), addQuota), quotas),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Transactions")), transactions));
  let shown = "";

  async function look() {
    const now = await get("/rights", signal);
    const text = JSON.stringify(now);
    if (text === shown) return;  // keep the buttons in place during a click
    shown = text;
    addRule.hidden = now.missing.acls !== null;
    addQuota.hidden = now.missing.quotas !== null;
    acls.replaceChildren(table("ACLs", [
      { name: "Principal", cell: (a) => h("bdi", {}, a.principal) },
      { name: "", cell: (a) => tag(a.permission, a.permission === "deny" ? "bad" : "good") },
      { name: "Operation", cell: (a) => words(a.operation) },
      { name: "Resource", cell: (a) => [words(a.resource), " ", h("bdi", {}, a.name), a.pattern === "prefixed" && "…"] },
      { name: "Host", class: "optional", cell: (a) => a.host },
      { name: "", class: "does", cell: (a) => h("button", { class: "quiet", "aria-label": `Remove the ACL of ${a.principal} for ${a.name}`, onclick: () => removeRule(a, look) }, "Remove") },
    ], now.acls, { empty: now.missing.acls ?? "no ACLs" }));
    quotas.replaceChildren(table("Quotas", [
      { name: "Whose", cell: (q) => Object.entries(q.entity).map(([kind, name]) => [h("small", {}, `${kind} `), h("bdi", {}, name ?? "(all others)"), " "]).flat() },
      { name: "At most", cell: (q) => Object.entries(q.values).map(([key, value]) => `${words(key)} ${key.endsWith("byte_rate") ? `${bytes(value)}/s` : number(value)}`).join(", ") },
      { name: "", class: "does", cell: (q) => h("button", { class: "quiet", "aria-label": `Change the quotas of ${whose(q.entity)}`, onclick: () => changeQuota(q, look) }, "Change") },
    ], now.quotas, { empty: now.missing.quotas ?? "no quotas" }));
    transactions.replaceChildren(table("Transactions", [
      { name: "Transactional id", cell: (t) => h("bdi", {}, t.transactional_id) },
      { name: "State", cell: (t) => tag(t.state, t.state === "Ongoing" ? "warn" : null) },
      { name: "Producer id", number: true, class: "optional", cell: (t) => t.producer_id },
      { name: "Coordinator", number: true, class: "optional", cell: (t) => t.coordinator_id },
    ], now.transactions, { empty: now.missing.transactions ?? "no transactions" }));
  }
  await look();
  every(5, signal, look);
}

function newRule(look) {
  ask("New ACL", [
    h("div", { class: "fields" },
      field("Principal", "principal", { value: "User:", required: true, spellcheck: "false" }),
      choice("Permission", "permission", [["allow", "allow"], ["deny", "deny"]], "allow"),
      choice("Operation", "operation", named(OPERATIONS), "read")),
    h("div", { class: "fields" },
      choice("Resource type", "resource", named(RESOURCES), "topic"),
      field("Resource name", "name", { required: true, spellcheck: "false", placeholder: "* for all" }),
      choice("Pattern", "pattern", [["literal", "literal"], ["prefixed", "prefix"]], "literal")),
    field("Host", "host", { value: "*", required: true, spellcheck: "false" }),
  ], {
    verb: "Add",
    small: false,
    act: async (rule) => {
      await post("/rights/rules", rule);
      toast("the ACL was created");
      await look();
    },
  });
}

function removeRule(rule, look) {
  ask("Remove this ACL?", h("p", {}, h("bdi", {}, rule.principal), ` ${rule.permission === "deny" ? "may not" : "may"} ${words(rule.operation)}: ${words(rule.resource)} `, h("bdi", {}, rule.name), rule.pattern === "prefixed" && "…", `, from ${rule.host}`), {
    verb: "Remove",
    bad: true,
    act: async () => {
      const done = await post("/rights/rules/remove", rule);
      toast(done.removed ? "the ACL was removed" : "the ACL had been removed before");
      await look();
    },
  });
}

function newQuota(look) {
  ask("A quota", [
    choice("Of", "kind", [["user", "a user"], ["client-id", "a client id"], ["ip", "an address"]], "user"),
    field("Name", "name", { spellcheck: "false", placeholder: "empty: the default quota" }),
    choice("Of what", "key", named(QUOTAS), "producer_byte_rate"),
    field("At most", "value", { type: "number", min: 0, step: "any", required: true }),
  ], {
    verb: "Set",
    note: h("small", {}, "Bytes per second, percent of a thread, or changes or connections per second."),
    act: async ({ kind, name, key, value }) => {
      await post("/rights/quotas", { entity: { [kind]: name === "" ? null : name }, values: { [key]: value } });
      toast("the quota is in force");
      await look();
    },
  });
}

function changeQuota(quota, look) {
  ask(whose(quota.entity), Object.entries(quota.values).map(([key, value]) => field(words(key), key, { type: "number", min: 0, step: "any", value, placeholder: "none" })), {
    verb: "Save",
    note: h("small", {}, "Clear a field to remove that quota."),
    act: async (data) => {
      const values = Object.fromEntries(Object.keys(quota.values).map((key) => [key, data[key] === "" ? null : data[key]]));
      await post("/rights/quotas", { entity: quota.entity, values });
      toast("the quotas are changed");
      await look();
    },
  });
}
