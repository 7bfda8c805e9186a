// A plot of one or two series over time, as SVG, with a readout under the pointer.

import { h, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 132;

// series: [{name, class: "a" | "b"}]; add(timeMs, [values]) or set([[timeMs, values…]]).
export class Plot {
  constructor(title, series, format, most = 150) {
    this.series = series;
    this.format = format;
    this.most = most;
    this.points = [];
    this.now = h("div", { class: "now" }, "–");
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.left = h("span", {}, "");
    this.top = h("span", {}, "");
    this.element = h("section", { class: "card" },
      h("header", {}, h("h2", {}, title), h("span", { class: "grow" }), series.length > 1 && series.map((s) => h("span", { class: `key ${s.class}` }, s.name))),
      h("div", { class: "pad plot" }, this.now, this.picture, h("div", { class: "scale" }, this.left, this.top)));
    this.title = title;
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    this.draw();
  }

  set(points) {
    this.points = points.slice(-this.most);
    this.draw();
  }

  add(time, values) {
    this.points.push([time, ...values]);
    if (this.points.length > this.most) this.points.shift();
    this.draw();
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    this.at = Math.round(((event.clientX - box.left) / box.width) * (this.most - 1)) - (this.most - this.points.length);
    this.draw();
  }

  x(index) {
    return ((index + this.most - this.points.length) / (this.most - 1)) * WIDTH;
  }

  draw() {
    const known = this.points.flatMap((p) => p.slice(1)).filter((v) => v !== null);
    const top = nice(Math.max(1, ...known));
    const y = (value) => HEIGHT - (value / top) * (HEIGHT - 6) - 1;
    const parts = [0, 0.5, 1].map((at) => svg("line", { class: "gridline", x1: 0, x2: WIDTH, y1: y(at * top), y2: y(at * top) }));
    this.series.forEach((series, at) => {
      const line = this.points.map((p, i) => [this.x(i), p[at + 1]]).filter(([, v]) => v !== null).map(([x, v]) => `${x.toFixed(1)},${y(v).toFixed(1)}`);
      if (line.length < 2) return;
      const [first, last] = [line[0].split(",")[0], line.at(-1).split(",")[0]];
      parts.push(svg("polygon", { class: `area ${series.class}`, points: `${first},${HEIGHT} ${line.join(" ")} ${last},${HEIGHT}` }));
      parts.push(svg("polyline", { class: `line ${series.class}`, points: line.join(" ") }));
    });
    const shown = this.points[this.at] ?? this.points.at(-1);
    if (this.points[this.at]) parts.push(svg("line", { class: "cross", x1: this.x(this.at), x2: this.x(this.at), y1: 0, y2: HEIGHT }));
    this.picture.replaceChildren(...parts);
    const values = shown ? shown.slice(1).filter((v) => v !== null).map(this.format) : ["–"];
    this.now.textContent = values.join("  ·  ");
    this.left.textContent = this.points[this.at] ? new Date(shown[0]).toLocaleTimeString() : "last five minutes";
    this.top.textContent = `maximum ${this.format(top)}`;
    this.picture.setAttribute("aria-label", `${this.title}: now ${values.join(", ")}`);
  }
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}
