// The page of usage: what to show, and loading it again while the page is open.

import { request } from "./api.js";
import { ApprovalDesk } from "./approvals.js";
import { byId, element } from "./dom.js";
import { Charts } from "./usage_charts.js";
import { fillSums, fillTimes } from "./usage_tables.js";

const HOUR = 3600;
const RANGES = [
  { name: "1h", label: "1 hour", seconds: HOUR, refresh: 15 },
  { name: "6h", label: "6 hours", seconds: 6 * HOUR, refresh: 15 },
  { name: "24h", label: "24 hours", seconds: 24 * HOUR, refresh: 30 },
  { name: "7d", label: "7 days", seconds: 7 * 24 * HOUR, refresh: 120 },
  { name: "30d", label: "30 days", seconds: 30 * 24 * HOUR, refresh: 300 },
];

const wanted = readAddress();
const charts = new Charts(byId("charts"), byId("legend"), byId("rest"));
let loads = 0;
let timer = null;

function readAddress() {
  const query = new URLSearchParams(location.search);
  return {
    range: RANGES.find(({ name }) => name === query.get("range")) ?? RANGES[2],
    by: query.get("by") === "key" ? "key" : "model",
    model: query.get("model") ?? "",
    key: query.get("key") ?? "",
  };
}

function writeAddress() {
  const query = new URLSearchParams({ range: wanted.range.name, by: wanted.by });
  if (wanted.model) query.set("model", wanted.model);
  if (wanted.key) query.set("key", wanted.key);
  history.replaceState(null, "", `?${query}`);
}

function parameters() {
  const now = Math.floor(Date.now() / 1000) + 1;
  const query = new URLSearchParams({ from: now - wanted.range.seconds, to: now, by: wanted.by });
  if (wanted.model) query.set("model", wanted.model);
  if (wanted.key) query.set("key", wanted.key);
  return query;
}

/** Load and show. Of several loads only the last one counts. */
async function load() {
  clearTimeout(timer);
  const number = ++loads;
  const query = parameters();
  byId("csv").href = `/api/usage.csv?${query}`;
  try {
    const report = await request("GET", `/api/usage?${query}`);
    if (number === loads) show(report);
  } catch (error) {
    if (number === loads) showProblem(error);
  }
  if (number === loads) timer = setTimeout(() => (document.hidden ? null : load()), wanted.range.refresh * 1000);
}

function show(report) {
  byId("problem").hidden = true;
  fillFilter("model", "All models", report.models.map((name) => ({ name, label: name })));
  fillFilter("key", "All keys", report.keys);
  const isEmpty = report.groups.length === 0;
  byId("empty").hidden = !isEmpty;
  byId("figures").hidden = isEmpty;
  if (isEmpty) return;
  fillSums(byId("sums"), report);
  charts.show(report);
  if (byId("by-time").open) fillTimes(byId("times"), byId("by-time-note"), report);
  byId("by-time").ontoggle = () => fillTimes(byId("times"), byId("by-time-note"), report);
}

function showProblem(error) {
  const problem = byId("problem");
  const isSignedOut = error.status === 401 || error.status === 403;
  const advice = isSignedOut ? [" ", element("a", { href: "/console/sign-in" }, "Sign in"), " to see it."] : [];
  problem.replaceChildren(isSignedOut ? "Usage is for people who are signed in." : error.message, ...advice);
  problem.hidden = false;
  if (error.mayPass) return;
  byId("figures").hidden = true;
  byId("empty").hidden = true;
}

/** Fill a filter, unless it has these options already: it may be open. */
function fillFilter(name, all, options) {
  const select = byId(name);
  const chosen = wanted[name];
  const offered = chosen && !options.some((option) => option.name === chosen) ? [...options, { name: chosen, label: chosen }] : options;
  const before = [...select.options].slice(1).map(({ value, text }) => `${value}\n${text}`);
  if (select.options.length && before.join("\0") === offered.map((option) => `${option.name}\n${option.label}`).join("\0")) return;
  const made = offered.map((option) => element("option", { value: option.name }, option.label));
  select.replaceChildren(element("option", { value: "" }, all), ...made);
  select.value = chosen;
}

function showRanges() {
  const buttons = RANGES.map((range) => {
    const choose = () => {
      wanted.range = range;
      change();
    };
    return element("button", { type: "button", "aria-pressed": String(range === wanted.range), onclick: choose }, range.label);
  });
  byId("ranges").replaceChildren(...buttons);
}

function change() {
  [...byId("ranges").children].forEach((button, index) => button.setAttribute("aria-pressed", String(RANGES[index] === wanted.range)));
  writeAddress();
  load();
}

function describeZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const name = new Intl.DateTimeFormat([], { timeZoneName: "longOffset" }).formatToParts().find(({ type }) => type === "timeZoneName");
  return `Times are in your time zone: ${zone} (${name?.value ?? "UTC"}). CSV has UTC.`;
}

showRanges();
fillFilter("model", "All models", []);
fillFilter("key", "All keys", []);
byId("by").value = wanted.by;
byId("zone").textContent = describeZone();
byId("controls").addEventListener("submit", (event) => event.preventDefault());
for (const name of ["by", "model", "key"]) {
  byId(name).addEventListener("change", ({ target }) => {
    wanted[name] = target.value;
    change();
  });
}
document.addEventListener("visibilitychange", () => document.hidden || load());
load();
new ApprovalDesk({}).start();
