// One turn: its facts, its waterfall and the details of its entries, live while it runs.

import { ApiError, events, request } from "./api.js";
import { copyReport } from "./bug_report.js";
import { element, formatTime, wait } from "./dom.js";
import { describeEntry } from "./entry.js";
import { Waterfall, formatDuration } from "./waterfall.js";

const PAUSE = 500; // between two readings of a turn that runs
const PAUSE_LOST = 2000;
const TICK = 1000;

export class TraceView {
  constructor(container, id, report) {
    this.container = container;
    this.url = `/api/traces/${encodeURIComponent(id)}`;
    this.id = id;
    this.report = report;
    this.abort = new AbortController();
    this.entries = [];
    this.waterfall = new Waterfall((row) => this.openEntry(row));
    this.heading = element("h1", { id: "trace-heading", tabIndex: -1 }, "Trace");
    this.facts = element("dl", { class: "facts" });
    this.note = element("p", { class: "hint", role: "status" });
    this.more = element("button", { type: "button", hidden: true, onclick: () => this.showMore().catch(report) }, "Show more entries");
    this.result = element("div", {});
    const copy = element("button", { type: "button", onclick: () => copyReport(this.url, this.result).catch(report) }, "Copy bug report");
    container.replaceChildren(
      element("p", {}, element("a", { href: "#" }, "← All traces")),
      this.heading,
      this.facts,
      element("p", { class: "actions" }, copy, " ", element("span", { class: "hint" }, "Without content: no text, arguments, results or paths.")),
      this.result,
      this.note,
      this.waterfall.node,
      this.more,
    );
  }

  async open() {
    try {
      await this.load();
      this.heading.focus();
      if (this.isRunning) await this.follow();
    } catch (error) {
      if (this.abort.signal.aborted) return;
      if (error.status === 404) this.note.textContent = error.message;
      else this.report(error);
    }
  }

  close() {
    this.abort.abort();
    clearInterval(this.timer);
  }

  get isRunning() {
    return this.trace.ended_ms === null;
  }

  async load() {
    const trace = await request("GET", this.url);
    if (this.abort.signal.aborted) return;
    this.trace = trace;
    this.loadedAt = performance.now();
    // Of a long turn, later pages that are shown stay as they were.
    this.entries = trace.next === null ? trace.entries : [...trace.entries, ...this.entries.slice(trace.entries.length)];
    this.nextEntry = this.entries.length < trace.entry_count ? this.entries.length : null;
    this.show();
  }

  async showMore() {
    const page = await request("GET", `${this.url}?from=${this.nextEntry}`);
    this.entries.push(...page.entries);
    this.nextEntry = page.next;
    this.show();
  }

  show() {
    const { trace } = this;
    const total = trace.ended_ms ?? trace.elapsed_ms + performance.now() - this.loadedAt;
    document.title = `Trace ${trace.id} – Toolrelay`;
    this.heading.textContent = `Trace ${trace.id}`;
    const usage = trace.usage ? `${trace.usage.input ?? 0} in, ${trace.usage.output ?? 0} out` : "unknown";
    const facts = {
      Began: formatTime(trace.created_at),
      Status: trace.status,
      Took: `${formatDuration(total)}${this.isRunning ? " so far" : ""}`,
      Model: `${trace.model} (${trace.provider ?? "no longer configured"})`,
      "Tool calling": trace.tool_calling ?? "unknown",
      API: trace.wire,
      Tokens: usage,
      Conversation: trace.conversation,
    };
    const known = Object.entries(facts).filter(([, value]) => value);
    this.facts.replaceChildren(...known.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    this.showState();
    this.waterfall.show(this.entries, total);
    this.more.hidden = this.nextEntry === null;
    if (this.nextEntry !== null) this.more.textContent = `Show more entries (${trace.entry_count - this.entries.length})`;
  }

  /** Say whether the turn goes on. One that has ended before the page was opened needs no words. */
  showState() {
    const isAsking = this.entries.some((entry) => entry.open && entry.status === "pending");
    let text = "This turn runs. New entries appear as they come.";
    if (isAsking) text = "This turn waits for an answer of a person.";
    else if (this.trace.status === "parked") text = "This turn waits for its client to send the request again.";
    if (!this.isRunning) text = this.note.textContent ? "This turn has ended." : "";
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  /** Read the turn again whenever it has new steps. */
  async follow() {
    this.timer = setInterval(() => this.show(), TICK);
    try {
      while (this.isRunning && !this.abort.signal.aborted) {
        try {
          for await (const { name } of events("GET", `${this.url}/events`, undefined, this.abort.signal)) {
            await this.load();
            if (name === "steps") await wait(PAUSE); // steps that come in the meantime are read together
          }
        } catch (error) {
          if (!(error instanceof ApiError) || !error.mayPass) throw error;
        }
        if (this.isRunning) {
          await wait(PAUSE_LOST); // it waits for its client, or the gateway was restarted
          await this.load().catch((error) => {
            if (!error.mayPass) throw error;
          });
        }
      }
    } finally {
      clearInterval(this.timer);
    }
    this.show();
  }

  async openEntry(row, all = false) {
    if (!row.body.hasChildNodes()) row.body.textContent = "Loading …";
    try {
      const url = `${this.url}/entries/${encodeURIComponent(row.entry.key)}${all ? "?all=1" : ""}`;
      const entry = await request("GET", url);
      row.body.replaceChildren(...describeEntry(entry));
      if (entry.cut && !all) row.body.append(element("button", { type: "button", onclick: () => this.openEntry(row, true) }, "Show all"));
    } catch (error) {
      row.body.textContent = error.message;
    }
  }
}
