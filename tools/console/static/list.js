// A table of any length that scrolls with the page: only the rows in sight are in it. Arrow keys, Page, Home and End move
// in it, and the heads of its columns sort it.

import { h, cell, styles } from "./dom.js";

const ROW = 36;
const MORE = 8;
const collator = new Intl.Collator("en", { numeric: true });
const chosen = new Map();  // the order of each list, which is kept while the page is open

// Columns: {name, number, class, cell(row), sort(row)}; the first cell of a row is its link. `sort` returns a text or a
// number, or null for an unknown value, which is last.
export class List {
  constructor(label, columns, empty = "nothing to show") {
    this.label = label;
    this.columns = columns;
    this.given = [];
    this.rows = [];
    this.from = -1;
    this.height = ROW;  // of a row, measured: on a narrow screen a row has several lines
    this.body = h("tbody");
    this.heads = columns.map((c) => this.head(c));
    this.table = h("table", { "aria-label": label }, h("thead", {}, h("tr", { "aria-rowindex": 1 }, this.heads)), this.body);
    this.none = h("div", { class: "empty", hidden: true }, empty);
    this.element = h("div", { class: "card virtual", tabindex: 0, role: "region", "aria-label": label }, this.table, this.none);
    this.element.addEventListener("keydown", (event) => this.key(event));
    const draw = () => {
      if (this.element.isConnected) { this.draw(); return; }
      if (this.wasShown) for (const event of ["scroll", "resize"]) removeEventListener(event, draw);
    };
    for (const event of ["scroll", "resize"]) addEventListener(event, draw, { passive: true });
  }

  head(column) {
    if (!column.name) return h("td", { class: styles(column) });
    const button = column.sort && h("button", { type: "button", class: "sort", onclick: () => this.order(column) }, column.name);
    return h("th", { scope: "col", class: styles(column) }, button ?? column.name);
  }

  // Sort by a column, numbers first in descending order, and the other way the next time.
  order(column) {
    const now = chosen.get(this.label);
    const first = column.number ? -1 : 1;
    chosen.set(this.label, { name: column.name, way: now?.name === column.name ? -now.way : first });
    this.set(this.given);
  }

  sorted(rows) {
    const by = chosen.get(this.label);
    const column = by && this.columns.find((c) => c.name === by.name);
    this.columns.forEach((c, at) => {
      if (c === column) this.heads[at].setAttribute("aria-sort", by.way > 0 ? "ascending" : "descending");
      else this.heads[at].removeAttribute("aria-sort");
    });
    if (!column) return rows;
    const known = (value) => value !== null && value !== undefined;
    const keys = new Map(rows.map((row) => [row, column.sort(row)]));
    return [...rows].sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      if (!known(a) || !known(b)) return known(b) - known(a);
      return by.way * (typeof a === "string" ? collator.compare(a, b) : a - b);
    });
  }

  set(rows) {
    this.given = rows;
    this.rows = this.sorted(rows);
    this.from = -1;
    this.none.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.draw();
  }

  // The distance of the first row from the upper edge of the window.
  get above() {
    return this.body.getBoundingClientRect().top;
  }

  draw() {
    this.wasShown ||= this.element.isConnected;
    const from = Math.min(Math.max(0, Math.floor(-this.above / this.height) - MORE), Math.max(0, this.rows.length - 1));
    const seen = Math.ceil(Math.max(innerHeight, 200) / this.height) + 2 * MORE;
    const to = Math.min(this.rows.length, from + seen);
    if (from === this.from && to === this.to) return;
    const focused = this.body.contains(document.activeElement) ? Number(document.activeElement.closest("tr").dataset.at) : null;
    const name = focused === null ? null : document.activeElement.getAttribute("aria-label");
    [this.from, this.to] = [from, to];
    const shown = this.rows.slice(from, to).map((row, i) => h("tr", { "data-at": from + i, "aria-rowindex": from + i + 2 },
      this.columns.map((c) => cell(c, row))));
    this.body.replaceChildren(this.gap(from), ...shown, this.gap(this.rows.length - to));
    this.measure(shown);
    if (focused !== null) (this.named(focused, name) ?? this.link(focused))?.focus({ preventScroll: true });
  }

  measure(shown) {
    if (!shown.length) return;
    const [first, last] = [shown[0].getBoundingClientRect(), shown.at(-1).getBoundingClientRect()];
    const height = (last.bottom - first.top) / shown.length;
    if (height < 1 || Math.abs(height - this.height) < 0.5) return;
    this.height = height;
    for (const [gap, rows] of [[this.body.firstChild, this.from], [this.body.lastChild, this.rows.length - this.to]]) {
      gap.firstChild.style.height = `${rows * height}px`;
    }
  }

  gap(rows) {
    const row = h("tr", { class: "gap", "aria-hidden": "true" }, h("td", { colspan: this.columns.length }));
    row.firstChild.style.height = `${rows * this.height}px`;
    return row;
  }

  link(at) {
    return this.body.querySelector(`tr[data-at="${at}"] a, tr[data-at="${at}"] button`);
  }

  named(at, name) {
    return name && [...this.body.querySelectorAll(`tr[data-at="${at}"] button`)].find((one) => one.getAttribute("aria-label") === name);
  }

  key(event) {
    const page = Math.max(1, Math.floor(innerHeight / this.height) - 2);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    const step = steps[event.key];
    if (step === undefined || !this.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const row = document.activeElement.closest("tr[data-at]");
    const at = Math.min(this.rows.length - 1, Math.max(0, row ? Number(row.dataset.at) + step : step > 0 ? 0 : this.rows.length - 1));
    const top = this.above + at * this.height;
    const [upper, lower] = [2 * ROW, innerHeight - 2 * this.height];  // the head of the list covers the first lines
    if (top < upper) scrollBy(0, top - upper);
    else if (top > lower) scrollBy(0, top - lower);
    this.draw();
    this.link(at)?.focus({ preventScroll: true });
  }
}
