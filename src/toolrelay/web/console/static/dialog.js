// The dialog in which a person answers one question.

import { request } from "./api.js";
import { byId, element, formatDuration, notify } from "./dom.js";
import { FilePicker } from "./files.js";
import { ArgumentForm, canonical, differences, isObject } from "./form.js";

const SETTLE = 400; // ms: the second half of a double click must not approve the next question
const REMEMBER = [
  ["once", "Only this once"],
  ["conversation", "For this conversation"],
  ["always", "Always"],
];

export class ApprovalDialog {
  /** `onAnswer` gets the question as it was answered. */
  constructor(question, onAnswer, waiting) {
    this.question = question;
    this.onAnswer = onAnswer;
    this.isSending = false;
    this.dialog = byId("approval");
    this.filesArgument = filesArgumentOf(question);
    this.build(waiting);
    this.dialog.oncancel = (event) => {
      event.preventDefault();
      this.answer("deny");
    };
    this.dialog.showModal();
    byId("approval-title").focus(); // not a button: a key that was meant for the chat must not answer
    setTimeout(() => (this.approve.disabled = false), SETTLE);
    this.timer = setInterval(() => this.showExpiry(), 1000);
    this.showExpiry();
    this.update();
  }

  /** The gateway says how long is left: the clock of this machine may be wrong. */
  showExpiry() {
    const { expires_in: left, arrived } = this.question;
    if (typeof left !== "number") return;
    const seconds = left - (performance.now() - arrived) / 1000;
    this.expiry.textContent = seconds > 0 ? `Expires in ${formatDuration(seconds)}.` : "Expires now.";
  }

  build(waiting) {
    const { question } = this;
    const changed = () => this.update();
    this.form = new ArgumentForm(question.arguments, question.schema, changed, this.filesArgument ? [this.filesArgument] : []);
    this.files = this.filesArgument ? new FilePicker(question, question.arguments[this.filesArgument], changed) : null;
    this.changes = element("ul", { class: "changes" });
    this.changed = element("div", { hidden: true, "aria-live": "polite" }, element("h4", {}, "You changed"), this.changes);
    this.error = element("p", { class: "error", role: "alert" });
    this.reason = element("input", { id: "approval-reason", type: "text", maxlength: "500", autocomplete: "off" });
    this.remember = element("select", { id: "approval-remember" }, ...REMEMBER.map(([value, text]) => element("option", { value }, text)));
    this.approve = element("button", { type: "button", class: "primary", disabled: true, onclick: () => this.answer("allow") }, "Approve and Execute");
    this.expiry = element("small", { class: "expiry" });
    const deny = () => this.answer("deny");
    const form = element(
      "form",
      { onsubmit: (event) => event.preventDefault() }, // Enter in a field answers nothing
      element(
        "header",
        {},
        element("h2", { id: "approval-title", tabIndex: -1 }, "Tool Approval Request"),
        element("button", { type: "button", class: "close", "aria-label": "Close and deny", onclick: deny }, "×"),
      ),
      element("p", {}, question.kind === "share" ? "The tool has run. Choose what the model may see of its result:" : "The model wants to use the following tool:"),
      element("h3", {}, question.title),
      element("p", { class: "hint" }, element("code", {}, question.tool), " of ", element("code", {}, question.toolset ?? ""), ` · asked by ${question.key}`),
      element("p", { class: "purpose" }, question.purpose),
      this.showsForm() ? element("h4", {}, "Arguments") : null,
      this.showsForm() ? this.form.node : null,
      this.files?.node,
      this.changed,
      element("p", { class: "privacy" }, privacyNote(question)),
      element("div", { class: "field" }, element("label", { for: "approval-remember" }, "Remember this answer"), this.remember),
      element("div", { class: "field" }, element("label", { for: "approval-reason" }, "Reason, if you cancel (optional)"), this.reason),
      this.error,
      element(
        "footer",
        {},
        this.approve,
        element("button", { type: "button", onclick: deny }, "Cancel"),
        this.expiry,
        waiting > 0 ? element("a", { href: "/approvals-inbox" }, `${waiting} more waiting`) : null,
      ),
    );
    this.dialog.replaceChildren(form);
  }

  /** A question that is only about files needs no other fields. */
  showsForm() {
    const names = isObject(this.question.arguments) ? Object.keys(this.question.arguments) : [];
    const known = Object.keys(this.question.schema?.properties ?? {});
    return !this.filesArgument || [...names, ...known].some((name) => name !== this.filesArgument);
  }

  read() {
    const values = this.form.read();
    return this.files && isObject(values) ? { ...values, [this.filesArgument]: this.files.selected() } : values;
  }

  update() {
    let lines = [];
    try {
      lines = differences(this.question.arguments, this.read());
      this.error.textContent = "";
    } catch (error) {
      this.error.textContent = error.message;
    }
    this.changed.hidden = lines.length === 0;
    this.changes.replaceChildren(...lines.map((line) => element("li", {}, line)));
  }

  async answer(verdict) {
    if (this.isSending) return;
    const body = { verdict, remember: this.remember.value };
    if (verdict === "deny" && this.reason.value.trim()) body.reason = this.reason.value.trim();
    if (verdict === "allow") {
      try {
        const values = this.read();
        if (canonical(values) !== canonical(this.question.arguments)) body.arguments = values;
      } catch (error) {
        this.error.textContent = error.message;
        return;
      }
    }
    this.isSending = true;
    try {
      this.onAnswer(await request("POST", `/approvals/${encodeURIComponent(this.question.id)}`, body));
    } catch (error) {
      if (error.status === 404 || error.status === 409) {
        this.close(describeEnd(await request("GET", `/approvals/${encodeURIComponent(this.question.id)}`).catch(() => ({}))));
        this.onAnswer(null);
      } else this.error.textContent = error.message;
    } finally {
      this.isSending = false;
    }
  }

  close(word = "") {
    clearInterval(this.timer);
    this.dialog.oncancel = null;
    this.dialog.close();
    this.dialog.replaceChildren();
    const focused = document.activeElement; // Chromium gives the focus back without a caret: keys would do nothing
    focused?.blur();
    focused?.focus({ preventScroll: true });
    if (word) notify(word, { seconds: 10, key: "approval" });
  }
}

const ENDS = {
  allowed: "was allowed",
  edited: "was allowed with changes",
  denied: "was denied",
  withdrawn: "was withdrawn: nobody waits for it any more",
  expired: "has expired",
};

/** Return what became of a question that is no longer open. */
export function describeEnd({ title = "The question", status, answered_by: by, reason }) {
  return `${title} ${ENDS[status] ?? "was answered"}${by ? ` by ${by}` : ""}${reason ? `: ${reason}` : ""}.`;
}

/** Return the argument that holds the paths of the listed files, or null. */
function filesArgumentOf({ files, files_argument: name, arguments: values }) {
  return Array.isArray(files) && isObject(values) && Array.isArray(values[name]) ? name : null;
}

function privacyNote({ model, provider, local }) {
  const reader = `the model “${model}”${provider ? ` (provider: ${provider})` : ""}`;
  const place = local ? " It runs on this machine." : "";
  return `⚠️ Privacy note: the result goes to ${reader}.${place} Only approve if you understand and trust this action.`;
}
