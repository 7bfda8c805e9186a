// Reassignments of replicas and elections of leaders.

import { get, post, every, part } from "./api.js";
import { h, action, ask, bytes, choice, dialog, field, number, table, tag, toast } from "./dom.js";
import { List } from "./list.js";

export async function reassignments(view, signal) {
  const actions = h("div", { class: "buttons" });
  const electing = h("span", { class: "buttons" });
  const moving = h("div");
  const count = h("small", { role: "status" });
  const list = new List("Elections", [
    { name: "Topic", class: "name", sort: (p) => p[0], cell: (p) => h("a", { href: `#/topics/${part(p[0])}` }, p[0]) },
    { name: "Partition", number: true, sort: (p) => p[1], cell: (p) => p[1] },
    { name: "Leader", number: true, sort: (p) => p[2], cell: (p) => (p[2] < 0 ? tag("none", "bad") : p[2]) },
    { name: "Preferred leader", number: true, sort: (p) => p[3], cell: (p) => p[3] },
    { name: "In sync", class: "mono", cell: (p) => p[4].join(" ") || "none" },
    { name: "", class: "does", cell: (p) => electButton(p, look) },
  ], "all partitions have their preferred leaders");
  view.append(h("div", { class: "head" }, h("h1", {}, "Reassignments"), h("span", { class: "grow" }), actions),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Partitions that are moving")), moving),
    h("div", { class: "head" }, h("h2", {}, "Elections"), count, h("span", { class: "grow" }), electing), list.element);
  let shown = "";

  async function look() {
    const now = await get("/reassignments", signal);
    const text = JSON.stringify(now);
    if (text === shown) return;  // keep the buttons in place during a click
    shown = text;
    const many = now.moving_count;
    actions.replaceChildren(
      action("Cancel all", () => cancel(null, many, look), { why: many ? null : "nothing is moving" }),
      action("Remove throttles", () => unthrottle(look), { why: many ? "partitions are moving" : null }),
      action("Reassign", () => plan(now.brokers, look), { style: "main", why: now.brokers.length > 1 ? null : "the cluster has one broker" }));
    moving.replaceChildren(table("Partitions that are moving", [
      { name: "Topic", class: "name", cell: (p) => h("a", { href: `#/topics/${part(p.topic)}` }, p.topic) },
      { name: "Partition", number: true, cell: (p) => p.partition },
      { name: "Replicas", class: "mono", cell: (p) => p.replicas.join(" ") },
      { name: "Adding", class: "mono", cell: (p) => p.adding.map((one) => [tag(one, p.in_sync.includes(one) ? "good" : "warn"), " "]) },
      { name: "Removing", class: "mono", cell: (p) => p.removing.join(" ") || "–" },
      { name: "", class: "does", cell: (p) => h("button", { class: "quiet", "aria-label": `Cancel the reassignment of ${p.topic}-${p.partition}`, onclick: () => cancel(p, 1, look) }, "Cancel") },
    ], now.moving.slice(0, 200), { empty: "no partition is moving" }));
    count.textContent = now.election_count ? `${number(now.election_count)} partition${now.election_count === 1 ? " does" : "s do"} not have the preferred leader` : "";
    const inSync = now.elections.filter((p) => p[4].includes(p[3])).length;
    electing.replaceChildren(action("Elect preferred leaders", () => elect({ kind: "preferred" }, look), { why: !now.election_count ? "not needed" : inSync ? null : "no preferred leader is in sync" }));
    list.set(now.elections);
  }
  await look();
  every(3, signal, look);
}

// The preferred leader can be elected if it is in sync; a partition without a leader requires an unclean election.
function electButton(p, look) {
  const [topic, partition, leader, preferred, inSync] = p;
  const place = { topic, partition };
  if (leader < 0) return h("button", { class: "quiet", "aria-label": `Elect any replica of ${topic}-${partition}`, onclick: () => unclean(place, look) }, "Unclean election");
  return h("button", { class: "quiet", disabled: !inSync.includes(preferred), title: inSync.includes(preferred) ? null : `broker ${preferred} is not in sync`, "aria-label": `Elect the preferred leader of ${topic}-${partition}`, onclick: () => elect({ kind: "preferred", ...place }, look) }, inSync.includes(preferred) ? "Elect" : "Elect: not in sync");
}

async function elect(body, look) {
  try {
    const done = await post("/elections", body);
    toast(done.errors.length ? done.errors[0] : `elected ${number(done.elected)} leader${done.elected === 1 ? "" : "s"}`);
  } catch (error) {
    toast(error.message);
  }
  await look();
}

function unclean(place, look) {
  ask(`Elect any replica of ${place.topic}-${place.partition}?`, [], {
    verb: "Elect",
    bad: true,
    note: h("div", { class: "error" }, "A replica that is not in sync becomes the leader. Acknowledged records that it does not have are lost."),
    act: async () => {
      const done = await post("/elections", { kind: "unclean", ...place });
      if (done.errors.length) throw new Error(done.errors[0]);
      toast("elected a leader");
      await look();
    },
  });
}

function cancel(one, count, look) {
  ask(one ? `Cancel the reassignment of ${one.topic}-${one.partition}?` : `Cancel ${number(count)} reassignment${count === 1 ? "" : "s"}?`, [], {
    verb: "Cancel reassignment",
    bad: true,
    note: h("small", {}, "The partitions keep their former replicas."),
    act: async () => {
      const done = await post("/reassignments/cancel", one ? { topic: one.topic, partition: one.partition } : {});
      toast(`cancelled ${number(done.cancelled)} reassignment${done.cancelled === 1 ? "" : "s"}`);
      await look();
    },
  });
}

function unthrottle(look) {
  ask("Remove the throttles of replication?", [], {
    verb: "Remove throttles",
    note: h("small", {}, "The rates of all brokers and the throttled replicas of all topics are reset."),
    act: async () => {
      await post("/reassignments/unthrottle", {});
      toast("removed the throttles");
      await look();
    },
  });
}

async function plan(brokers, look) {
  const { rows } = await get("/topics");
  ask("Reassign partitions", [
    rows.length > 500 ? field("Topic", "topic", { required: true, spellcheck: "false" }) : choice("Topic", "topic", rows.map(([name]) => [name, name]), rows[0]?.[0]),
    h("fieldset", {}, h("legend", {}, "Brokers that get the replicas"), brokers.map((id) => h("label", { class: "line" }, h("input", { type: "checkbox", name: `broker-${id}`, checked: true }), h("span", {}, `broker ${id}`)))),
    h("div", { class: "fields" },
      field("Replication factor", "replication_factor", { type: "number", min: 1, max: brokers.length, placeholder: "unchanged", title: `a number from 1 to ${brokers.length}, or empty` }),
      field("Throttle in bytes/s", "throttle", { type: "number", min: 1, placeholder: "none", title: "a number from 1 on, or empty" })),
  ], {
    verb: "Preview",
    why: rows.length ? null : "the cluster has no topics",
    note: h("small", {}, "The replicas are spread over the brokers and their racks. Nothing is moved before the preview is confirmed."),
    act: async (data) => {
      const chosen = brokers.filter((id) => data[`broker-${id}`]);
      if (!chosen.length) throw new Error("Brokers: select at least one");
      const found = await post("/reassignments/plan", { topics: [data.topic], brokers: chosen, replication_factor: data.replication_factor });
      preview(data, found.rows, look);
    },
  });
}

function preview({ topic, throttle }, rows, look) {
  const moved = rows.filter(([, , before, after]) => String(before) !== String(after));
  dialog((close) => {
    const trouble = h("div", { class: "error", role: "alert", hidden: moved.length > 0 }, "The partitions have these replicas already.");
    const doing = h("button", { class: "main", disabled: !moved.length, onclick: execute }, "Reassign");
    async function execute() {
      doing.disabled = true;
      try {
        const done = await post("/reassignments", { rows: moved, throttle });
        toast(`moving ${number(done.moving)} partition${done.moving === 1 ? "" : "s"}`);
        close();
        await look();
      } catch (error) {
        trouble.textContent = error.message;
        trouble.hidden = false;
        doing.disabled = false;
      }
    }
    return h("div", { class: "body" }, h("h2", {}, `Reassign ${topic}`),
      h("small", {}, `${number(moved.length)} of ${number(rows.length)} partitions move${throttle ? `, each broker copies up to ${bytes(Number(throttle))}/s` : ""}.`),
      moved.length > 0 && table("Plan", [
        { name: "Partition", class: "id", cell: (r) => r[1] },
        { name: "Replicas", class: "mono", cell: (r) => r[2].join(" ") },
        { name: "New replicas", class: "mono", cell: (r) => r[3].join(" ") },
      ], moved.slice(0, 500)), trouble,
      h("div", { class: "ends" }, h("button", { onclick: close }, "Cancel"), doing));
  }, { label: "Preview" });
}
