// The inbox: open questions, and what was answered, by whom and when.

import { request } from "./api.js";
import { ApprovalDesk } from "./approvals.js";
import { byId, element, formatTime, notify } from "./dom.js";
import { differences } from "./form.js";

const desk = new ApprovalDesk({ onChange: show });
let loading = null;

function describe(question, ...more) {
  const asked = `${question.tool} · asked by ${question.key} for the model ${question.model} · ${formatTime(question.created_at)}`;
  return element(
    "li",
    {},
    element("h3", {}, question.title),
    element("p", { class: "hint" }, asked, " · ", element("a", { href: `/traces#${encodeURIComponent(question.turn)}` }, "Trace")),
    element("pre", { tabIndex: 0 }, JSON.stringify(question.arguments, null, 2)),
    ...more,
  );
}

function describeOpen(question) {
  return describe(question, element("button", { type: "button", class: "primary", onclick: () => desk.review(question.id) }, "Review"));
}

function describeClosed(question) {
  const by = question.answered_by ? ` by ${question.answered_by}` : "";
  const when = question.answered_at ? `, ${formatTime(question.answered_at)}` : "";
  const lines = question.ran_with ? differences(question.arguments, question.ran_with) : [];
  return describe(
    question,
    element("p", {}, element("strong", { class: `status ${question.status}` }, question.status), `${by}${when}`),
    question.reason ? element("p", {}, `Reason: ${question.reason}`) : null,
    lines.length ? element("ul", { class: "changes" }, ...lines.map((line) => element("li", {}, line))) : null,
  );
}

function fill(list, nodes, empty) {
  byId(list).replaceChildren(...(nodes.length ? nodes : [element("li", { class: "hint" }, empty)]));
}

function show() {
  fill("open", desk.pending().map(describeOpen), desk.refusal || "No questions are open.");
  if (desk.refusal) fill("closed", [], desk.refusal);
  else loading ??= loadClosed().finally(() => (loading = null));
}

async function loadClosed() {
  try {
    const { approvals } = await request("GET", "/approvals?limit=100");
    fill("closed", approvals.filter(({ status }) => status !== "pending").map(describeClosed), "Nothing was answered yet.");
  } catch (error) {
    if (error.status !== 401 && error.status !== 403) notify(error.message, { key: "inbox", seconds: 10 });
  }
}

desk.start();
