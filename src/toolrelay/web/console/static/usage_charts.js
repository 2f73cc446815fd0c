// Charts of usage, one per figure, with a line per model or key. Lines differ by colour and by dash.

import { element, formatTime } from "./dom.js";
import { formatCount, formatSeconds } from "./usage_tables.js";

const MAX_LINES = 8;
const HEIGHT = 180;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2], [1, 5], [12, 3, 2, 3, 2, 3]];
const CHARTS = [
  ["turns", "Requests", formatCount],
  ["failed", "Errors", formatCount],
  ["input", "Tokens in", formatCount],
  ["output", "Tokens out", formatCount],
  ["tool_runs", "Tool runs", formatCount],
  ["denials", "Denials", formatCount],
  ["first_p50", "First token, p50", formatSeconds],
  ["first_p95", "First token, p95", formatSeconds],
  ["turn_p50", "Whole turn, p50", formatSeconds],
  ["turn_p95", "Whole turn, p95", formatSeconds],
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** uPlot fails at a locale that Intl does not know, such as "en-US@posix" of Chromium under LANG=C. */
async function loadLibrary() {
  try {
    new Intl.NumberFormat(navigator.language);
  } catch {
    Object.defineProperty(navigator, "language", { value: "en", configurable: true });
  }
  return (await import("../vendor/uplot/uplot.js")).default;
}

const uPlot = await loadLibrary();

export class Charts {
  constructor(area, legend, rest) {
    this.area = area;
    this.legend = legend;
    this.rest = rest;
    this.report = null;
    this.shown = "";
    this.panels = CHARTS.map(([name, title, format]) => new Panel(name, title, format));
    area.replaceChildren(...this.panels.map(({ figure }) => figure));
    new ResizeObserver(() => this.panels.forEach((panel) => panel.resize())).observe(area);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  redraw() {
    this.shown = "";
    if (this.report) this.show(this.report);
  }

  show(report) {
    this.report = report;
    const groups = report.groups.slice(0, MAX_LINES);
    const names = JSON.stringify(groups.map(({ name, label }) => [name, label]));
    const isNew = names !== this.shown;
    this.shown = names;
    if (isNew) this.legend.replaceChildren(...groups.map(({ label }, index) => element("li", {}, sample(index), label)));
    const hidden = report.groups.length - groups.length;
    this.rest.textContent = hidden ? `The ${MAX_LINES} with most requests. The tables have ${hidden} more.` : "";
    for (const panel of this.panels) panel.show(report.times, groups, isNew);
  }
}

class Panel {
  constructor(name, title, format) {
    this.name = name;
    this.title = title;
    this.format = format;
    this.plot = null;
    this.groups = [];
    this.readout = element("span", { class: "readout" });
    this.place = element("div", { class: "plot", role: "img" });
    this.figure = element("figure", {}, element("figcaption", {}, element("strong", {}, title), " ", this.readout), this.place);
  }

  show(times, groups, isNew) {
    this.groups = groups;
    const lines = groups.map(({ series }) => series[this.name]);
    this.place.setAttribute("aria-label", this.describe(groups));
    if (!isNew && this.plot) {
      this.plot.setData([times, ...lines]);
      return;
    }
    this.plot?.destroy();
    this.plot = new uPlot(this.options(groups), [times, ...lines], this.place);
  }

  describe(groups) {
    return `${this.title}: ${groups.map(({ label, total }) => `${label} ${this.format(total[this.name])}`).join(", ")}. The tables have the figures.`;
  }

  options(groups) {
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line"), width: 0.5 } };
    return {
      width: Math.max(this.place.clientWidth, 200),
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "usage" }, drag: { x: false, y: false }, y: false },
      scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.05 : 1] } },
      axes: [axis, { ...axis, size: 68, values: (_, ticks) => ticks.map((tick) => this.tick(tick)) }],
      series: [{}, ...groups.map(({ label }, index) => this.line(label, index))],
      hooks: { setCursor: [(plot) => this.read(plot)] },
    };
  }

  /** Half a request is no mark on an axis. */
  tick(value) {
    return this.format === formatCount && !Number.isInteger(value) ? "" : this.format(value);
  }

  line(label, index) {
    const stroke = colour(`--series-${index + 1}`);
    const points = { size: 5, fill: stroke, filter: (plot, series, isShown) => (isShown ? null : singlePoints(plot.data[series])) };
    return { label, stroke, width: 2, dash: DASHES[index], points };
  }

  read(plot) {
    const { idx } = plot.cursor;
    if (idx === null || idx === undefined) {
      this.readout.textContent = "";
      return;
    }
    const values = this.groups.map(({ label, series }) => `${label} ${this.format(series[this.name][idx])}`);
    this.readout.textContent = `${formatTime(plot.data[0][idx])}: ${values.join(", ")}`;
  }

  resize() {
    if (this.plot && this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }
}

/** The places of values without a neighbour, of which no line can be drawn. */
function singlePoints(values) {
  const isValue = (at) => values[at] !== null && values[at] !== undefined;
  return [...values.keys()].filter((at) => isValue(at) && !isValue(at - 1) && !isValue(at + 1));
}

/** A short line as it is drawn in the charts. */
function sample(index) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [name, value] of Object.entries({ width: 44, height: 10, "aria-hidden": "true" })) svg.setAttribute(name, value);
  const attributes = { x1: 0, x2: 44, y1: 5, y2: 5, class: `series-${index + 1}`, "stroke-dasharray": DASHES[index].join(" ") || "none" };
  for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}
