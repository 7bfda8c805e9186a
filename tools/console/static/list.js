// A table of any length: only the rows in sight are in the page. Arrow keys, Page, Home and End move in it.

import { h, title } from "./dom.js";

const ROW = 36;
const MORE = 8;

// Columns: {name, number, class, cell(row)}; the first cell of a row is its link.
export class List {
  constructor(label, columns, empty = "nothing to show") {
    this.columns = columns;
    this.rows = [];
    this.from = -1;
    this.body = h("tbody");
    this.count = h("table", { "aria-label": label },
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, columns.map(title))), this.body);
    this.none = h("div", { class: "empty", hidden: true }, empty);
    this.element = h("div", { class: "card scroll tall virtual", tabindex: 0, role: "region", "aria-label": label }, this.count, this.none);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
  }

  set(rows) {
    this.rows = rows;
    this.from = -1;
    this.none.hidden = rows.length > 0;
    this.count.setAttribute("aria-rowcount", rows.length + 1);
    this.draw();
  }

  draw() {
    const from = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MORE);
    const seen = Math.ceil(Math.max(this.element.clientHeight, 200) / ROW) + 2 * MORE;
    const to = Math.min(this.rows.length, from + seen);
    if (from === this.from && to === this.to) return;
    const focused = this.body.contains(document.activeElement) ? Number(document.activeElement.closest("tr").dataset.at) : null;
    [this.from, this.to] = [from, to];
    const shown = this.rows.slice(from, to).map((row, i) => h("tr", { "data-at": from + i, "aria-rowindex": from + i + 2 },
      this.columns.map((c) => h("td", { class: styles(c) }, c.cell(row)))));
    this.body.replaceChildren(this.gap(from), ...shown, this.gap(this.rows.length - to));
    if (focused !== null) this.link(focused)?.focus({ preventScroll: true });
  }

  gap(rows) {
    const row = h("tr", { class: "gap", "aria-hidden": "true" }, h("td", { colspan: this.columns.length }));
    row.firstChild.style.height = `${rows * ROW}px`;
    return row;
  }

  link(at) {
    return this.body.querySelector(`tr[data-at="${at}"] a, tr[data-at="${at}"] button`);
  }

  key(event) {
    const page = Math.floor(this.element.clientHeight / ROW) - 2;
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    const step = steps[event.key];
    if (step === undefined || !this.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const row = document.activeElement.closest("tr[data-at]");
    const at = Math.min(this.rows.length - 1, Math.max(0, row ? Number(row.dataset.at) + step : step > 0 ? 0 : this.rows.length - 1));
    const [top, height] = [at * ROW, this.element.clientHeight - 2 * ROW];
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + height) this.element.scrollTop = top - height;
    this.draw();
    this.link(at)?.focus({ preventScroll: true });
  }
}

const styles = (column) => [column.number && "n", column.class].filter(Boolean).join(" ") || null;
