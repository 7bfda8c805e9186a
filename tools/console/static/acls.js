// ACLs.

import { get, post, every } from "./api.js";
import { h, action, ask, choice, field, number, tag, toast } from "./dom.js";
import { List } from "./list.js";

const OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "all", "cluster_action", "describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "delegation_token", "user"];
const words = (name) => name.replaceAll("_", " ");
const named = (names) => names.map((name) => [name, words(name)]);
const text = (a) => [a.principal, a.permission, a.operation, a.resource, a.name, a.pattern, a.host].join(" ").toLowerCase();

export async function acls(view, signal) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search ACLs  ( / )", "aria-label": "Search ACLs", autocomplete: "off" });
  const count = h("small", { role: "status" });
  const actions = h("span");
  let all = [];
  const list = new List("ACLs", [
    { name: "Principal", class: "name", sort: (a) => a.principal, cell: (a) => h("bdi", {}, a.principal) },
    { name: "Permission", sort: (a) => a.permission, cell: (a) => tag(a.permission, a.permission === "deny" ? "bad" : "good") },
    { name: "Operation", sort: (a) => a.operation, cell: (a) => words(a.operation) },
    { name: "Resource", sort: (a) => `${a.resource} ${a.name}`, cell: (a) => [h("small", {}, `${words(a.resource)} `), h("bdi", {}, a.name)] },
    { name: "Pattern", sort: (a) => a.pattern, cell: (a) => a.pattern },
    { name: "Host", sort: (a) => a.host, cell: (a) => a.host },
    { name: "", class: "does", cell: (a) => h("button", { class: "quiet", "aria-label": `Remove the ACL of ${a.principal} for ${a.operation} on ${a.name}`, onclick: () => remove(a, look) }, "Remove") },
  ], "no ACLs");
  view.append(h("div", { class: "head" }, h("h1", {}, "ACLs"), count, h("span", { class: "grow" }), search, actions), list.element);
  let shown = "";

  function show() {
    const wanted = search.value.trim().toLowerCase();
    list.set(all.filter((a) => text(a).includes(wanted)));
    count.textContent = `${number(list.rows.length)} ACL${list.rows.length === 1 ? "" : "s"}`;
  }

  async function look() {
    const now = await get("/acls", signal);
    const found = JSON.stringify(now);
    if (found === shown) return;  // keep the buttons in place during a click
    shown = found;
    all = now.acls;
    list.none.textContent = now.missing ?? "no ACLs";
    actions.replaceChildren(action("Add ACL", () => add(look), { why: now.missing && (now.missing.startsWith("SECURITY_DISABLED") ? "no authorizer" : now.missing), style: "main" }));
    show();
  }
  search.addEventListener("input", show);
  await look();
  every(5, signal, look);
}

function add(look) {
  ask("Add ACL", [
    h("div", { class: "fields" },
      field("Principal", "principal", { value: "User:", required: true, autofocus: true, spellcheck: "false", pattern: "[^:]+:.+", title: "the type and the name, such as User:alice, or User:* for all" }),
      choice("Permission", "permission", [["allow", "allow"], ["deny", "deny"]], "allow"),
      choice("Operation", "operation", named(OPERATIONS), "read")),
    h("div", { class: "fields" },
      choice("Resource type", "resource", named(RESOURCES), "topic"),
      field("Resource name", "name", { required: true, spellcheck: "false", placeholder: "* for all" }),
      choice("Pattern", "pattern", [["literal", "literal"], ["prefixed", "prefixed"]], "literal")),
    field("Host", "host", { value: "*", required: true, spellcheck: "false", title: "an address, or * for all" }),
  ], {
    verb: "Add",
    small: false,
    note: h("small", {}, "The only resource of type cluster is kafka-cluster."),
    act: async (acl) => {
      await post("/acls", acl);
      toast("added the ACL");
      await look();
    },
  });
}

function remove(acl, look) {
  ask("Remove this ACL?", h("dl", { class: "facts" }, [
    ["Principal", acl.principal], ["Permission", acl.permission], ["Operation", words(acl.operation)],
    ["Resource", `${words(acl.resource)} ${acl.name}`], ["Pattern", acl.pattern], ["Host", acl.host],
  ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, h("bdi", {}, value))])), {
    verb: "Remove",
    bad: true,
    act: async () => {
      const done = await post("/acls/remove", acl);
      toast(done.removed ? "removed the ACL" : "the ACL had been removed before");
      await look();
    },
  });
}
