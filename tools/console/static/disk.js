// A topic on disk: each log drawn to scale, with the progress of the cleaner.

import { get, post, every, part } from "./api.js";
import { h, bytes, number, put, span, table, tag, time, toast } from "./dom.js";

const STATES = {
  clean: "clean",
  dirty: "dirty",
  kept: "kept",
  active: "active segment",
  young: "not to be cleaned yet",
  expired: "deleted at the next check",
};

export async function disk(view, signal, name) {
  let first = 0;
  const note = h("small", { role: "status" });
  const legend = h("div", { class: "buttons" });
  const place = h("div", { class: "logs" });
  const more = h("button", { hidden: true }, "Next partitions");
  view.append(h("div", { class: "head" }, note, h("span", { class: "grow" }), legend), place, h("div", {}, more));
  const cards = new Map();

  async function look() {
    const now = await get(`/topics/${part(name)}/disk?first=${first}`, signal);
    note.textContent = now.logs.length ? `logs of broker ${now.broker}, drawn to scale` : `broker ${now.broker} has no log of this topic`;
    const seen = new Set(now.logs.flatMap((log) => log.segments.map((one, at) => stateOf(log, at))));
    legend.replaceChildren(...Object.keys(STATES).filter((state) => seen.has(state)).map((state) => h("span", { class: `key ${state}` }, STATES[state])),
      ...([...cards.values()].some((card) => card.hasTombstones) ? [h("span", { class: "key tombstones" }, "share of tombstones")] : []));
    for (const [partition, card] of cards) if (!now.logs.some((log) => log.partition === partition)) { card.element.remove(); cards.delete(partition); }
    for (const log of now.logs) {
      if (!cards.has(log.partition)) cards.set(log.partition, new LogCard(name, place, look));
      cards.get(log.partition).show(log, now.now);
    }
    more.hidden = now.next === null && first === 0;
    more.textContent = now.next === null ? "First partitions" : "Next partitions";
    more.onclick = () => { first = now.next ?? 0; look(); };
  }

  await look();
  every(1, signal, look);
}

function stateOf(log, at) {
  const segment = log.segments[at];
  const isLast = at === log.segments.length - 1;
  if (segment.base <= log.expires_below) return "expired";
  if (isLast && !(log.cleaner && segment.base < log.cleaner.first_uncleanable_offset)) return "active";
  if (!log.cleaner) return "kept";
  return segment.base < log.cleaner.first_dirty_offset ? "clean" : segment.base < log.cleaner.first_uncleanable_offset ? "dirty" : "young";
}

class LogCard {
  constructor(topic, place, look) {
    this.head = h("header");
    this.strip = h("div", { class: "strip", role: "img" });
    this.ends = h("div", { class: "scale" });
    this.cleaning = h("div", { class: "cleaning" });
    this.details = h("details", {}, h("summary", {}, "Files"), this.files = h("div"));
    this.compact = h("button", {
      onclick: async () => {
        this.compact.disabled = true;
        try {
          const done = await post(`/topics/${part(topic)}/compact/${this.log.partition}`, {});
          const back = done.passes.reduce((sum, pass) => sum + pass.reclaimed_bytes, 0);
          toast(done.passes.length ? `partition ${this.log.partition}: ${bytes(back)} given back` : "there was nothing to clean");
        } catch (error) {
          toast(error.message);
        } finally {
          this.compact.disabled = false;
          await look().catch(() => {});
        }
      },
    }, "Compact now");
    this.counts = new Map();
    this.next = 0;
    this.count = h("button", { onclick: () => this.countTombstones(topic) }, "Count tombstones");
    this.element = h("section", { class: "card" }, this.head, h("div", { class: "pad" }, this.strip, this.ends, this.cleaning, this.details));
    place.append(this.element);
  }

  show(log, now) {
    [this.log, this.now] = [log, now];
    const cleaner = log.cleaner;
    if (cleaner?.first_dirty_offset !== this.dirtyFrom) {  // cleaned since, so the counts are outdated
      this.dirtyFrom = cleaner?.first_dirty_offset;
      this.counts.clear();
      this.next = 0;
      this.count.textContent = "Count tombstones";
    }
    const total = log.segments.reduce((sum, one) => sum + Math.max(one.size, 1), 0);
    put(this.head, h("h2", {}, `Partition ${log.partition}`),
      h("small", {}, `${bytes(log.size)} in ${number(log.segments.length + log.earlier)} segment${log.segments.length + log.earlier === 1 ? "" : "s"}${log.earlier ? `, the newest ${log.segments.length} drawn` : ""}`),
      cleaner && tag(`${Math.round(100 * cleaner.dirty_ratio)} % dirty`, cleaner.dirty_ratio > 0.5 ? "warn" : "good"),
      cleaner?.uncleanable && tag(cleaner.uncleanable, "bad"), h("span", { class: "grow" }), cleaner && this.count, cleaner && this.compact);
    const blocks = log.segments.map((one, at) => {
      const block = h("i", { class: stateOf(log, at), title: `${one.base}: ${bytes(one.size)}, ${STATES[stateOf(log, at)]}${this.tombstones(one)}` });
      const counted = this.counted(one);
      if (counted?.tombstones) {
        const share = h("b", { class: "tombstones" });
        share.style.height = `${Math.max(8, 100 * counted.tombstones / counted.records)}%`;
        block.append(share);
      }
      block.style.flexGrow = Math.max(one.size, 1) / total;
      return block;
    });
    this.strip.replaceChildren(...blocks);
    this.strip.setAttribute("aria-label", `Partition ${log.partition}: ${log.segments.map((one, at) => STATES[stateOf(log, at)] + this.tombstones(one)).join("; ")}`);
    this.ends.replaceChildren(h("span", {}, `from ${number(log.start)}`), h("span", {}, this.edge(log, now)), h("span", {}, `to ${number(log.end)}`));
    this.progress(cleaner);
    if (this.details.open || !this.files.firstChild) this.list(log);
  }

  // The counts of a segment, which may have grown since.
  counted(segment) {
    const found = this.counts.get(segment.base);
    return found && found.size <= segment.size ? found : undefined;
  }

  get hasTombstones() {
    return [...this.counts.values()].some((one) => one.tombstones > 0);
  }

  tombstones(segment) {
    const found = this.counted(segment);
    if (!found) return "";
    if (found.trouble) return `, ${found.trouble}`;
    return `, ${number(found.tombstones)} of ${found.counted < segment.size ? "the first " : ""}${number(found.records)} records are tombstones`;
  }

  async countTombstones(topic) {
    this.count.disabled = true;
    try {
      const found = await post(`/topics/${part(topic)}/tombstones/${this.log.partition}`, { first: this.next });
      if (this.next === 0) this.counts.clear();
      for (const one of found.segments) this.counts.set(one.base, one);
      this.next = found.next ?? 0;
      this.count.textContent = found.next === null ? "Count tombstones" : "Count on";
      const [tombs, records] = ["tombstones", "records"].map((name) => [...this.counts.values()].reduce((sum, one) => sum + one[name], 0));
      toast(`partition ${this.log.partition}: ${number(tombs)} of ${number(records)} records are tombstones${found.next === null ? "" : " so far"}`);
      this.show(this.log, this.now);
    } catch (error) {
      toast(error.message);
    } finally {
      this.count.disabled = false;
    }
  }

  edge(log, now) {
    const edges = [];
    if (log.retention_ms >= 0) {
      const oldest = log.segments[0];
      const left = oldest && oldest.modified >= 0 ? oldest.modified + log.retention_ms - now : null;
      edges.push(`kept for ${span(log.retention_ms)}${left === null || log.segments.length < 2 ? "" : left > 0 ? `, the oldest segment is deleted in ${span(left)}` : ", the oldest segment is deleted at the next check"}`);
    }
    if (log.retention_bytes >= 0) edges.push(`at most ${bytes(log.retention_bytes)}`);
    return edges.join(", ");
  }

  progress(cleaner) {
    this.cleaning.replaceChildren();
    if (!cleaner) return;
    if (cleaner.phase) {
      const done = h("i");
      done.style.width = `${Math.round(100 * cleaner.phase_done / Math.max(cleaner.phase_total, 1))}%`;
      this.cleaning.append(h("small", {}, `the cleaner is at work: ${cleaner.phase}`), h("div", { class: "bar" }, done));
    } else if (cleaner.last_pass) {
      this.cleaning.append(h("small", {}, `last cleaned in ${cleaner.last_pass.seconds.toFixed(2)} s, ${bytes(cleaner.last_pass.reclaimed_bytes)} given back; ${bytes(cleaner.reclaimed_bytes)} in all`));
    }
  }

  list(log) {
    this.files.replaceChildren(h("p", {}, h("code", {}, log.path)), table(`Files of partition ${log.partition}`, [
      { name: "Base offset", number: true, cell: (s) => number(s.base) },
      { name: "State", cell: (s) => STATES[stateOf(log, log.segments.indexOf(s))] },
      { name: "Tombstones", number: true, class: "optional", cell: (s) => (this.counted(s) ? `${this.counted(s).counted < s.size ? "≥ " : ""}${number(this.counted(s).tombstones)}` : "–") },
      { name: "Written", class: "mono optional", cell: (s) => time(s.modified) },
      ...["log", "index", "timeindex", "txnindex"].map((suffix) => ({ name: `.${suffix}`, number: true, class: suffix === "log" ? "" : "optional", cell: (s) => bytes(s.files[suffix]) })),
    ], log.segments));
  }
}
