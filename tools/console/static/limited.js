// A list that the console sends in parts: a search in all rows, and a button that loads more of them.

import { get } from "./api.js";
import { h, number } from "./dom.js";

const STEP = 1000;

export class LimitedRows {
  // The response of `path` has rows in `key`, and the `total` of rows that match. `show(response)` shows them, `also()`
  // returns further parameters.
  constructor(path, key, signal, show, also = () => ({})) {
    Object.assign(this, { path, key, signal, show, also, limit: STEP, asked: 0 });
    this.search = h("input", { type: "search", class: "search", placeholder: `Search ${key}  ( / )`, "aria-label": `Search ${key}`, autocomplete: "off", spellcheck: "false" });
    this.search.addEventListener("input", () => this.again());
    this.more = h("button", { type: "button", hidden: true, onclick: () => { this.limit += STEP; this.again(); } }, "Load more");
  }

  async look() {
    const mine = ++this.asked;
    const parameters = new URLSearchParams({ limit: this.limit, search: this.search.value.trim(), ...this.also() });
    const now = await get(`${this.path}?${parameters}`, this.signal);
    if (mine !== this.asked) return;  // the search has changed since
    this.more.hidden = now[this.key].length >= now.total;
    this.show(now);
  }

  // The next periodic look repeats a request that failed.
  again() {
    this.look().catch(() => {});
  }

  counted(now, one) {
    const rows = now[this.key].length;
    return `${rows < now.total ? `${number(rows)} of ` : ""}${number(now.total)} ${one}${now.total === 1 ? "" : "s"}`;
  }
}
