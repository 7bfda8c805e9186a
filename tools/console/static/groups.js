// Groups, and a single group: members, lag over time, resets and deletions of offsets, removal of members.

import { get, post, every, part } from "./api.js";
import { h, action, ask, card, choice, compact, dialog, field, number, table, tag, toast } from "./dom.js";
import { List } from "./list.js";
import { Plot } from "./plot.js";

const tone = (state) => ({ Stable: "good", Empty: null, Dead: "bad" }[state] ?? (state === "Empty" ? null : "warn"));

// A lag with the partitions without a committed offset, which count with all their offsets.
const lagCell = (lag, uncommitted) => (uncommitted ? [number(lag), " ", h("span", { class: "tag warn", title: "partitions without a committed offset count with all their offsets" }, `${number(uncommitted)} uncommitted`)] : number(lag));

// Rows of the consumers of a topic: group, state, type, members, partitions, lag, uncommitted partitions, their lag.
export const consumerColumns = [
  { name: "Group", class: "name", sort: (g) => g[0], cell: (g) => h("a", { href: `#/groups/${part(g[0])}` }, h("bdi", {}, g[0])) },
  { name: "State", sort: (g) => g[1], cell: (g) => tag(g[1] || "unknown", tone(g[1])) },
  { name: "Type", sort: (g) => g[2], cell: (g) => g[2] || "classic" },
  { name: "Members", number: true, sort: (g) => g[3], cell: (g) => number(g[3]) },
  { name: "Partitions", number: true, sort: (g) => g[4], cell: (g) => number(g[4]) },
  { name: "Lag", number: true, sort: (g) => g[5], cell: (g) => lagCell(g[5], g[6]) },
];

export async function groups(view, signal) {
  const search = h("input", { type: "search", class: "search", placeholder: "Search groups or topics  ( / )", "aria-label": "Search groups", autocomplete: "off" });
  const count = h("small", { role: "status" });
  let [all, lags] = [[], {}];
  const of = (g) => lags[g.id] ?? [];
  const list = new List("Groups", [
    { name: "Group", class: "name", sort: (g) => g.id, cell: (g) => h("a", { href: `#/groups/${part(g.id)}` }, h("bdi", {}, g.id)) },
    { name: "State", sort: (g) => g.state, cell: (g) => tag(g.state || "unknown", tone(g.state)) },
    { name: "Type", sort: (g) => g.type, cell: (g) => [g.type || "classic", g.protocol && !["consumer", g.type].includes(g.protocol) ? `, ${g.protocol}` : ""] },
    { name: "Members", number: true, sort: (g) => of(g)[0], cell: (g) => number(of(g)[0]) },
    { name: "Topics", class: "names", sort: (g) => of(g)[2], cell: (g) => topicNames(of(g)) },
    { name: "Lag", number: true, sort: (g) => of(g)[3], cell: (g) => (of(g)[6] ? h("span", { class: "tag bad", title: of(g)[6] }, "not available") : lagCell(of(g)[3], of(g)[4])) },
  ], "no group");
  view.append(h("div", { class: "head" }, h("h1", {}, "Groups"), count, h("span", { class: "grow" }), search), list.element);
  function show() {
    const wanted = search.value.trim().toLowerCase();
    const shown = all.filter((g) => g.id.toLowerCase().includes(wanted) || of(g)[1]?.some((name) => name.toLowerCase().includes(wanted)));
    count.textContent = `${number(shown.length)} group${shown.length === 1 ? "" : "s"}`;
    list.set(shown);
  }
  // The response has five topics of each group, and topics that match the search are the first.
  async function look() {
    const wanted = search.value.trim();
    const found = (await get(`/group-lags?topic=${part(wanted)}`, signal)).groups;
    if (wanted !== search.value.trim()) return;  // the response to a later search follows
    lags = found;
    show();
  }
  let pause;
  search.addEventListener("input", () => {
    show();
    clearTimeout(pause);
    pause = setTimeout(() => look().catch(() => {}), 200);
  });
  await get("/groups", signal).then((now) => { all = now.groups; show(); });
  every(4, signal, async () => { all = (await get("/groups", signal)).groups; show(); });
  every(4, signal, look);
}

const topicNames = ([, names, total]) => (names === undefined ? "…" : total ? [names.map((name, at) => [at > 0 && ", ", h("a", { href: `#/topics/${part(name)}/consumers` }, name)]), total > names.length && h("small", {}, ` +${number(total - names.length)}`)] : "–");

export async function group(view, signal, id) {
  const plot = new Plot("Lag", [{ name: "lag", class: "a" }], compact);
  const path = `/groups/${part(id)}`;
  let now = await get(`${path}/lag`, signal);
  const state = h("span");
  const facts = h("small");
  const warning = h("div", { class: "note", hidden: true });
  const members = h("div");
  const actions = h("div", { class: "buttons" });
  // A member by its client id, and by the end of its own where others have the same.
  const called = (client, member) => (!client ? "–" : now.type === "streams" ? thread(client) : [h("bdi", { title: member }, client),
    now.members.filter((m) => m.client === client).length > 1 && h("small", { class: "mono" }, ` …${member.slice(-4)}`)]);
  const isShare = now.type === "share";  // members of a share group have no partitions of their own
  const isStreams = now.type === "streams";
  const topology = h("div");
  const list = new List(`Lag of ${id}`, [
    { name: "Topic", class: "name", sort: (r) => r[0], cell: (r) => h("a", { href: `#/topics/${part(r[0])}` }, r[0]) },
    { name: "Partition", number: true, sort: (r) => r[1], cell: (r) => r[1] },
    { name: isShare ? "Start offset" : "Committed offset", number: true, sort: (r) => r[2], cell: (r) => (r[2] === null && !isShare ? tag("none", "warn") : number(r[2])) },
    ...(isShare ? [] : [{ name: "End offset", number: true, sort: (r) => r[3], cell: (r) => number(r[3]) }]),
    { name: "Lag", number: true, sort: (r) => r[4], cell: (r) => number(r[4]) },
    ...(isShare ? [] : [{ name: "Member", sort: (r) => r[5], cell: (r) => called(r[5], r[6]) }]),
  ], isShare ? "no start offsets" : "no committed offsets");
  view.append(
    h("div", { class: "head" }, h("div", { class: "crumb" }, h("a", { href: "#/groups" }, "Groups"), " /"),
      h("h1", {}, h("bdi", {}, id)), state, h("span", { class: "grow" }), actions),
    facts, warning, h("div", { class: "grid" }, plot.element, isStreams ? card("Topology", topology) : card("Members", members)),
    ...(isStreams ? [card("Members and their tasks", members)] : []), list.element);

  let shownActions = "";
  function show() {
    const has = now.members.length ? `${number(now.members.length)} member${now.members.length === 1 ? "" : "s"}` : null;
    const owned = new Set(now.rows.filter((r) => r[6]).map((r) => r[0]));
    const topics = [...new Set(now.rows.filter((r) => r[2] !== null).map((r) => r[0]))].filter((name) => !owned.has(name) && !(isShare && has));
    const whyOffsets = topics.length ? null : has ? "has members" : "no committed offsets";
    const instances = now.members.map((m) => m.instance).filter(Boolean);
    const text = JSON.stringify([has, topics, instances]);
    if (text === shownActions) return;  // keep the buttons in place during a click
    shownActions = text;
    const why = has && `has ${has}`;
    actions.replaceChildren(
      action("Reset offsets", () => reset(id, path, now, look), { why }),
      action("Delete offsets", () => deleteOffsets(id, path, topics, look), { why: whyOffsets }),
      ...(isShare || isStreams ? [] : [action("Remove members", () => removeMembers(id, path, now.members, instances, look), { why: has ? null : "no members" })]),
      action("Delete", () => removeGroup(id, path), { why }));
  }

  async function look() {
    now = await get(`${path}/lag`, signal);
    state.replaceChildren(tag(now.state, tone(now.state)));
    const epochs = isStreams ? `, group epoch ${now.group_epoch}, target assignment epoch ${now.target_assignment_epoch}, topology epoch ${now.topology_epoch}` : "";
    facts.textContent = `${now.type}${now.assignor ? `, ${now.assignor}` : ""}, coordinator ${now.coordinator}${epochs}`;
    warning.hidden = !now.uncommitted;
    warning.textContent = `${number(now.uncommitted)} partition${now.uncommitted === 1 ? " has" : "s have"} no committed offset: ${number(now.uncommitted_lag)} of ${number(now.lag)} offsets of lag are in ${now.uncommitted === 1 ? "it" : "them"}. A member reads them with auto.offset.reset=earliest.`;
    show();
    if (isStreams) topology.replaceChildren(subtopologies(now.topology));
    members.replaceChildren(isStreams ? streamsMembers(now.members) : table("Members", [
      { name: "Client", class: "cut", cell: (m) => called(m.client, m.id) },
      { name: "Host", class: "mono", cell: (m) => m.host },
      { name: "Instance", class: "cut", cell: (m) => h("bdi", {}, m.instance ?? "–") },
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
    { name: "Process", class: "mono cut", cell: (m) => h("bdi", { title: m.process }, m.process) },
    { name: "Host", class: "mono", cell: (m) => m.host },
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

function deleteOffsets(id, path, topics, look) {
  ask(`Delete offsets of ${id}`, choice("Topic", "topic", topics.map((name) => [name, name]), topics[0]), {
    verb: "Delete offsets",
    bad: true,
    note: h("small", {}, "The offsets of all partitions of the topic are deleted. A new member then begins as auto.offset.reset defines. Topics with a member cannot be selected."),
    act: async (data) => {
      await post(`${path}/offsets/delete`, data);
      toast(`deleted the offsets for ${data.topic}`);
      await look().catch(() => {});  // the group may have had no other offsets
    },
  });
}

function removeMembers(id, path, members, instances, look) {
  ask(`Remove members of ${id}`, choice("Member", "instance", [["", `all members (${number(members.length)})`], ...instances.map((name) => [name, `static member ${name}`])], ""), {
    verb: "Remove",
    bad: true,
    note: h("small", {}, "Members that are running join the group again. A single member can be removed if it has a group.instance.id."),
    act: async (data) => {
      const done = await post(`${path}/members/remove`, { instance: data.instance || null });
      toast(`removed ${number(done.removed)} member${done.removed === 1 ? "" : "s"}`);
      await look();
    },
  });
}

function removeGroup(id, path) {
  ask(`Delete ${id}?`, field(`Enter the id ${id}`, "confirm", { required: true, autofocus: true, spellcheck: "false" }), {
    verb: "Delete",
    bad: true,
    note: h("small", {}, "The group is deleted with its offsets."),
    act: async (data) => {
      await post(`${path}/delete`, data);
      toast(`deleted ${id}`);
      location.hash = "#/groups";
    },
  });
}

function reset(id, path, now, look) {
  const topics = [...new Set(now.rows.map((row) => row[0]))];
  const value = field("Value", "value", { type: "number", value: 0, required: true, title: "a whole number" });
  const time = field("Time", "time", { type: "datetime-local", step: 1, title: "a date and a time" });
  const kind = choice("Reset to", "kind", [["earliest", "Earliest"], ["latest", "Latest"], ["shift", "Shift by"], ["offset", "Offset"], ["time", "Time"]], "earliest");
  const fit = () => {
    value.hidden = !["shift", "offset"].includes(kind.lastChild.value);
    time.hidden = kind.lastChild.value !== "time";
  };
  kind.addEventListener("change", fit);
  fit();
  ask(`Reset offsets of ${id}`, [
    choice("Topic", "topic", [["", "all topics with a committed offset"], ...topics.map((name) => [name, name])], ""),
    kind, value, time,
  ], {
    verb: "Preview",
    note: h("small", {}, "The preview shows the new offsets. Nothing is changed before it is confirmed."),
    act: async (data) => {
      if (data.kind === "time" && !data.time) throw new Error("Time: a date and a time are required");
      const at = data.kind === "time" ? new Date(data.time).getTime() : data.value;
      preview(id, path, await post(`${path}/reset`, { kind: data.kind, topic: data.topic, value: at }), look);
    },
  });
}

function preview(id, path, plan, look) {
  const moved = plan.rows.reduce((sum, [, , before, after]) => sum + Math.abs(after - (before ?? after)), 0);
  dialog((close) => {
    const trouble = h("div", { class: "error", role: "alert", hidden: true });
    const set = h("button", { class: "main", disabled: !plan.rows.length, onclick: execute }, "Reset offsets");
    async function execute() {
      set.disabled = true;  // a second click would shift a second time
      try {
        await post(`${path}/offsets`, { rows: plan.rows });  // the preview, even if records have arrived since
        toast("reset the offsets");
        close();
        await look();
      } catch (error) {
        trouble.textContent = error.message;
        trouble.hidden = false;
      } finally {
        set.disabled = false;
      }
    }
    return h("div", { class: "body" }, h("h2", {}, `Reset offsets of ${id}`), h("small", {}, `${number(plan.rows.length)} partitions, ${number(moved)} offsets in total${plan.rows.length > 500 ? "; the first 500 are shown" : ""}`),
      table("Steps", [
        { name: "Topic", cell: (r) => r[0] },
        { name: "Partition", number: true, cell: (r) => r[1] },
        { name: "Committed offset", number: true, cell: (r) => number(r[2]) },
        { name: "New offset", number: true, cell: (r) => number(r[3]) },
      ], plan.rows.slice(0, 500), { empty: "the group has no committed offsets" }), trouble,
      h("div", { class: "ends" }, h("button", { onclick: close }, "Cancel"), set));
  }, { label: "Preview" });
}
