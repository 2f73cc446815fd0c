// Code blocks: their language, a copy button, and colours.

import { tokenize } from "../vendor/speed-highlight/index.js";
import { element } from "./dom.js";

const MAX_HIGHLIGHTED = 50_000; // characters
const NAMES = {
  python: "py", javascript: "js", typescript: "ts", jsx: "js", tsx: "ts", sh: "bash", shell: "bash", zsh: "bash", console: "bash",
  rust: "rs", yml: "yaml", markdown: "md", dockerfile: "docker", makefile: "make", perl: "pl", cpp: "c", h: "c", svg: "xml",
};
const KNOWN = new Set(
  "asm bash c css csv diff docker go html http ini java js json log lua make md pl py rs sql toml ts uri xml yaml".split(" "),
);

function languageOf(code) {
  const name = (/language-([\w+#.-]+)/.exec(code.className) || [])[1] || "";
  return name.toLowerCase();
}

/** Put a bar with the language and a copy button above each code block. */
export function decorate(container) {
  for (const code of container.querySelectorAll("pre > code")) {
    const pre = code.parentElement;
    pre.tabIndex = 0;
    const button = element("button", { type: "button", onclick: () => copy(button, code.textContent) }, "Copy");
    const block = element("div", { class: "code" }, element("div", { class: "code-bar" }, element("span", {}, languageOf(code)), button));
    pre.replaceWith(block);
    block.append(pre);
  }
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

/** Colour the code blocks that have not been coloured yet. */
export function highlight(container) {
  for (const code of container.querySelectorAll("pre > code:not([data-lang])")) {
    const name = languageOf(code);
    const language = NAMES[name] || name;
    code.dataset.lang = language;
    if (KNOWN.has(language) && code.textContent.length <= MAX_HIGHLIGHTED) colour(code, language);
  }
}

async function colour(code, language) {
  const source = code.textContent;
  const parts = [];
  await tokenize(source, language, (text, type) => parts.push(type ? element("span", { class: `t-${type}` }, text) : text));
  const coloured = element("code", {}, ...parts);
  if (coloured.textContent === source) code.replaceChildren(...coloured.childNodes);
}
