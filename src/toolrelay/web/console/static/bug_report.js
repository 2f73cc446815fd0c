// The bug report of a turn: redacted by the gateway, shown here so that one sees what one sends, and copied.

import { requestText } from "./api.js";
import { element } from "./dom.js";

export async function copyReport(url, container) {
  const text = await requestText(`${url}/report`);
  const area = element("textarea", { id: "bug-report", rows: 12, readOnly: true, spellcheck: "false" });
  area.value = text;
  const state = element("span", { role: "status" });
  container.replaceChildren(element("p", {}, element("label", { for: "bug-report" }, "Bug report"), " ", state), area);
  try {
    await navigator.clipboard.writeText(text); // there is none where the page is not secure
    state.textContent = "It was copied. Read it before you send it.";
  } catch {
    area.focus();
    area.select();
    state.textContent = "Copy it from here: the browser does not let the page do it.";
  }
}
