// The tables of usage: sums by model or key, and the same by time.

import { element, formatTime } from "./dom.js";

const MAX_ROWS = 500;
const whole = new Intl.NumberFormat();

export const formatCount = (count) => whole.format(count);

export function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(2))} ms`;
  return seconds < 120 ? `${Number(seconds.toPrecision(2))} s` : `${Number((seconds / 60).toPrecision(2))} min`;
}

const COLUMNS = [
  ["turns", "Requests", formatCount],
  ["failed", "Errors", formatCount],
  ["input", "Tokens in", formatCount],
  ["cached", "of these cached", formatCount],
  ["output", "Tokens out", formatCount],
  ["tool_runs", "Tool runs", formatCount],
  ["denials", "Denials", formatCount],
  ["first_p50", "First token p50", formatSeconds],
  ["first_p95", "First token p95", formatSeconds],
  ["turn_p50", "Whole turn p50", formatSeconds],
  ["turn_p95", "Whole turn p95", formatSeconds],
];

const cells = (figures) => COLUMNS.map(([name, , format]) => element("td", {}, format(figures[name])));

function head(...names) {
  const made = [...names, ...COLUMNS.map(([, label]) => label)].map((label) => element("th", { scope: "col" }, label));
  return element("thead", {}, element("tr", {}, ...made));
}

const titleOf = (report) => (report.by === "model" ? "Model" : "Key");

export function fillSums(table, report) {
  const rows = report.groups.map((group) => element("tr", {}, element("th", { scope: "row" }, group.label), ...cells(group.total)));
  const total = element("tr", {}, element("th", { scope: "row" }, "Total"), ...cells(report.total));
  table.replaceChildren(head(titleOf(report)), element("tbody", {}, ...rows), element("tfoot", {}, total));
}

/** The newest steps first, without those in which nothing was used. */
export function fillTimes(table, note, report) {
  const rows = [];
  let left = 0;
  for (let index = report.times.length - 1; index >= 0; index--) {
    for (const { label, series } of report.groups) {
      if (!COLUMNS.some(([name]) => series[name][index])) continue;
      if (rows.length === MAX_ROWS) left += 1;
      else rows.push(timeRow(report.times[index], label, series, index));
    }
  }
  table.replaceChildren(head("From", titleOf(report)), element("tbody", {}, ...rows));
  const step = report.step % 3600 ? `${report.step / 60} minutes` : `${report.step / 3600} hours`;
  note.textContent = `Steps of ${step}, the newest first.` + (left ? ` ${formatCount(left)} more rows are in the CSV.` : "");
}

function timeRow(time, label, series, index) {
  const figures = Object.fromEntries(COLUMNS.map(([name]) => [name, series[name][index]]));
  return element("tr", {}, element("th", { scope: "row" }, formatTime(time)), element("td", { class: "name" }, label), ...cells(figures));
}
