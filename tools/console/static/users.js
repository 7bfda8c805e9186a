// Users with SCRAM credentials, quotas or ACLs.

import { post, every } from "./api.js";
import { h, action, ask, bytes, choice, field, number, toast } from "./dom.js";
import { LimitedRows } from "./limited.js";
import { List } from "./list.js";

const MECHANISMS = [["SCRAM-SHA-512", "SCRAM-SHA-512"], ["SCRAM-SHA-256", "SCRAM-SHA-256"]];
const amount = (key, value) => `${key.replaceAll("_", " ")} ${key.endsWith("byte_rate") ? `${bytes(value)}/s` : number(value)}`;

export async function users(view, signal) {
  const count = h("small", { role: "status" });
  const list = new List("Users", [
    { name: "User", class: "name", sort: (u) => u.name, cell: (u) => h("bdi", {}, u.name) },
    { name: "Credentials", cell: (u) => (u.credentials.length ? u.credentials.map(([mechanism, iterations]) => `${mechanism} (${number(iterations)} iterations)`).join(", ") : h("span", { class: "none" }, "no password")) },
    { name: "Quotas", cell: (u) => Object.entries(u.quotas).map(([key, value]) => amount(key, value)).join(", ") || "–" },
    { name: "ACLs", number: true, sort: (u) => u.acls, cell: (u) => (u.acls ? h("a", { href: "#/acls" }, number(u.acls)) : "0") },
    { name: "", class: "does", cell: (u) => [h("button", { class: "quiet", "aria-label": `Set the password of ${u.name}`, onclick: () => password(look, u.name) }, "Set password"),
      u.credentials.length > 0 && h("button", { class: "quiet", "aria-label": `Remove the password of ${u.name}`, onclick: () => remove(u, look) }, "Remove password")] },
  ], "no users");
  const actions = h("span");
  let shown = "";
  const limited = new LimitedRows("/users", "users", signal, (now) => show(now, null));
  view.append(h("div", { class: "head" }, h("h1", {}, "Users"), count, h("span", { class: "grow" }), limited.search, actions),
    h("small", {}, "Users with SCRAM credentials, and users that have a quota or an ACL only."), list.element,
    h("div", { class: "buttons" }, limited.more));
  list.none.hidden = true;
  list.table.hidden = true;
  function show(now, why) {
    const text = JSON.stringify([now, why]);
    if (text === shown) return;  // keep the buttons in place during a click
    shown = text;
    actions.replaceChildren(action("Add user", () => password(look), { why, style: "main" }));
    count.textContent = limited.counted(now, "user");
    list.set(now.users);
  }
  async function look() {
    try { await limited.look(); } catch (error) { if (!signal.aborted) show({ users: [], total: 0 }, error.message); }
  }
  await look();
  every(5, signal, look);
}

function password(look, name) {
  ask(name === undefined ? "Add user" : `Set the password of ${name}`, [
    field("User", "name", { value: name ?? "", readonly: name !== undefined, required: true, autofocus: name === undefined, spellcheck: "false", pattern: "(?!User:).*", title: "the name without User:" }),
    field("Password", "password", { type: "password", required: true, autocomplete: "new-password", autofocus: name !== undefined }),
    field("Password again", "again", { type: "password", required: true, autocomplete: "new-password" }),
    h("div", { class: "fields" }, choice("Mechanism", "mechanism", MECHANISMS, MECHANISMS[0][0]),
      field("Iterations", "iterations", { type: "number", min: 4096, max: 16384, value: 4096, required: true, title: "a number from 4,096 to 16,384" })),
  ], {
    verb: name === undefined ? "Add" : "Set password",
    note: h("small", {}, "The broker receives the salted hash of the password."),
    act: async ({ again, ...user }) => {
      if (again !== user.password) throw new Error("Password again: the passwords differ");
      await post("/users", user);
      toast(`user ${user.name} has a password for ${user.mechanism}`);
      await look();
    },
  });
}

function remove(user, look) {
  const mechanisms = user.credentials.map(([mechanism]) => [mechanism, mechanism]);
  ask(`Remove the password of ${user.name}?`, choice("Mechanism", "mechanism", mechanisms, mechanisms[0][0]), {
    verb: "Remove",
    bad: true,
    note: h("small", {}, "The user can no longer log in with this mechanism. The quotas and ACLs of the user remain."),
    act: async ({ mechanism }) => {
      await post("/users/remove", { name: user.name, mechanism });
      toast(`removed the password of ${user.name} for ${mechanism}`);
      await look();
    },
  });
}
