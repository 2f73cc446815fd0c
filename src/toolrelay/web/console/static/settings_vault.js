// The section of vaults: where the notes are, and which of them models never see.

import { request } from "./api.js";
import { element } from "./dom.js";
import { form, isVault, messageLine, origin, saveRow } from "./settings_parts.js";

export function showVault(settings, section) {
  const vaults = settings.toolsets.filter(isVault);
  const intro = "The folder of your Obsidian vault, or any folder with Markdown notes. Nothing is ever written there.";
  return [
    element("p", { class: "hint" }, intro),
    ...(vaults.length ? vaults.map((vault) => editForm(vault, settings, section)) : [addForm(settings, section)]),
  ];
}

function pathField(id, setting, settings, isSample = false) {
  const input = element("input", { id, type: "text", autocomplete: "off", spellcheck: "false", placeholder: "~/Notes" });
  input.value = isSample ? "" : (setting?.value ?? "");
  input.disabled = !settings.may_change || Boolean(setting?.fixed);
  const found = element("p", { class: "found", role: "status" });
  const check = element("button", { type: "button", disabled: input.disabled, onclick: () => checkFolder(input, check, found) }, "Check");
  const hint = isSample ? element("p", { class: "hint" }, "Now in use: the sample vault that comes with Toolrelay.") : null;
  const label = element("label", { for: id }, "Folder");
  const node = element("div", { class: "field" }, element("div", {}, label, " ", setting ? origin(setting, settings.file) : null), element("div", { class: "path" }, input, check), hint, found);
  return { input, node };
}

async function checkFolder(input, button, found) {
  found.classList.remove("error");
  found.textContent = "Looking …";
  button.disabled = true;
  try {
    const report = await request("POST", "/api/settings/check-folder", { path: input.value });
    found.classList.toggle("error", Boolean(report.problem));
    found.textContent = report.problem ?? describe(report);
  } catch (error) {
    found.classList.add("error");
    found.textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

function describe({ path, notes, complete, obsidian }) {
  const count = `${complete ? "" : "more than "}${notes.toLocaleString()} ${notes === 1 ? "note" : "notes"}`;
  return `${path}: ${count}, ${obsidian ? "an Obsidian vault" : "not opened in Obsidian yet, which does not matter"}.`;
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function listField(id, label, hint, setting, settings) {
  const area = element("textarea", { id, rows: "2", spellcheck: "false", "aria-describedby": `${id}-hint` });
  area.value = setting.value.join("\n");
  area.disabled = !settings.may_change || setting.fixed;
  return {
    area,
    node: element("div", { class: "field" }, element("div", {}, element("label", { for: id }, label), " ", origin(setting, settings.file)), area, element("small", { id: `${id}-hint` }, hint)),
  };
}

function editForm(vault, settings, section) {
  const { path, exclude, private: hidden, share } = vault.values;
  const id = (key) => `vault-${settings.toolsets.indexOf(vault)}-${key}`;
  const folder = pathField(id("path"), path, settings, vault.is_sample);
  const privateList = listField(id("private"), "Private notes", "One rule a line: tag:private, or a pattern such as Journal/**. Only models with local = true see them.", hidden, settings);
  const excludeList = listField(id("exclude"), "Excluded notes", "One pattern a line, such as Archive/**. No model sees them.", exclude, settings);
  const ask = element("input", { id: id("share"), type: "checkbox", checked: share.value === "ask", disabled: !settings.may_change || share.fixed });
  const message = messageLine();
  const isHere = vault.values.kind.source === "here";
  const remove = element("button", { type: "button", onclick: () => section.save(removal(vault, settings), remove, message, "Removed.") }, vault.values.kind.source === "default" ? "Back to the sample vault" : "Remove this vault");
  const canRemove = settings.may_change && (isHere || (vault.values.kind.source === "default" && path.source === "here"));
  const { button, row } = saveRow("Save", message, canRemove ? remove : null);
  button.disabled = !settings.may_change;
  const submit = () => section.save(edits(), button, message);

  function edits() {
    const changes = {};
    const add = (setting, value) => {
      if (!setting.fixed && JSON.stringify(value) !== JSON.stringify(setting.value)) changes[setting.path] = value;
    };
    if (!vault.is_sample || folder.input.value.trim()) add(path, folder.input.value.trim());
    add(hidden, lines(privateList.area.value));
    add(exclude, lines(excludeList.area.value));
    add(share, ask.checked ? "ask" : "silent");
    return changes;
  }

  return form(
    `Vault ${vault.name}`,
    section.changed,
    submit,
    settings.toolsets.filter(isVault).length > 1 ? element("h3", {}, vault.name) : null,
    folder.node,
    element(
      "details",
      {},
      element("summary", {}, "Private and excluded notes"),
      privateList.node,
      excludeList.node,
      element("div", { class: "field boolean" }, ask, element("label", { for: id("share") }, "Ask again before results go to the model"), " ", origin(share, settings.file)),
    ),
    row,
  );
}

/** Forget all that was set here about a vault. Models that were given it here lose it if it exists only here. */
function removal(vault, settings) {
  const values = Object.values(vault.values).filter(({ source }) => source === "here");
  const changes = Object.fromEntries(values.map(({ path }) => [path, null]));
  if (vault.values.kind.source !== "here") return changes;
  for (const { toolsets } of settings.models) {
    if (toolsets.value.includes(vault.name)) changes[toolsets.path] = toolsets.value.filter((name) => name !== vault.name);
  }
  return changes;
}

function addForm(settings, section) {
  const name = freeName(settings);
  const folder = pathField("vault-new-path", null, settings);
  const free = settings.models.filter(({ toolsets }) => !toolsets.fixed);
  const configured = free.filter((model) => free.length === 1 || model.name !== "demo"); // demo stands beside them by itself
  const boxes = free.map((model, index) => {
    const box = element("input", { id: `vault-new-model-${index}`, type: "checkbox", checked: configured.length === 1 && model === configured[0], disabled: !settings.may_change });
    return { model, box, node: element("div", { class: "field boolean" }, box, element("label", { for: box.id }, model.name)) };
  });
  const message = messageLine();
  const { button, row } = saveRow("Add vault", message);
  button.disabled = !settings.may_change;
  const submit = () => {
    const changes = { [`toolsets.${name}.kind`]: "vault", [`toolsets.${name}.path`]: folder.input.value.trim() };
    for (const { model, box } of boxes) if (box.checked) changes[model.toolsets.path] = [...model.toolsets.value, name];
    return section.save(changes, button, message, "The vault was added.");
  };
  const fixed = settings.models.length - free.length;
  return form(
    "Add a vault",
    section.changed,
    submit,
    folder.node,
    element("fieldset", {}, element("legend", {}, "Models that may use it"), ...boxes.map(({ node }) => node), fixed ? element("p", { class: "hint" }, `${fixed} more ${fixed === 1 ? "has its" : "have their"} toolsets set in the configuration file.`) : null),
    row,
  );
}

function freeName({ toolsets }) {
  const taken = new Set(toolsets.map(({ name }) => name));
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? "vault" : `vault${number}`;
    if (!taken.has(name)) return name;
  }
}
