// The list of conversations beside the chat: search, rename, delete.

import * as conversations from "./conversation.js";
import { byId, element } from "./dom.js";
import * as history from "./history.js";

const PAUSE = 200; // ms between a key and the search

export class Sidebar {
  /** `onDelete` gets the id of a conversation that is deleted, `report` an error. */
  constructor({ onDelete, report }) {
    this.onDelete = onDelete;
    this.report = report;
    this.current = null;
    this.isShared = false;
    this.next = null;
    this.loads = 0;
    this.list = byId("conversations");
    byId("search").addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.refresh(), PAUSE);
    });
    byId("more-conversations").addEventListener("click", () => this.loadMore());
    window.addEventListener("storage", () => this.isShared || this.refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
  }

  /** Load the list. Of several loads only the last one counts. */
  async refresh() {
    this.loads += 1;
    const load = this.loads;
    try {
      const found = await history.load(byId("search").value);
      if (load === this.loads) this.show(found, []);
    } catch (error) {
      if (error.status !== 0) this.report(error); // that the gateway is gone is said elsewhere
    }
  }

  async loadMore() {
    const load = this.loads;
    try {
      const found = await history.load(byId("search").value, this.next);
      if (load === this.loads) this.show(found, this.entries);
    } catch (error) {
      this.report(error);
    }
  }

  show({ entries, next, isShared }, before) {
    Object.assign(this, { entries: [...before, ...entries], next, isShared });
    byId("more-conversations").hidden = next === null;
    byId("kept-here").hidden = isShared;
    if (this.list.querySelector("input")) return; // a title is being changed
    const focused = this.list.contains(document.activeElement) ? document.activeElement.closest("li").dataset.id : null;
    this.list.replaceChildren(...this.entries.map((entry) => this.describe(entry)));
    if (focused) this.row(focused)?.querySelector("a").focus();
    this.mark(this.current);
  }

  describe(entry) {
    const title = String(entry.title || "Without a title");
    const row = element(
      "li",
      {},
      element("a", { href: `#${encodeURIComponent(entry.id)}` }, title),
      element("button", { type: "button", "aria-label": `Rename ${title}`, onclick: () => this.edit(row, entry.id, title) }, "✎"),
      element("button", { type: "button", "aria-label": `Delete ${title}`, onclick: () => this.remove(entry.id) }, "×"),
    );
    row.dataset.id = entry.id;
    return row;
  }

  row(id) {
    return [...this.list.children].find((row) => row.dataset.id === id) ?? null;
  }

  mark(id) {
    this.current = id;
    for (const row of this.list.children) {
      const link = row.querySelector("a");
      if (row.dataset.id === id) link?.setAttribute("aria-current", "page");
      else link?.removeAttribute("aria-current");
    }
  }

  titleOf(id) {
    return String((this.entries ?? []).find((entry) => entry.id === id)?.title || "");
  }

  /** Note a conversation that was begun here. */
  add(id, title) {
    if (!this.isShared) history.keep(id, title);
    return this.refresh();
  }

  edit(row, id, title) {
    const input = element("input", { type: "text", "aria-label": "New title", maxlength: "100" });
    input.value = title;
    let isDone = false;
    const end = async (isKept) => {
      if (isDone) return;
      isDone = true;
      const wanted = input.value.trim();
      if (isKept && wanted && wanted !== title) await this.rename(id, wanted);
      input.remove();
      await this.refresh();
      this.row(id)?.querySelector("a").focus();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) end(true);
      if (event.key === "Escape") end(false);
    });
    input.addEventListener("blur", () => end(true));
    row.replaceChildren(input);
    input.select();
  }

  async rename(id, title) {
    try {
      await conversations.rename(id, title);
      if (!this.isShared) history.keep(id, title);
    } catch (error) {
      this.report(error);
    }
  }

  async remove(id) {
    if (!confirm("Delete this conversation?")) return;
    try {
      await conversations.remove(id);
    } catch (error) {
      this.report(error);
      return;
    }
    history.forget(id);
    this.onDelete(id);
    await this.refresh();
    byId("search").focus();
  }
}
