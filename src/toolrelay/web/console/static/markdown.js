// Markdown of models as safe elements, block by block while it streams in.

import { lexer, marked } from "../vendor/marked/marked.js";
import "../vendor/dompurify/purify.js";
import { decorate, highlight } from "./code.js";
import { LongText } from "./text.js";

const MAX_RENDERED = 200_000; // characters; what is beyond is plain text, on demand

const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href", "title", "start", "align", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const purifier = globalThis.DOMPurify;
purifier.addHook("uponSanitizeAttribute", (node, attribute) => {
  if (attribute.attrName === "class") attribute.keepAttr = node.tagName === "CODE" && /^language-[\w+#.-]+$/.test(attribute.attrValue);
});
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A" || !node.hasAttribute("href")) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

const escape = (text) => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
marked.use({
  gfm: true,
  renderer: {
    html: ({ text }) => escape(text), // shown as it was written
    image: ({ text, href }) => escape(`[${text || "image"}: ${href}]`), // loading it would tell its server that it was read
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

function render(tokens) {
  return purifier.sanitize(marked.parser(tokens), ALLOWED);
}

/**
 * A text that grows. Blocks that are complete are not touched again, so that a long answer costs no more per delta than a short one.
 * Only the beginning of a huge one is rendered.
 */
export class MarkdownView {
  constructor(container) {
    this.text = "";
    this.container = container;
    this.done = document.createElement("div");
    this.open = document.createElement("div");
    this.rest = null; // what is not rendered
    this.offset = 0; // of the open block in the text
    this.frame = 0;
    this.next = 0;
    container.classList.add("markdown");
    container.append(this.done, this.open);
  }

  append(delta) {
    if (this.rest) {
      this.rest.append(delta);
      return;
    }
    this.text += delta;
    if (this.text.length > MAX_RENDERED) this.cut();
    else this.frame ||= requestAnimationFrame((now) => this.paint(now));
  }

  paint(now) {
    this.frame = 0;
    if (now < this.next) {
      this.frame = requestAnimationFrame((later) => this.paint(later));
      return;
    }
    const started = performance.now();
    const tokens = lexer(this.text.slice(this.offset));
    const last = tokens.findLastIndex((token) => token.type !== "space");
    if (last > 0) {
      this.complete(tokens.slice(0, last));
      this.open.replaceWith((this.open = document.createElement("div"))); // a new block is not an old one that has moved
    }
    this.show(this.open, tokens.slice(Math.max(last, 0)));
    this.next = now + 4 * (performance.now() - started); // one huge block leaves time for the rest of the page
  }

  /** Render the beginning, up to the end of a line, and keep the rest as text. */
  cut() {
    const line = this.text.lastIndexOf("\n", MAX_RENDERED) + 1;
    const end = line > this.offset ? line : MAX_RENDERED;
    const rest = this.text.slice(end);
    this.text = this.text.slice(0, end);
    this.finish();
    this.rest = new LongText(this.container, 0);
    this.rest.append(rest);
  }

  finish() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.rest) return;
    this.complete(lexer(this.text.slice(this.offset)));
    this.open.replaceChildren();
  }

  complete(tokens) {
    const block = document.createElement("div");
    this.show(block, tokens);
    this.done.append(...block.childNodes);
    highlight(this.done);
    this.offset += tokens.reduce((length, token) => length + token.raw.length, 0);
  }

  show(block, tokens) {
    block.replaceChildren(render(tokens));
    decorate(block);
  }
}
