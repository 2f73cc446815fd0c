// The section of tools: whether a person is asked before each runs.

import { element } from "./dom.js";
import { form, messageLine, origin, saveRow } from "./settings_parts.js";

const ALWAYS = "Ask me first";
const NEVER = "Never ask";

export function showTools(settings, section) {
  const toolsets = settings.toolsets.filter(({ tools }) => tools.length);
  if (!toolsets.length) return [element("p", { class: "hint" }, "There are no tools.")];
  const parts = toolsets.map((toolset, index) => toolsetPart(toolset, index, settings));
  const message = messageLine();
  const { button, row } = saveRow("Save", message);
  button.disabled = !settings.may_change || toolsets.every(({ values }) => values.approval.fixed);
  const submit = () => section.save(Object.assign({}, ...parts.map((part) => part.changes())), button, message);
  const meaning = `“${NEVER}” means: the tool runs whenever a model calls it, with whatever arguments, and the model and its provider get the result. Nobody sees it beforehand.`;
  return [element("p", { class: "privacy" }, meaning), form("Approval of tools", section.changed, submit, ...parts.map(({ node }) => node), row)];
}

function toolsetPart(toolset, index, settings) {
  const setting = toolset.values.approval;
  const choices = toolset.tools.map((tool, place) => {
    const id = `tool-${index}-${place}`;
    const select = element(
      "select",
      { id, disabled: setting.fixed || !settings.may_change },
      element("option", { value: "always" }, ALWAYS),
      element("option", { value: "never" }, NEVER),
    );
    select.value = tool.approval;
    const label = element("label", { for: id }, element("strong", {}, tool.title), " ", element("code", {}, tool.name));
    return { tool, select, node: element("li", {}, element("div", { class: "tool" }, label, select), element("p", { class: "hint" }, tool.description)) };
  });
  return {
    node: element("div", {}, element("h3", {}, toolset.name, " ", origin(setting, settings.file)), element("ul", { class: "tools" }, ...choices.map(({ node }) => node))),
    changes() {
      if (setting.fixed || choices.every(({ tool, select }) => select.value === tool.approval)) return {};
      return { [setting.path]: Object.fromEntries(choices.map(({ tool, select }) => [tool.tool, select.value])) };
    },
  };
}
