// The open questions, live. One is shown at a time.

import { events, request } from "./api.js";
import { reportLost, reportRestored } from "./connection.js";
import { ApprovalDialog, describeEnd } from "./dialog.js";
import { byId, notify, wait } from "./dom.js";

const PAUSE = 2000;
const PAUSE_SIGNED_OUT = 15_000;
const REFUSALS = {
  401: "Sign in to see and answer questions about tools.",
  403: "This key may not answer questions about tools. An answer that needs one waits until an approver has decided.",
};

export class ApprovalDesk {
  /** With `shows`, questions open by themselves. `onChange` is called after every change. */
  constructor({ onChange = () => {}, shows = false }) {
    this.questions = new Map();
    this.onChange = onChange;
    this.shows = shows;
    this.dialog = null;
    this.title = document.title;
    this.refusal = ""; // why no questions can be seen
    this.removeNotice = () => {};
  }

  pending() {
    return [...this.questions.values()].sort((one, other) => one.created_at - other.created_at);
  }

  async start() {
    this.offerNotifications();
    for (;;) {
      let pause = PAUSE;
      try {
        await this.listen();
      } catch (error) {
        if (error.status === 0) reportLost();
        else if (error.status) reportRestored();
        if (error.status in REFUSALS) {
          pause = PAUSE_SIGNED_OUT;
          this.reportRefusal(error.status);
        }
      }
      await wait(pause);
    }
  }

  /** Follow the events. The list is read after the stream is open, so that no question is missed. */
  async listen() {
    const opened = () => {
      reportRestored();
      this.refusal = "";
      this.removeNotice();
      this.load().catch(() => {});
    };
    for await (const { name, data } of events("GET", "/approvals/events", undefined, undefined, opened)) {
      if (name === "asked") this.add(data);
      else this.remove(data);
      this.update();
    }
  }

  async load() {
    const { approvals } = await request("GET", "/approvals?status=pending&limit=1000");
    const open = new Set(approvals.map(({ id }) => id));
    for (const question of approvals) this.set(question);
    for (const id of [...this.questions.keys()]) if (!open.has(id)) await this.removeById(id);
    this.update();
  }

  async removeById(id) {
    this.remove(await request("GET", `/approvals/${encodeURIComponent(id)}`).catch(() => ({ id })));
  }

  set(question) {
    this.questions.set(question.id, { ...question, arrived: performance.now() });
  }

  add(question) {
    this.set(question);
    if (!document.hidden || globalThis.Notification?.permission !== "granted") return;
    const shown = new Notification("Toolrelay: approval needed", { body: question.title, tag: question.id });
    shown.onclick = () => window.focus();
  }

  remove(question) {
    this.questions.delete(question.id);
    if (this.dialog?.question.id !== question.id || this.dialog.isSending) return; // its own answer closes it
    this.dialog.close(describeEnd(question));
    this.dialog = null;
  }

  /** Open the dialog for a question, or for the next one. */
  review(id) {
    const question = id ? this.questions.get(id) : this.pending()[0];
    if (this.dialog || !question) return;
    this.dialog = new ApprovalDialog(question, (answered) => this.finish(question.id, answered), this.questions.size - 1);
  }

  finish(id, answered) {
    this.questions.delete(id);
    if (this.dialog?.question.id === id) {
      if (answered) this.dialog.close();
      this.dialog = null;
    }
    this.update();
  }

  update() {
    const count = this.questions.size;
    document.title = count ? `(${count}) ${this.title}` : this.title;
    byId("pending-count").hidden = count === 0;
    byId("pending-count").textContent = String(count);
    if (this.shows) this.review();
    this.onChange();
  }

  /** Say once why there are no questions. Who is signed in is told in the chat only, where an answer may wait. */
  reportRefusal(status) {
    if (this.refusal === REFUSALS[status]) return;
    this.refusal = REFUSALS[status];
    this.removeNotice();
    const link = status === 401 ? { href: "/console/sign-in", text: "Sign in" } : null;
    if (link || this.shows) this.removeNotice = notify(this.refusal, { link, key: "refusal" });
    this.questions.clear();
    this.update();
  }

  offerNotifications() {
    const button = byId("notify");
    button.hidden = globalThis.Notification?.permission !== "default";
    button.addEventListener("click", async () => {
      await Notification.requestPermission();
      button.hidden = true;
    });
  }
}
