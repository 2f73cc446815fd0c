// Parts that the sections of the settings share.

import { element } from "./dom.js";

/** Say where a value comes from. */
export function origin(setting, file) {
  const words = {
    file: `set in ${baseName(file)}`,
    environment: "set by the environment",
    here: "set here",
    default: "default",
  };
  return element("span", { class: "hint origin" }, words[setting.source] ?? setting.source);
}

export const baseName = (path) => path.split(/[\\/]/).pop() || "the configuration file";

/** A line for what came of saving. */
export const messageLine = () => element("p", { class: "message", role: "status" });

export function saveRow(label, message, ...more) {
  const button = element("button", { type: "submit", class: "primary" }, label);
  return { button, row: element("div", { class: "actions" }, button, ...more, message) };
}

/** A form that does not leave the page. */
export function form(label, changed, submit, ...children) {
  return element(
    "form",
    {
      "aria-label": label,
      oninput: changed,
      onsubmit: (event) => {
        event.preventDefault();
        submit();
      },
    },
    ...children,
  );
}

export const isVault = ({ kind }) => kind === "vault";
