// The waterfall of a turn: one row for each entry, with a bar on the time axis. All that a bar shows is also text.

import { element } from "./dom.js";

const TICKS = 4;
const KINDS = {
  accepted: "Request",
  taken_up: "Request",
  model: "Model",
  rejected: "Model",
  call: "Call",
  question: "Question",
  share: "Question",
  run: "Tool",
  handed_over: "Call",
  finished: "End",
  failed: "End",
  resumed: "Start",
  unreadable: "Record",
};

export function formatDuration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** The words for how long an entry took. */
export function describeSpan(entry) {
  if (entry.open) return "not finished";
  if (entry.ms === null) return "end unknown";
  return entry.ms > 0 ? formatDuration(entry.ms) : "";
}

export class Waterfall {
  /** `onOpen(row)` is called when a row is opened: its `body` is to be filled. */
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.rows = new Map(); // by the entry's key
    this.axis = element("div", { class: "axis", "aria-hidden": "true" });
    this.list = element("ol", { class: "waterfall" });
    this.times = element("tbody", {});
    const head = ["Entry", "Status", "Began after", "Took"].map((text) => element("th", { scope: "col" }, text));
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.times);
    this.node = element(
      "div",
      {},
      this.axis,
      this.list,
      element("details", { class: "times" }, element("summary", {}, "Times as a table"), element("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Times" }, table)),
    );
  }

  show(entries, total) {
    const most = Math.max(total, 1);
    const ticks = Array.from({ length: TICKS + 1 }, (_, number) => element("span", {}, formatDuration((most * number) / TICKS)));
    this.axis.replaceChildren(...ticks);
    const nodes = entries.map((entry) => {
      if (!this.rows.has(entry.key)) this.rows.set(entry.key, new Row(entry, this.onOpen));
      const row = this.rows.get(entry.key);
      row.show(entry, most);
      return row.node;
    });
    // Moving a node would take the focus from what is in it.
    nodes.forEach((node, index) => {
      if (this.list.children[index] !== node) this.list.insertBefore(node, this.list.children[index] ?? null);
    });
    while (this.list.children.length > nodes.length) this.list.lastChild.remove();
    this.times.replaceChildren(
      ...entries.map((entry) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, entry.title),
          ...[entry.status, formatDuration(entry.started_ms), describeSpan(entry)].map((text) => element("td", {}, text)),
        ),
      ),
    );
  }
}

class Row {
  constructor(entry, onOpen) {
    this.bar = element("span", { class: "span" });
    this.kind = element("span", { class: "kind" });
    this.title = element("span", { class: "title" });
    this.status = element("strong", {});
    this.time = element("span", { class: "time" });
    this.body = element("div", { class: "body" });
    const track = element("span", { class: "track", "aria-hidden": "true" }, this.bar);
    const label = element("span", { class: "label" }, this.kind, " ", this.title, " ", this.status, " ", this.time);
    this.details = element("details", {}, element("summary", {}, label, track), this.body);
    this.details.addEventListener("toggle", () => this.details.open && onOpen(this));
    this.node = element("li", {}, this.details);
  }

  show(entry, total) {
    const hasChanged = this.entry && (this.entry.status !== entry.status || this.entry.steps.length !== entry.steps.length);
    this.entry = entry;
    this.node.className = `entry kind-${entry.kind} ${entry.status}`;
    this.kind.textContent = KINDS[entry.kind] ?? entry.kind;
    this.title.textContent = entry.title;
    this.status.textContent = entry.status === "done" ? "" : entry.status.replace("_", " ");
    this.status.className = `status ${entry.status}`;
    this.time.textContent = [describeSpan(entry), `after ${formatDuration(entry.started_ms)}`].filter(Boolean).join(", ");
    const end = entry.open ? total : entry.started_ms + (entry.ms ?? 0);
    this.bar.style.left = `min(${(100 * entry.started_ms) / total}%, 100% - 3px)`;
    this.bar.style.width = `${Math.max(0, Math.min((100 * (end - entry.started_ms)) / total, 100))}%`;
    if (hasChanged && this.details.open) this.details.dispatchEvent(new Event("toggle"));
  }
}
