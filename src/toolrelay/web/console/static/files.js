// The files of a question, with check boxes and previews.

import { request } from "./api.js";
import { element, formatSize, formatTime } from "./dom.js";

export class FilePicker {
  /** `paths` are those of the arguments, in the order of the files. */
  constructor(question, paths, onChange) {
    this.boxes = question.files.slice(0, paths.length).map((file, index) => {
      const box = element("input", { type: "checkbox", onchange: onChange });
      box.checked = true;
      return { box, path: paths[index], node: describe(question.id, file, index, box) };
    });
    const setAll = (checked) => {
      for (const { box } of this.boxes) box.checked = checked;
      onChange();
    };
    this.node = element(
      "fieldset",
      { class: "files" },
      element("legend", {}, "Select files to share with the model"),
      element("ul", {}, ...this.boxes.map(({ node }) => node)),
      element("button", { type: "button", onclick: () => setAll(true) }, "Select all"),
      " ",
      element("button", { type: "button", onclick: () => setAll(false) }, "Deselect all"),
    );
  }

  selected() {
    return this.boxes.filter(({ box }) => box.checked).map(({ path }) => path);
  }
}

function describe(question, file, index, box) {
  const facts = [file.path];
  if (file.size > 0) facts.push(formatSize(file.size));
  if (file.modified_at > 0) facts.push(formatTime(file.modified_at));
  if (file.private) facts.push("private");
  return element(
    "li",
    {},
    element("label", {}, box, " ", element("strong", {}, file.name || file.path)),
    element("small", {}, facts.join(" · ")),
    file.first_line ? element("small", { class: "first-line" }, file.first_line) : null,
    file.error ? element("small", { class: "error" }, file.error) : null,
    ...(file.error ? [] : makePreview(`/approvals/${encodeURIComponent(question)}/files/${index}`, file.name || file.path)),
  );
}

/** Return a button and the text that it shows and hides. The text is loaded when it is first shown. */
function makePreview(address, name) {
  const text = element("pre", { class: "preview", tabIndex: 0, hidden: true, role: "region", "aria-label": `Content of ${name}` });
  const button = element("button", { type: "button", class: "link", "aria-expanded": "false", "aria-label": `Preview ${name}` }, "Preview");
  let isLoaded = false;
  button.addEventListener("click", async () => {
    text.hidden = !text.hidden;
    button.setAttribute("aria-expanded", String(!text.hidden));
    if (text.hidden || isLoaded) return;
    isLoaded = true;
    text.textContent = "Loading …";
    try {
      const found = await request("GET", address);
      text.textContent = found.text + (found.is_cut ? "\n\n[Only the beginning is shown.]" : "");
    } catch (error) {
      isLoaded = false;
      text.textContent = error.message;
    }
  });
  return [button, text];
}
