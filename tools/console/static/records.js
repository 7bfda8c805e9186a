// Records: the newest, from a position on, searched, live; a single record, a new one, and files of many.

import { get, post, lines, part, download } from "./api.js";
import { h, action, ask, bytes, choice, dialog, field, number, time, toast } from "./dom.js";
import { TOPIC_NAME } from "./topics.js";

const MOST = 1000;
const FORMS = { avro: "Avro", protobuf: "Protobuf", json: "JSON", text: "Text", hex: "Hex" };

export async function records(view, signal, name, facts) {
  const remembered = sessionStorage.getItem("partition") ?? "";
  sessionStorage.removeItem("partition");
  const few = facts.rows.length <= 500;
  const all = [["", "all"], ...facts.rows.map(([index]) => [String(index), String(index)])];
  const from = choice("From", "from", [["latest", "Latest"], ["earliest", "Earliest"], ["offset", "Offset"], ["time", "Time"]], "latest");
  const offset = field("Offset", "offset", { type: "number", min: 0, value: 0, title: "a number from 0 on" });
  const when = field("Time", "time", { type: "datetime-local", step: 1 });
  const follow = h("button", { type: "button", "aria-pressed": "false" }, "Follow");
  const form = h("form", { class: "card pad fields", role: "search", "aria-label": "Search records", novalidate: true },
    few ? choice("Partition", "partition", all, remembered) : field("Partition", "partition", { type: "number", min: 0, value: remembered, placeholder: "all" }),
    from, offset, when,
    field("Key", "key", { spellcheck: "false" }),
    field("Contains", "text", { type: "search", spellcheck: "false" }),
    field("JSON path", "path", { placeholder: "$.user.id >= 7", spellcheck: "false", title: "$.a.b[0] exists, or a comparison with =, !=, <, <=, > or >=" }),
    field("Header", "header", { placeholder: "name = value", spellcheck: "false", title: "name, or name = value" }),
    choice("Limit", "limit", [["50", "50"], ["100", "100"], ["500", "500"]], "50"),
    h("div", { class: "buttons" }, h("button", { class: "main" }, "Search"), follow,
      h("button", { type: "button", onclick: () => produce(name, null, again) }, "Produce"),
      h("button", { type: "button", onclick: () => exported(name, query) }, "Export")));
  const status = h("small", { role: "status" });
  const more = h("button", { type: "button", hidden: true }, "Load more");
  const [previous, next] = [h("button", { type: "button", disabled: true }, "Previous"), h("button", { type: "button", disabled: true }, "Next")];
  const warning = h("div", { class: "error", role: "alert", hidden: true });
  const body = h("tbody");
  const columns = [["Partition", "n"], ["Offset", "n"], ["Time", ""], ["Key", ""], ["Value", ""], ["Size", "n"]];
  const place = h("div", { class: "card records", tabindex: 0, role: "region", "aria-label": `Records of ${name}` },
    h("table", { "aria-label": `Records of ${name}` },
      h("thead", {}, h("tr", {}, columns.map(([title, style]) => h("th", { scope: "col", class: style || null }, title)))), body));
  view.append(form, h("div", { class: "head" }, status, h("span", { class: "grow" }), more, previous, next), warning, place);
  let reading = new AbortController();
  let looked = 0;
  let pages = [];  // the positions of this page and of the pages before it
  let searched = new URLSearchParams();  // which a change of the form does not affect before the next search
  signal.addEventListener("abort", () => reading.abort());

  function fit() {
    offset.hidden = from.lastChild.value !== "offset";
    when.hidden = from.lastChild.value !== "time";
  }

  function query() {
    const data = new FormData(form);
    const asked = new URLSearchParams();
    for (const term of ["partition", "key", "text", "path", "header", "limit"]) if (data.get(term)) asked.set(term, data.get(term));
    let begin = data.get("from");
    if (begin === "offset") begin = `offset:${data.get("offset") || 0}`;
    if (begin === "time") begin = `time:${new Date(data.get("time") || 0).getTime()}`;
    asked.set("from", begin);
    return asked;
  }

  async function read(extra = {}, keep = false) {
    reading.abort();
    reading = new AbortController();
    const mine = reading.signal;
    const live = extra.follow === "1";
    warning.hidden = true;
    if (!keep) { body.replaceChildren(); looked = 0; }
    const before = looked;
    for (const button of [more, previous, next]) button.disabled = true;
    more.hidden = true;
    follow.setAttribute("aria-pressed", String(live));
    let [shown, skipped] = [body.children.length, 0];
    status.textContent = "reading…";
    const asked = new URLSearchParams({ ...Object.fromEntries(searched), ...extra });
    try {
      for await (const line of lines(`/topics/${part(name)}/records?${asked}`, mine)) {
        if (mine.aborted) return;
        if (line.error) throw new Error(line.error);
        if (line.leaderless) {
          warning.textContent = `Not read, as there is no leader: partition${line.of === 1 ? "" : "s"} ${line.leaderless.join(", ")}${line.of > line.leaderless.length ? "…" : ""}`;
          warning.hidden = false;
        }
        const rows = (line.rows ?? []).map((record) => row(name, record, live, again));
        if (live) { body.prepend(...rows.reverse()); while (body.children.length > MOST) body.lastChild.remove(); } else body.append(...rows);
        shown += rows.length;
        skipped += line.skipped ?? 0;
        if (line.scanned !== undefined) looked = before + line.scanned;
        if (line.done) {
          const pageNumber = pages.length > 1 ? `page ${number(pages.length)}: ` : "";
          status.textContent = `${pageNumber}${shown ? number(shown) : "no"} record${shown === 1 ? "" : "s"} of ${number(looked)} read${line.late ? ", not all that were searched" : ""}`;
          // A search that has ended before the limit continues in the same page.
          const limit = Number(searched.get("limit"));
          more.hidden = !line.next || (shown > 0 && shown % limit === 0);
          more.disabled = false;
          more.onclick = () => read({ from: line.next }, true);
          next.disabled = !line.next;
          next.onclick = () => turn([...pages, line.next]);
          previous.disabled = pages.length < 2;
          previous.onclick = () => turn(pages.slice(0, -1));
        } else if (line.scanned !== undefined) {
          status.textContent = `${number(shown)} records of ${number(looked)} read${live ? ", following" : "…"}${skipped ? `, ${number(skipped)} skipped: more than the page can show` : ""}`;
        }
      }
    } catch (error) {
      if (mine.aborted) return;
      status.textContent = "";
      warning.textContent = error.message;
      warning.hidden = false;
    }
    follow.setAttribute("aria-pressed", "false");
  }

  function turn(to) {
    pages = to;
    return read(to.at(-1) === null ? {} : { from: to.at(-1) });
  }

  function search() {
    searched = query();
    return turn([null]);
  }

  // Read again from the first page, after a change; a live page shows new records anyway.
  function again() {
    if (follow.getAttribute("aria-pressed") !== "true") search();
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  from.addEventListener("change", fit);
  follow.addEventListener("click", () => {
    if (follow.getAttribute("aria-pressed") === "true") { reading.abort(); follow.setAttribute("aria-pressed", "false"); status.textContent = "stopped"; return; }
    [pages, searched] = [[null], query()];
    read({ follow: "1", from: "latest" });
  });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = document.activeElement.closest("tr");
    const to = at && body.contains(at) ? (step > 0 ? at.nextSibling : at.previousSibling) : body.firstChild;
    to?.querySelector("button").focus();
  });

  fit();
  search();
}

// A file with many records, of the present search.
function exported(name, query) {
  ask(`Export records of ${name}`, field("Maximum number of records", "most", { type: "number", min: 1, max: 100000, value: 10000, required: true, autofocus: true, title: "a number from 1 to 100,000" }), {
    verb: "Export",
    note: h("small", {}, "The records of the present search, up to 256 MB, as lines of JSON, which barnabas produce --json reads. Keys and values are not decoded. From Latest these are the last records of each partition."),
    act: async ({ most }) => {
      const asked = query();
      asked.delete("limit");
      asked.set("most", most);
      await download(null, `/topics/${part(name)}/export?${asked}`);
    },
  });
}

function shown(data) {
  if (data.kind === "null") return h("span", { class: "none" }, "null");
  if (data.kind === "empty") return h("span", { class: "none" }, "empty");
  return [data.kind === "text" ? null : h("span", { class: "kind" }, data.kind), h("bdi", {}, data.text), data.cut && "…"];
}

function row(topic, record, fresh, again) {
  const open = () => one(topic, record.p, record.o, again);
  return h("tr", { class: fresh ? "fresh" : null, "data-open": "", onclick: open },
    h("td", { class: "n", "data-label": "Partition" }, record.p),
    h("td", { class: "n", "data-label": "Offset" }, h("button", { class: "link", "aria-label": `Record ${record.p}:${record.o}`, onclick: (event) => { event.stopPropagation(); open(); } }, String(record.o))),
    h("td", { class: "mono time", "data-label": "Time" }, time(record.t)),
    h("td", { class: "mono cut", "data-label": "Key" }, shown(record.key)),
    h("td", { class: "mono wide", "data-label": "Value" }, shown(record.value)),
    h("td", { class: "n", "data-label": "Size" }, bytes(record.value.size)));
}

async function one(topic, partition, offset, again) {
  const record = await get(`/topics/${part(topic)}/records/${partition}/${offset}`).catch((error) => { toast(error.message); });
  if (!record) return;
  const title = `${topic}, partition ${partition}, offset ${offset}`;
  const tooLarge = record.key.size >= 0 && record.key.cut;
  dialog((close) => h("div", { class: "body" }, h("h2", {}, title),
    h("dl", { class: "facts" },
      h("dt", {}, "Time"), h("dd", {}, time(record.t)),
      h("dt", {}, "Key"), h("dd", { class: "mono" }, keyForm(record.key), schemaId(record.key)),
      record.headers.flatMap((header) => [h("dt", {}, h("small", {}, "header "), h("bdi", {}, header.key.text)), h("dd", { class: "mono" }, shown(header.value))]),
      h("dt", {}, "Value"), h("dd", {}, record.value.size < 0 ? h("span", { class: "none" }, "null") : `${bytes(record.value.size)}${record.value.cut ? ", the beginning of it" : ""}`, schemaId(record.value))),
    record.value.trouble && h("div", { class: "error" }, record.value.trouble),
    forms(record.value.forms),
    h("div", { class: "ends" },
      record.value.size >= 0 && h("a", { class: "button", download: "", href: `/api/topics/${part(topic)}/records/${partition}/${offset}/value`, onclick: (e) => download(e, `/topics/${part(topic)}/records/${partition}/${offset}/value`) }, "Download"),
      h("span", { class: "grow" }),
      action("Replay", () => { close(); produce(topic, record, again); }, { why: tooLarge ? "the key is too large" : null }),
      h("button", { class: "main", onclick: close, autofocus: true }, "Close"))), { label: title });
}

const schemaId = (data) => (data.schema_id === null || data.schema_id === undefined ? null
  : [" ", h("a", { class: "tag", href: `#/schema-ids/${data.schema_id}` }, `schema id ${data.schema_id}`)]);

// A key as its schema reads it, if there is one for it.
const keyForm = (key) => {
  const kind = ["avro", "protobuf"].find((one) => key.forms[one]);
  return kind ? [h("span", { class: "kind" }, kind), h("bdi", {}, key.forms[kind].slice(0, 1000))] : shown(key);
};

function forms(found) {
  const kinds = Object.keys(found);
  if (!kinds.length) return null;
  const text = h("pre", { tabindex: 0, "aria-label": "Value" });
  const buttons = kinds.map((kind) => h("button", { type: "button", onclick: () => choose(kind) }, FORMS[kind] ?? kind));
  function choose(kind) {
    text.textContent = found[kind];
    text.className = kind;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(kinds[i] === kind)));
  }
  choose(kinds[0]);
  return [h("div", { class: "buttons" }, buttons), text];
}

// A new record; with `original` it starts as a copy. Values that cannot be edited are sent unchanged.
function produce(topic, original, again) {
  const kinds = [["text", "text"], ["base64", "base64"], ["null", "null"]];
  const [inKey, inValue] = [/[\r\n]/, /\r/];  // characters that the fields would change
  const isText = (data, lost) => !data || (data.raw !== null && !lost.test(data.raw));
  const kindOf = (data, lost) => (isText(data, lost) ? "text" : data.size < 0 ? "null" : "base64");
  const textOf = (data, lost) => (data ? (isText(data, lost) ? data.raw : data.base64 ?? "") : "");
  const isLine = (raw) => raw !== null && raw === raw.trim() && !/[\r\n]/.test(raw);
  const large = original && original.value.size >= 0 && original.value.cut;
  const value = h("textarea", { name: "value", rows: 7, spellcheck: "false", autofocus: true });
  value.value = textOf(original?.value, inValue);
  const headers = h("textarea", { name: "headers", rows: 2, placeholder: "name: value", spellcheck: "false" });
  const plain = (original?.headers ?? []).filter(({ key, value }) => key.raw && isLine(key.raw) && !key.raw.includes(":") && isLine(value.raw));
  const left = (original?.h ?? 0) - plain.length;
  headers.value = plain.map((header) => `${header.key.raw}: ${header.value.raw}`).join("\n");
  ask(original ? `Replay ${original.p}:${original.o}` : `Produce to ${topic}`, [
    h("div", { class: "fields" },
      field("Topic", "topic", { ...TOPIC_NAME, value: topic }),
      field("Partition", "partition", { type: "number", min: 0, placeholder: "by the key", title: "a number from 0 on, or empty for the partition of the key" })),
    h("div", { class: "fields" }, field("Key", "key", { value: textOf(original?.key, inKey), spellcheck: "false" }),
      choice("Key format", "keyKind", kinds, kindOf(original?.key, inKey))),
    large ? h("div", {}, `The value, ${bytes(original.value.size)}, is produced unchanged.`)
      : [h("label", {}, h("span", {}, "Value"), value), choice("Value format", "valueKind", kinds, kindOf(original?.value, inValue))],
    h("label", {}, h("span", {}, "Headers, one name: value per line"), headers),
  ], {
    verb: "Produce",
    small: false,
    note: left > 0 && h("small", {}, `${number(left)} header${left === 1 ? " is" : "s are"} not copied: only short lines of text can be edited.`),
    act: async (data) => {
      const given = (kind, text) => (kind === "null" ? null : { [kind]: text.replaceAll("\r\n", "\n") });
      const body = {
        partition: data.partition || null,
        key: data.key === "" && data.keyKind === "text" && !(original?.key.kind === "empty") ? null : given(data.keyKind, data.key),
        headers: data.headers.split(/\r?\n/).filter((line) => line.trim()).map((line) => {
          const at = line.indexOf(":");
          if (at < 1) throw new Error(`${line}: expected name: value`);
          return { key: line.slice(0, at).trim(), value: { text: line.slice(at + 1).trim() } };
        }),
      };
      if (large) body.copy = { topic, partition: original.p, offset: original.o };
      else body.value = given(data.valueKind, data.value);
      const done = await post(`/topics/${part(data.topic)}/records`, body);
      toast(`produced to ${data.topic}, partition ${done.partition}, offset ${done.offset}`);
      if (data.topic === topic) again?.();
    },
  });
}
