// The section of models: which toolsets each may use.

import { element } from "./dom.js";
import { form, messageLine, origin, saveRow } from "./settings_parts.js";

export function showModels(settings, section) {
  if (!settings.toolsets.length) return [element("p", { class: "hint" }, "There are no toolsets. Add a vault above, or write a [toolsets.NAME] table in the configuration file.")];
  const rows = settings.models.map((model, index) => modelRow(model, index, settings));
  const message = messageLine();
  const { button, row } = saveRow("Save", message);
  button.disabled = !settings.may_change || settings.models.every(({ toolsets }) => toolsets.fixed);
  const submit = () => section.save(Object.assign({}, ...rows.map((each) => each.changes())), button, message);
  return [
    element("p", { class: "hint" }, "Tools that a model may call. A request that runs keeps what it was offered, but a tool that is taken away is not run any more."),
    form("Toolsets of models", section.changed, submit, ...rows.map(({ node }) => node), row),
  ];
}

function modelRow(model, index, settings) {
  const setting = model.toolsets;
  const boxes = settings.toolsets.map((toolset, place) => {
    const id = `model-${index}-${place}`;
    const box = element("input", { id, type: "checkbox", checked: setting.value.includes(toolset.name), disabled: setting.fixed || !settings.may_change });
    return { name: toolset.name, box, node: element("div", { class: "field boolean" }, box, element("label", { for: id }, toolset.name)) };
  });
  const legend = element("legend", {}, model.name, " ", element("span", { class: "hint" }, `${model.provider}${model.local ? ", local" : ""}`));
  return {
    node: element("fieldset", { class: "model" }, legend, ...boxes.map(({ node }) => node), origin(setting, settings.file)),
    changes() {
      const chosen = boxes.filter(({ box }) => box.checked).map(({ name }) => name);
      const isSame = chosen.length === setting.value.length && chosen.every((name) => setting.value.includes(name));
      return setting.fixed || isSame ? {} : { [setting.path]: chosen };
    },
  };
}
