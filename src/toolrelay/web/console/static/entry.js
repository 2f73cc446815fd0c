// The details of an entry of a trace. Everything is set as text.

import { element } from "./dom.js";
import { formatDuration } from "./waterfall.js";

const heading = (text) => element("h3", {}, text);
const block = (text, label) => element("pre", { tabIndex: 0, role: "region", "aria-label": label }, text);

/** JSON with line breaks; any other text as it is. */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  try {
    const parsed = JSON.parse(value);
    return typeof parsed === "object" && parsed !== null ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

function section(title, value) {
  if (value === null || value === undefined || value === "") return [];
  return [heading(title), block(pretty(value), title)];
}

function facts(members) {
  const known = Object.entries(members).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", { class: "facts" }, ...known.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
}

export function describeEntry({ kind, detail }) {
  switch (kind) {
    case "accepted":
      return section("What the client sent", detail.request);
    case "model":
      return describeModel(detail);
    case "rejected":
      return [element("p", {}, `The answer broke the rule “${detail.rule}”. The model was asked again.`), ...section("What it printed", detail.raw)];
    case "call":
      return [facts({ "Run by": detail.owner, Toolset: detail.toolset, Call: detail.call_id }), ...section("Arguments", detail.arguments)];
    case "question":
    case "share":
      return describeQuestion(detail);
    case "run":
      return describeRun(detail);
    case "failed":
      return [facts({ Code: detail.code, Status: detail.status }), ...section("Message", detail.message), ...section("Details", detail.detail)];
    default:
      return section("Details", detail);
  }
}

function describeModel(detail) {
  const usage = detail.usage ? `${detail.usage.input ?? 0} in, ${detail.usage.output ?? 0} out${detail.usage.estimated ? " (estimated)" : ""}` : "";
  const known = facts({
    Finish: detail.finish,
    "First output after": formatDuration(detail.first_ms),
    Tokens: usage,
    "Sent again because of": (detail.retries ?? []).join(", "),
    "Cut off": detail.cut ? "in the middle of a call" : "",
  });
  return [known, ...section("Error", detail.error), ...describeTold(detail.told), ...describeAnswer(detail)];
}

/** The raw text beside what was read from it. */
function describeAnswer({ raw, items }) {
  if (!items) return [];
  const read = element("div", {}, heading(raw === null ? "Answer" : "What was read from it"), ...items.map(describeItem));
  if (raw === null) return [read];
  return [element("div", { class: "beside" }, element("div", {}, heading("What the model printed"), block(raw, "What the model printed")), read)];
}

function describeItem(item) {
  if (item?.type === "Call") return element("div", { class: "call" }, element("strong", {}, `Call of ${item.name}`), block(pretty(item.arguments), `Arguments of ${item.name}`));
  if (item?.type === "Message") return block(contentOf(item.content), "Text");
  if (item?.type === "Reasoning") return block([...(item.summary ?? []), ...(item.text ?? [])].join("\n\n"), "Reasoning");
  return block(pretty(item), "Item");
}

function contentOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return pretty(content);
  return content.map((part) => (typeof part?.text === "string" ? part.text : pretty(part))).join("\n");
}

function describeTold(told) {
  if (!told) return [];
  const title = heading("What the model was told");
  if (told.unknown) return [title, element("p", {}, told.unknown)];
  const calls = told.tool_calling === "native" ? "Tools are declared to its server." : `Tools are described in the text, in the dialect ${told.tool_calling}.`;
  const lines = [
    `Computed again from the record, with the present configuration. ${calls}`,
    told.repeats ? `The first ${told.repeats} messages are those of the call before.` : "",
    told.rejected ? `It was also shown ${told.rejected} rejected answers of its own, and what was wrong with them.` : "",
  ];
  return [
    title,
    element("p", { class: "hint" }, lines.filter(Boolean).join(" ")),
    ...section("Rules that the gateway added", told.rules),
    ...(told.instructions ? section("Instructions", told.instructions) : []),
    element("ol", { class: "told" }, ...(told.messages ?? []).map(describeMessage)),
    told.tools?.length ? element("details", {}, element("summary", {}, `Tools (${told.tools.length})`), block(pretty(told.tools), "Tools")) : "",
  ];
}

function describeMessage(message) {
  if (typeof message !== "object" || message === null) return element("li", {}, String(message));
  const what = message.call ? `${message.role}: call of ${message.call}` : message.role;
  const text = message.call ? pretty(message.arguments) : contentOf(message.content);
  return element("li", {}, element("strong", {}, String(what)), message.private ? " (private)" : "", block(text, String(what)));
}

function describeQuestion(detail) {
  const answer = detail.answer;
  if (!answer) return section("Arguments", detail.arguments);
  return [
    facts({ Verdict: answer.verdict, By: answer.by, Reason: answer.reason }),
    ...section("Arguments", detail.arguments),
    ...section("Changed to", answer.arguments),
    ...section("Shared with the model", answer.output),
  ];
}

function describeRun(detail) {
  return [
    detail.private ? element("p", { class: "private" }, element("strong", {}, "Private: "), "only a local model may see this result.") : null,
    detail.withheld ? element("p", {}, "The result was kept back until a person had decided what to share.") : null,
    ...section("Arguments", detail.arguments),
    ...section(detail.failed ? "Error" : "Result", detail.output === undefined || typeof detail.output === "string" ? detail.output : contentOf(detail.output)),
  ].filter(Boolean);
}
