// Who may do what, how much of it, and transactions that are open.

import { get, every } from "./api.js";
import { h, bytes, number, table, tag } from "./dom.js";

export async function rights(view, signal) {
  const [acls, quotas, transactions] = [h("div"), h("div"), h("div")];
  view.append(h("div", { class: "head" }, h("h1", {}, "Rights")),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Access rules")), acls),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Quotas")), quotas),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Transactions")), transactions));

  async function look() {
    const now = await get("/rights", signal);
    acls.replaceChildren(table("Access rules", [
      { name: "Who", cell: (a) => h("bdi", {}, a.principal) },
      { name: "", cell: (a) => tag(a.permission, a.permission === "deny" ? "bad" : "good") },
      { name: "What", cell: (a) => a.operation.replaceAll("_", " ") },
      { name: "Of", cell: (a) => [a.resource.replaceAll("_", " "), " ", h("bdi", {}, a.name), a.pattern === "prefixed" && "…"] },
      { name: "From", class: "optional", cell: (a) => a.host },
    ], now.acls, { empty: now.missing.acls ?? "no rules" }));
    quotas.replaceChildren(table("Quotas", [
      { name: "Whose", cell: (q) => Object.entries(q.entity).map(([kind, name]) => [h("small", {}, `${kind} `), h("bdi", {}, name ?? "(all others)"), " "]).flat() },
      { name: "At most", cell: (q) => Object.entries(q.values).map(([key, value]) => `${key.replaceAll("_", " ")} ${key.endsWith("byte_rate") ? `${bytes(value)}/s` : number(value)}`).join(", ") },
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
