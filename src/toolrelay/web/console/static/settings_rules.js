// The section of remembered answers: what is allowed or denied without asking, and since when.

import { request } from "./api.js";
import { element, formatTime } from "./dom.js";

export async function showRules(body) {
  try {
    const { rules } = await request("GET", "/approvals/rules");
    body.replaceChildren(
      element("p", { class: "hint" }, "Answers that you gave for a conversation or for always. A rule is for one key, and ends by itself when its tool changes."),
      rules.length ? element("ul", { class: "rules" }, ...rules.map((rule) => describe(rule, body))) : element("p", {}, "No answer is remembered."),
    );
  } catch (error) {
    const text = error.status === 401 || error.status === 403 ? "Sign in to see remembered answers." : error.message;
    body.replaceChildren(element("p", { class: "hint" }, text));
  }
}

function describe(rule, body) {
  const verdict = rule.verdict === "allow" ? "Allowed" : "Denied";
  const what = rule.kind === "share" ? "sharing results of" : "running";
  const scope = [
    rule.arguments ? "with these arguments" : "with any arguments",
    rule.conversation ? "in one conversation" : "always",
    `for ${rule.key}`,
  ].join(", ");
  const message = element("p", { class: "error", role: "alert" });
  const revoke = element("button", { type: "button", "aria-label": `Revoke: ${verdict.toLowerCase()} ${rule.tool}`, onclick: () => remove(rule, revoke, message, body) }, "Revoke");
  return element(
    "li",
    {},
    element("div", { class: "tool" }, element("span", {}, element("strong", {}, verdict), `: ${what} `, element("code", {}, rule.tool), ` ${scope}`), revoke),
    element("p", { class: "hint" }, `Since ${formatTime(rule.created_at)}, by ${rule.created_by}${rule.reason ? `: ${rule.reason}` : ""}`),
    rule.arguments ? element("pre", { tabIndex: 0 }, JSON.stringify(rule.arguments, null, 2)) : null,
    rule.runs_with ? element("pre", { tabIndex: 0 }, `runs with ${JSON.stringify(rule.runs_with, null, 2)}`) : null,
    message,
  );
}

async function remove(rule, button, message, body) {
  button.disabled = true;
  try {
    await request("DELETE", `/approvals/rules/${encodeURIComponent(rule.id)}`);
  } catch (error) {
    if (error.status !== 404) {
      message.textContent = error.message;
      button.disabled = false;
      return;
    }
  }
  await showRules(body);
  body.closest("section").querySelector("h2").focus();
}
