// The files of a question, with check boxes.

import { element, formatSize, formatTime } from "./dom.js";

export class FilePicker {
  constructor(files, onChange) {
    this.boxes = files.map((file) => {
      const box = element("input", { type: "checkbox", onchange: onChange });
      box.checked = true;
      return { box, path: file.path, node: describe(file, box) };
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

function describe(file, box) {
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
  );
}
