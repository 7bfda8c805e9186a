// Transactional ids with their open transactions, hanging transactions, and aborts.

import { get, post, every, part } from "./api.js";
import { h, ask, choice, number, span, table, tag, toast } from "./dom.js";
import { LimitedRows } from "./limited.js";
import { List } from "./list.js";

const OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"];
const age = (ms) => (ms === null ? "–" : ms < 1000 ? "0 s" : span(ms));

export async function transactions(view, signal) {
  const open = h("input", { type: "checkbox" });
  const count = h("small", { role: "status" });
  const list = new List("Transactions", [
    { name: "Transactional id", class: "name", sort: (t) => t.id, cell: (t) => h("bdi", {}, t.id) },
    { name: "State", sort: (t) => t.state, cell: (t) => tag(t.state, t.state === "Ongoing" ? (t.age > t.timeout ? "bad" : "warn") : null) },
    { name: "Age", number: true, sort: (t) => t.age, cell: (t) => age(t.age) },
    { name: "Timeout", number: true, sort: (t) => t.timeout, cell: (t) => age(t.timeout) },
    { name: "Partitions", class: "names", sort: (t) => t.partition_count, cell: places },
    { name: "Producer id", number: true, sort: (t) => t.producer_id, cell: (t) => t.producer_id },
    { name: "Coordinator", number: true, sort: (t) => t.coordinator, cell: (t) => h("a", { href: `#/brokers/${t.coordinator}` }, String(t.coordinator)) },
    { name: "", class: "does", cell: (t) => OPEN.includes(t.state) && h("button", { class: "quiet", "aria-label": `Abort the transaction of ${t.id}`, onclick: () => abort(t, look) }, "Abort") },
  ], "no transactions");
  const limited = new LimitedRows("/transactions", "transactions", signal, (now) => {
    count.textContent = `${limited.counted(now, "transactional id")}, ${number(now.open)} with an open transaction`;
    list.set(now.transactions);
  }, () => (open.checked ? { open: "1" } : {}));
  const look = () => limited.look();
  view.append(h("div", { class: "head" }, h("h1", {}, "Transactions"), count, h("span", { class: "grow" }),
    h("label", { class: "line" }, open, h("span", {}, "open only")), limited.search, h("button", { type: "button", onclick: find }, "Find hanging")),
  list.element, h("div", { class: "buttons" }, limited.more));
  open.addEventListener("change", () => limited.again());
  await look();
  every(3, signal, look);
}

const places = (t) => (t.partition_count ? [
  t.partitions.slice(0, 3).map(([topic, partition], at) => [at > 0 && ", ", h("a", { href: `#/topics/${part(topic)}` }, `${topic}-${partition}`)]),
  t.partition_count > 3 && h("small", {}, ` +${number(t.partition_count - 3)}`)] : "–");

function abort(transaction, look) {
  ask(`Abort the transaction of ${transaction.id}?`, h("dl", { class: "facts" }, [
    ["Age", age(transaction.age)], ["Producer id", transaction.producer_id],
    ["Partitions", transaction.partitions.map(([topic, partition]) => `${topic}-${partition}`).join(", ") || "none yet"],
  ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])), {
    verb: "Abort",
    bad: true,
    note: h("small", {}, "The coordinator aborts the transaction and fences its producer, which cannot continue."),
    act: async () => {
      await post("/transactions/abort", { id: transaction.id });
      toast(`aborted the transaction of ${transaction.id}`);
      await look();
    },
  });
}

// Transactions that are open on a partition and that no coordinator will end: they block read_committed consumers.
function find() {
  const found = h("div");
  ask("Find hanging transactions", [
    choice("Last written", "minutes", [["20", "more than 20 minutes ago"], ["60", "more than an hour ago"], ["5", "more than 5 minutes ago"], ["0", "at any time"]], "20"),
    found,
  ], {
    verb: "Search",
    small: false,
    note: h("small", {}, "A hanging transaction is open on a partition without a coordinator that will end it, and read_committed consumers wait for it. All partitions are searched."),
    act: async ({ minutes }) => {
      const now = await get(`/transactions/hanging?minutes=${minutes}`);
      found.replaceChildren(table("Hanging transactions", [
        { name: "Partition", cell: (t) => `${t.topic}-${t.partition}` },
        { name: "Producer id", number: true, cell: (t) => t.producer_id },
        { name: "Start offset", number: true, cell: (t) => number(t.start_offset) },
        { name: "Last written", number: true, cell: (t) => `${age(t.age)} ago` },
        { name: "", class: "does", cell: (t) => h("button", { type: "button", class: "quiet", "aria-label": `Abort the transaction on ${t.topic}-${t.partition}`, onclick: (event) => abortHanging(t, event.target) }, "Abort") },
      ], now.transactions, { empty: "no hanging transactions" }));
      return false;  // the dialog remains
    },
  });
}

async function abortHanging(transaction, button) {
  button.disabled = true;
  try {
    await post("/transactions/abort-hanging", transaction);
    toast(`aborted the transaction on ${transaction.topic}-${transaction.partition}`);
    button.replaceWith(tag("aborted"));
  } catch (error) {
    toast(error.message);
    button.disabled = false;
  }
}
