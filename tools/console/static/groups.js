// Groups, and a single group: members, lag over time, resets of offsets.

import { get, post, every, part } from "./api.js";
import { h, ask, choice, compact, dialog, field, number, table, tag, toast } from "./dom.js";
import { List } from "./list.js";
import { Plot } from "./plot.js";

const tone = (state) => ({ Stable: "good", Empty: null, Dead: "bad" }[state] ?? (state === "Empty" ? null : "warn"));

export async function groups(view, signal) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search groups  ( / )", "aria-label": "Search groups", autocomplete: "off" });
  const count = h("small", { role: "status" });
  let all = [];
  const list = new List("Groups", [
    { name: "Group", class: "name", cell: (g) => h("a", { href: `#/groups/${part(g.id)}` }, h("bdi", {}, g.id)) },
    { name: "State", cell: (g) => tag(g.state || "unknown", tone(g.state)) },
    { name: "Type", class: "optional", cell: (g) => [g.type || "classic", g.protocol && !["consumer", g.type].includes(g.protocol) ? `, ${g.protocol}` : ""] },
  ], "no group");
  view.append(h("div", { class: "head" }, h("h1", {}, "Groups"), count, h("span", { class: "grow" }), search), list.element);
  function show() {
    const wanted = search.value.trim().toLowerCase();
    const shown = all.filter((g) => g.id.toLowerCase().includes(wanted));
    count.textContent = `${number(shown.length)} groups`;
    list.set(shown);
  }
  search.addEventListener("input", show);
  const look = async () => { all = (await get("/groups", signal)).groups; show(); };
  await look();
  every(4, signal, look);
}

const card = (name, content) => h("section", { class: "card" }, h("header", {}, h("h2", {}, name)), content);

export async function group(view, signal, id) {
  const plot = new Plot("Lag", [{ name: "lag", class: "a" }], compact);
  const path = `/groups/${part(id)}`;
  let now = await get(`${path}/lag`, signal);
  const state = h("span");
  const facts = h("small");
  const members = h("div");
  // A member by its client id, and by the end of its own where others have the same.
  const called = (client, member) => (!client ? "–" : now.type === "streams" ? thread(client) : [h("bdi", { title: member }, client),
    now.members.filter((m) => m.client === client).length > 1 && h("small", { class: "mono" }, ` …${member.slice(-4)}`)]);
  const isShare = now.type === "share";  // members of a share group have no partitions of their own
  const isStreams = now.type === "streams";
  const topology = h("div");
  const list = new List(`Lag of ${id}`, [
    { name: "Topic", class: "name", cell: (r) => h("a", { href: `#/topics/${part(r[0])}` }, r[0]) },
    { name: "Partition", number: true, cell: (r) => r[1] },
    { name: isShare ? "Start offset" : "Committed", number: true, class: "optional", cell: (r) => number(r[2]) },
    ...(isShare ? [] : [{ name: "End", number: true, class: "optional", cell: (r) => number(r[3]) }]),
    { name: "Lag", number: true, cell: (r) => number(r[4]) },
    ...(isShare ? [] : [{ name: "Member", class: "optional", cell: (r) => called(r[5], r[6]) }]),
  ], isShare ? "no start offsets" : "nothing is committed");
  view.append(
    h("div", { class: "head" }, h("div", { class: "crumb" }, h("a", { href: "#/groups" }, "Groups"), " /"),
      h("h1", {}, h("bdi", {}, id)), state, h("span", { class: "grow" }), h("button", { onclick: () => reset(id, path, now, look) }, "Reset offsets…")),
    facts, h("div", { class: "grid" }, plot.element, isStreams ? card("Topology", topology) : card("Members", members)),
    ...(isStreams ? [card("Members and their tasks", members)] : []), list.element);

  async function look() {
    now = await get(`${path}/lag`, signal);
    state.replaceChildren(tag(now.state, tone(now.state)));
    const epochs = isStreams ? `, group epoch ${now.group_epoch}, target assignment epoch ${now.target_assignment_epoch}, topology epoch ${now.topology_epoch}` : "";
    facts.textContent = `${now.type}${now.assignor ? `, ${now.assignor}` : ""}, coordinator ${now.coordinator}${epochs}`;
    if (isStreams) topology.replaceChildren(subtopologies(now.topology));
    members.replaceChildren(isStreams ? streamsMembers(now.members) : table("Members", [
      { name: "Client", class: "cut", cell: (m) => called(m.client, m.id) },
      { name: "Host", class: "mono optional", cell: (m) => m.host },
      { name: "Instance", class: "optional cut", cell: (m) => h("bdi", {}, m.instance ?? "–") },
      { name: "Partitions", number: true, cell: (m) => number(m.partitions) },
    ], now.members, { empty: "no members" }));
    list.set(now.rows);
    plot.add(Date.now(), [now.lag]);
  }
  await look();
  every(2, signal, look);
}

// A client id of Kafka Streams, `application-process-StreamThread-1-consumer`, by its process and thread.
const thread = (client) => {
  const [, process, at] = /([0-9a-f]{8})-[0-9a-f-]{27}-StreamThread-(\d+)-consumer$/.exec(client) ?? [];
  return process ? h("bdi", { title: client }, `${process} thread ${at}`) : h("div", { class: "cut" }, h("bdi", { title: client }, client));
};

function streamsMembers(members) {
  const tasks = (kind) => (m) => (m[kind].count ? [m[kind].names.join(" "), m[kind].count > m[kind].names.length && ` +${number(m[kind].count - m[kind].names.length)}`] : "–");
  return table("Members", [
    { name: "Client", cell: (m) => [thread(m.client), !m.is_reconciled && [" ", tag("reconciling", "warn")]] },
    { name: "Process", class: "mono optional cut", cell: (m) => h("bdi", { title: m.process }, m.process) },
    { name: "Host", class: "mono optional", cell: (m) => m.host },
    { name: "Active", class: "mono", cell: tasks("active") },
    { name: "Standby", class: "mono", cell: tasks("standby") },
    { name: "Warm-up", class: "mono", cell: tasks("warmup") },
  ], members, { empty: "no members" });
}

function subtopologies(topology) {
  const kinds = [["source", "source"], ["repartition_source", "repartition source"], ["repartition_sink", "repartition sink"], ["changelog", "changelog"]];
  const rows = topology.flatMap((one) => kinds.filter(([kind]) => one[kind].length).map(([kind, name]) => [one.id, name, one[kind]]));
  return table("Topology", [
    { name: "Subtopology", cell: ([id]) => id },
    { name: "Kind", cell: ([, kind]) => kind },
    { name: "Topics", class: "wide", cell: ([, , topics]) => topics.map((name) => h("div", {}, h("a", { href: `#/topics/${part(name)}`, title: name }, name))) },
  ], rows, { empty: "the members have not sent a topology" });
}

function reset(id, path, now, look) {
  const topics = [...new Set(now.rows.map((row) => row[0]))];
  ask(`Where ${id} begins again`, [
    choice("Topic", "topic", [["", "all that it has committed"], ...topics.map((name) => [name, name])], ""),
    choice("To", "kind", [["earliest", "the first record"], ["latest", "the end of the log"], ["shift", "this number forward, or with − back"], ["offset", "this offset"], ["time", "this time"]], "earliest"),
    field("Number, offset", "value", { type: "number", value: 0 }),
    field("Time", "time", { type: "datetime-local", step: 1 }),
  ], {
    verb: "Preview",
    note: h("small", {}, "Nothing is changed before you have seen it. The group must have no members."),
    act: async (data) => {
      if (data.kind === "time" && !data.time) throw new Error("no time is given");
      const value = data.kind === "time" ? new Date(data.time).getTime() : data.value;
      const wanted = { kind: data.kind, topic: data.topic, value };
      preview(id, path, await post(`${path}/reset`, wanted), look);
    },
  });
}

function preview(id, path, plan, look) {
  const moved = plan.rows.reduce((sum, [, , before, after]) => sum + Math.abs(after - (before ?? after)), 0);
  dialog((close) => {
    const trouble = h("div", { class: "error", role: "alert", hidden: true });
    const set = h("button", { class: "main", disabled: !plan.rows.length, onclick: execute }, "Set offsets");
    async function execute() {
      set.disabled = true;  // a second click would shift a second time
      try {
        await post(`${path}/offsets`, { rows: plan.rows });  // the preview, even if records have arrived since
        toast("the group begins there");
        close();
        await look();
      } catch (error) {
        trouble.textContent = error.message;
        trouble.hidden = false;
      } finally {
        set.disabled = false;
      }
    }
    return h("div", { class: "body" }, h("h2", {}, `${id}: ${number(moved)} records`),
      table("Steps", [
        { name: "Topic", cell: (r) => r[0] },
        { name: "Partition", number: true, cell: (r) => r[1] },
        { name: "Committed", number: true, cell: (r) => number(r[2]) },
        { name: "New", number: true, cell: (r) => number(r[3]) },
      ], plan.rows.slice(0, 500), { empty: "the group has committed nothing" }), trouble,
      h("div", { class: "ends" }, h("button", { onclick: close }, "Cancel"), set));
  }, { label: "Preview" });
}
