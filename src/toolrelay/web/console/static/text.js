// Long text, cut: the rest is added on demand, a piece in each frame, so that the page stays usable.

import { element, formatSize } from "./dom.js";

const PIECE = 50_000; // characters

/** Plain text that may grow. Only the first `limit` characters are shown until a person asks for all. */
export class LongText {
  constructor(container, limit) {
    this.container = container;
    this.limit = limit;
    this.text = "";
    this.shown = 0;
    this.frame = 0;
    this.piece = null;
    this.room = 0; // characters that the last piece still takes
    this.isWhole = false;
    this.button = element("button", { type: "button", class: "show-all", hidden: true, onclick: () => this.showAll() });
    container.append(this.button);
  }

  append(text) {
    this.text += text;
    this.update();
  }

  showAll() {
    this.isWhole = true;
    this.update();
  }

  update() {
    const end = this.isWhole ? this.text.length : Math.min(this.text.length, this.limit);
    if (this.shown === 0 && end > 0) this.paint();
    else if (this.shown < end) this.frame ||= requestAnimationFrame(() => this.paint());
    const hidden = this.text.length - this.limit;
    this.button.hidden = this.isWhole || hidden <= 0;
    this.button.textContent = this.button.hidden ? "" : `Show all: ${formatSize(hidden)} more`;
  }

  /** Fill the last piece, or begin another: a browser lays out many small blocks faster than one huge one. */
  paint() {
    this.frame = 0;
    const end = this.isWhole ? this.text.length : Math.min(this.text.length, this.limit);
    if (!this.piece) {
      this.piece = element("div", { class: "plain piece" });
      this.room = PIECE;
      this.button.before(this.piece);
    }
    let added = this.text.slice(this.shown, Math.min(this.shown + this.room, end));
    if (added.length === this.room && added.includes("\n")) added = added.slice(0, added.lastIndexOf("\n") + 1);
    this.piece.append(added);
    this.shown += added.length;
    this.room = this.shown < end ? 0 : this.room - added.length;
    if (this.room <= 0) this.piece = null;
    this.update();
  }
}
