// Elements from data. Text is always a text node, so the content of a record is shown and never executed.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Replace the content of an element.
export const put = (element, ...children) => { element.replaceChildren(); return fill(element, {}, children); };

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

export const decimal = (n) => exact.format(n);
export const number = (n) => (n === null || n === undefined ? "–" : whole.format(n));
export const compact = (n) => (n === null || n === undefined ? "–" : Math.abs(n) < 10000 ? whole.format(n) : short.format(n));

export function bytes(n) {
  if (n === null || n === undefined || n < 0) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) { n /= 1000; at++; }
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

// The date and the time in the zone of the browser.
export function time(ms) {
  if (ms < 0) return "–";
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const two = (n, width = 2) => String(n).padStart(width, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `
    + `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

export function span(ms) {
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const at = Math.max(0, units.findIndex(([, size]) => ms >= size));
  const [[name, size], smaller] = [units[ms < 1000 ? 3 : at], units[at + 1]];
  const rest = smaller && ms >= 60000 ? Math.floor((ms % size) / smaller[1]) : 0;
  return `${Math.floor(ms / size)} ${name}${rest ? ` ${rest} ${smaller[0]}` : ""}`;
}

// A sentence of the broker: text between backticks is code.
export const sentence = (text) => text.split("`").map((piece, at) => (at % 2 ? h("code", {}, piece) : piece));

export const ownBroker = document.querySelector("meta[name=own-broker]").content === "yes";

export const tag = (text, tone) => h("span", { class: tone ? `tag ${tone}` : "tag" }, text);

export function toast(text) {
  const note = h("div", {}, text);
  document.getElementById("toast").append(note);
  setTimeout(() => note.remove(), 4000);
}

// The head of a column; a column without a name has no header.
export const title = (c) => h(c.name ? "th" : "td", { scope: c.name ? "col" : null, class: styles(c) }, c.name);
export const styles = (c) => [c.number && "n", c.class].filter(Boolean).join(" ") || null;
// A cell has the name of its column, which a narrow screen shows in place of the head.
export const cell = (c, row) => h("td", { class: styles(c), "data-label": c.name || null }, c.cell(row));

// A table of few rows. Columns: {name, number, class, cell(row)}.
export function table(label, columns, rows, options = {}) {
  const body = rows.map((row) => h("tr", {}, columns.map((c) => cell(c, row))));
  const shown = rows.length ? h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, columns.map(title))), h("tbody", {}, body))
    : h("div", { class: "empty" }, options.empty ?? "nothing to show");
  return h("div", { class: "scroll", ...(rows.length ? { tabindex: 0, role: "region", "aria-label": label } : {}) }, shown);
}

// A button. With a reason why it cannot succeed it is disabled, and shows the reason.
export const action = (label, run, { why = null, style = null } = {}) => h("button", {
  type: "button", class: [style, why && "action"].filter(Boolean).join(" ") || null, disabled: Boolean(why), title: why, "aria-label": why ? label : null, onclick: run,
}, label, why && h("small", {}, why));

// A share of a whole, from 0 to 1.
export function bar(share, tone) {
  const fill = h("i");
  fill.style.width = `${Math.round(100 * Math.min(1, share))}%`;
  return h("div", { class: tone ? `bar ${tone}` : "bar" }, fill);
}

export const card = (name, ...content) => h("section", { class: "card" }, h("header", {}, h("h2", {}, name)), content);

// A dialog; `build(close)` returns its content. Closing removes it from the page.
export function dialog(build, { small = false, label } = {}) {
  const shown = h("dialog", { class: small ? "small" : null, "aria-label": label });
  shown.append(build(() => shown.close()));
  shown.addEventListener("close", () => shown.remove());
  shown.addEventListener("click", (event) => { if (event.target === shown) shown.close(); });
  document.body.append(shown);
  shown.showModal();
  return shown;
}

// A form in a dialog: `act(data)` submits it; the form remains if it returns false or throws, which is shown. A field with a wrong format
// shows its title, which describes the format. With a reason `why` it cannot succeed, its button is disabled.
export function ask(title, fields, { act, verb = "Save", bad = false, note = null, small = true, why = null } = {}) {
  return dialog((close) => {
    const trouble = h("div", { class: "error", role: "alert", hidden: !why }, why);
    const doing = h("button", { class: bad ? "bad" : "main", disabled: Boolean(why) }, verb);
    const form = h("form", { method: "dialog", novalidate: true }, h("h2", {}, title), note, fields, trouble,
      h("div", { class: "ends" }, h("button", { type: "button", onclick: close }, "Cancel"), doing));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      doing.disabled = true;
      try {
        for (const input of form.elements) if (!input.checkValidity()) throw invalid(input);
        trouble.hidden = true;
        if (await act(Object.fromEntries(new FormData(form))) !== false) close();
      } catch (error) {
        trouble.textContent = error.message;
        trouble.hidden = false;
      } finally {
        doing.disabled = false;
      }
    });
    return form;
  }, { small, label: title });
}

function invalid(input) {
  input.focus();
  const name = input.closest("label")?.querySelector("span")?.textContent ?? input.name;
  const why = input.validity.valueMissing ? "a value is required" : input.title || input.validationMessage;
  return new Error(`${name}: ${why}`);
}

export const field = (label, name, attributes = {}) => h("label", {}, h("span", {}, label), h("input", { name, autocomplete: "off", ...attributes }));
export const choice = (label, name, options, chosen, attributes = {}) => h("label", {}, h("span", {}, label),
  h("select", { name, ...attributes }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
