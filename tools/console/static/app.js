// The shell: which screen an address shows, the keyboard, dark and light.

import { h, svg, dialog, ownBroker } from "./dom.js";
import { overview } from "./overview.js";
import { broker, brokers, partitions } from "./brokers.js";
import { topics } from "./topics.js";
import { topic } from "./topic.js";
import { groups, group } from "./groups.js";
import { schemaId, schemas, subject } from "./schemas.js";
import { transactions } from "./transactions.js";
import { reassignments } from "./reassignments.js";
import { users } from "./users.js";
import { acls } from "./acls.js";
import { quotas } from "./quotas.js";
import { requests } from "./requests.js";

const SCREENS = [
  { path: /^\/$/, show: overview },
  { path: /^\/brokers$/, show: brokers },
  { path: /^\/brokers\/(\d+)(?:\/(\w+))?$/, show: broker },
  { path: /^\/partitions\/([\w-]+)(?:\/(\d+))?$/, show: partitions },
  { path: /^\/reassignments$/, show: reassignments },
  { path: /^\/topics$/, show: topics },
  { path: /^\/topics\/([^/]+)(?:\/(\w+))?$/, show: topic },
  { path: /^\/groups$/, show: groups },
  { path: /^\/groups\/([^/]+)$/, show: group },
  { path: /^\/schemas$/, show: schemas },
  { path: /^\/schemas\/(\d+)\/([^/]+)(?:\/(\d+))?$/, show: subject },
  { path: /^\/schema-ids\/(\d+)$/, show: schemaId },
  { path: /^\/transactions$/, show: transactions },
  { path: /^\/users$/, show: users },
  { path: /^\/acls$/, show: acls },
  { path: /^\/quotas$/, show: quotas },
  { path: /^\/requests$/, show: requests },
];
const NAV = [
  { part: "Cluster" },
  { name: "Overview", path: "/", key: "o", drawing: "M3 12h4l3-7 4 14 3-7h4" },
  { name: "Brokers", path: "/brokers", key: "b", drawing: "M4 5h16v5H4ZM4 14h16v5H4ZM8 7.5h.1M8 16.5h.1" },
  { name: "Reassignments", path: "/reassignments", key: "r", drawing: "M4 8h13l-3-3M20 16H7l3 3" },
  ...(ownBroker ? [{ name: "Requests", path: "/requests", key: "q", drawing: "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z" }] : []),
  { part: "Data" },
  { name: "Topics", path: "/topics", key: "t", drawing: "M4 6h16M4 12h16M4 18h10" },
  { name: "Groups", path: "/groups", key: "g", drawing: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM2 20c0-4 3-6 6-6s6 2 6 6M16 5a3 3 0 0 1 0 6M18 14c2 1 4 3 4 6" },
  { name: "Schemas", path: "/schemas", key: "s", drawing: "M8 4c-3 0-1 7-4 8 3 1 1 8 4 8M16 4c3 0 1 7 4 8-3 1-1 8-4 8" },
  { name: "Transactions", path: "/transactions", key: "x", drawing: "M5 12l4 4L19 6M5 20h14" },
  { part: "Security" },
  { name: "Users", path: "/users", key: "u", drawing: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4 21c0-5 4-7 8-7s8 2 8 7" },
  { name: "ACLs", path: "/acls", key: "a", drawing: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6l7-3Z" },
  { name: "Quotas", path: "/quotas", key: "l", drawing: "M4 18a9 9 0 1 1 16 0M12 15l4-5" },
];
const LINKS = NAV.filter((one) => one.path);
const view = document.getElementById("view");
let leave = new AbortController();

async function route() {
  leave.abort();
  leave = new AbortController();
  for (const open of document.querySelectorAll("dialog")) open.close();
  const signal = leave.signal;
  const path = location.hash.slice(1) || "/";
  const screen = SCREENS.find((one) => one.path.test(path)) ?? SCREENS[0];
  const values = (screen.path.exec(path) ?? []).slice(1).map((value) => value && decodeURIComponent(value));
  for (const link of document.querySelectorAll("#nav a")) {
    const here = link.hash === "#/" ? path === "/" || path.startsWith("/partitions/") : path === link.hash.slice(1) || path.startsWith(`${link.hash.slice(1)}/`);
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    if (here) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const place = h("div", {});
  place.style.display = "contents";
  view.replaceChildren(place);
  delete view.dataset.shows;
  try {
    await screen.show(place, signal, ...values);
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(h("div", { class: "head" }, h("h1", {}, values[0] ?? "Not available")), h("div", { class: "error", role: "alert" }, error.message), h("div", {}, h("button", { onclick: route }, "Try again")));
  }
  if (signal.aborted) return;
  view.dataset.shows = path;
  document.title = `${view.querySelector("h1")?.textContent ?? "Overview"} · Barnabas console`;
}

// Keys: g and a letter opens a screen, / searches, ? shows all keys.
const typing = (target) => target.closest?.("input, textarea, select, dialog");
let going = false;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) {
    if (event.key === "Escape" && event.target.matches?.("input[type=search]")) event.target.blur();
    return;
  }
  const wanted = going && LINKS.find((one) => one.key === event.key);
  going = false;
  if (wanted) location.hash = wanted.path;
  else if (event.key === "g") { going = true; setTimeout(() => { going = false; }, 1200); return; }
  else if (event.key === "/") view.querySelector("input[type=search]")?.focus();
  else if (event.key === "?") tellKeys();
  else return;
  event.preventDefault();
});

function tellKeys() {
  const keys = [["/", "search on this screen"], ...LINKS.map((one) => [`g ${one.key}`, one.name]), ["↑ ↓ PgUp PgDn", "move in a list"], ["Enter", "open"], ["Esc", "close"]];
  dialog((close) => h("div", { class: "body" }, h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, keys.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("div", { class: "ends" }, h("button", { onclick: close }, "Close"))), { small: true, label: "Keys" });
}

const themes = ["auto", "dark", "light"];
function wear(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = `Theme: ${theme}`;
}
let theme = localStorage.getItem("theme") ?? "auto";
wear(theme);
document.getElementById("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  localStorage.setItem("theme", theme);
  wear(theme);
});
document.getElementById("keys").addEventListener("click", tellKeys);
document.getElementById("nav").append(...NAV.map((one) => one.part ? h("small", {}, one.part) : h("a", { href: `#${one.path}`, title: `g ${one.key}` },
  svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: one.drawing })), one.name)));
addEventListener("hashchange", () => { route(); view.focus({ preventScroll: true }); scrollTo(0, 0); });
route();
