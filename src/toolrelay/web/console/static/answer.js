// One answer of a model on the page: its reasoning, tool calls, text, and what it cost.

import { describeDecision } from "./decisions.js";
import { element } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { LongText } from "./text.js";

const MAX_SHOWN = 20_000; // characters of reasoning, arguments and results, until all is asked for

export class Answer {
  constructor(container) {
    this.parts = new Map(); // by item id
    this.texts = element("div", {});
    this.waiting = element("p", { class: "waiting", hidden: true });
    this.footer = element("footer", {});
    this.node = element("article", { class: "message assistant", "aria-label": "Answer" }, this.texts, this.waiting, this.footer);
    container.append(this.node);
  }

  /** Show an event of the stream. */
  handle(event) {
    switch (event.type) {
      case "response.output_item.added":
        this.part(event.item);
        break;
      case "response.output_text.delta":
      case "response.refusal.delta":
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        this.parts.get(event.item_id)?.append(event.delta);
        break;
      case "response.reasoning_summary_part.added":
      case "response.content_part.added":
        if (event.summary_index > 0 || event.content_index > 0) this.parts.get(event.item_id)?.append("\n\n");
        break;
      case "response.output_item.done":
        this.part(event.item).finish(event.item);
        break;
    }
  }

  /** Show an item that is complete. */
  add(item) {
    const part = this.part(item);
    part.append(textOf(item));
    part.finish(item);
  }

  part(item) {
    const key = item.id ?? `${this.parts.size}`;
    if (!this.parts.has(key)) {
      const kind = { message: TextPart, reasoning: ReasoningPart }[item.type] ?? CallPart;
      const part = new kind(item);
      this.parts.set(key, part);
      this.texts.append(part.node);
    }
    return this.parts.get(key);
  }

  showWaiting(text, onReview) {
    this.waiting.replaceChildren();
    this.waiting.hidden = !text;
    if (text) this.waiting.append(text, " ", element("button", { type: "button", onclick: onReview }, "Review"));
  }

  showError(text) {
    this.texts.append(element("p", { class: "error", role: "alert" }, text));
  }

  /** Close what the stream left open, and show tokens and time. */
  finish(cost) {
    for (const part of this.parts.values()) part.finish();
    this.showWaiting("");
    if (cost) this.showCost(cost);
    this.node.dataset.done = "true";
  }

  showCost(cost) {
    this.footer.textContent = describeCost(cost);
    if (cost.id) this.footer.append(" · ", element("a", { href: `/traces#${encodeURIComponent(cost.id)}` }, "Trace"));
  }
}

const ENDS = { cancelled: "Stopped. ", failed: "Failed. " };

export function describeCost({ input, output, seconds, status }) {
  const time = typeof seconds === "number" ? `${seconds.toFixed(1)} s` : "";
  const tokens = typeof output === "number" ? `${input} tokens in, ${output} out` : "";
  return (ENDS[status] ?? "") + [tokens, time].filter(Boolean).join(" · ");
}

export function textOf(item) {
  const parts = item.type === "reasoning" ? [...(item.summary ?? []), ...(item.content ?? [])] : item.content;
  if (typeof parts === "string") return parts;
  return (parts ?? []).map((part) => part.text ?? part.refusal ?? "").join("\n\n");
}

class TextPart {
  constructor() {
    this.node = element("div", { class: "text" });
    this.view = new MarkdownView(this.node);
    this.isOpen = true;
  }

  append(delta) {
    this.view.append(delta);
  }

  finish() {
    if (this.isOpen) this.view.finish();
    this.isOpen = false;
  }
}

class ReasoningPart {
  constructor() {
    this.content = element("div", { class: "reasoning" });
    this.text = new LongText(this.content, MAX_SHOWN);
    this.node = element("details", { hidden: true }, element("summary", {}, "Reasoning"), this.content);
  }

  append(delta) {
    if (delta) this.node.hidden = false;
    this.text.append(delta);
  }

  finish() {}
}

class CallPart {
  constructor(item) {
    this.name = element("code", {});
    this.outcome = element("span", { class: "outcome" });
    this.arguments = element("pre", { tabIndex: 0 });
    this.result = element("pre", { tabIndex: 0, hidden: true });
    this.decision = element("span", { class: "decision" });
    const summary = element("summary", {}, "Tool ", this.name, " ", this.outcome, this.decision);
    this.node = element("details", { class: "call" }, summary, element("h3", {}, "Arguments"), this.arguments, this.result);
    this.show(item);
  }

  append() {}

  finish(item) {
    if (item) this.show(item);
    else if (this.outcome.textContent === "running …") this.outcome.textContent = "not finished";
  }

  show(item) {
    this.name.textContent = item.name ?? item.type;
    showText(this.arguments, String(item.arguments ?? ""));
    const error = errorText(item.error);
    const result = error || item.output;
    this.outcome.textContent = error ? `failed: ${error.slice(0, 200)}` : item.status === "in_progress" ? "running …" : "done";
    this.node.classList.toggle("failed", Boolean(error));
    this.result.hidden = !result;
    if (result) showText(this.result, String(result));
    if (item.status !== "in_progress" && item.approval_request_id) this.showDecision(item.approval_request_id);
  }

  async showDecision(question) {
    const decision = await describeDecision(question);
    this.decision.textContent = decision ? ` · ${decision.line}` : "";
    if (decision?.isRefused) this.outcome.textContent = "not run"; // else it says what the model was told
  }
}

function showText(node, text) {
  node.replaceChildren();
  new LongText(node, MAX_SHOWN).append(text);
}

/** Return what a tool's error says. */
export function errorText(error) {
  if (!error) return "";
  if (typeof error === "string") return error;
  const texts = Array.isArray(error.content) ? error.content.map((part) => part?.text).filter((text) => typeof text === "string") : [];
  return texts.join("\n") || error.message || JSON.stringify(error);
}
