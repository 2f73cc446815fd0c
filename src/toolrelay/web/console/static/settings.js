// The page of settings. Each section shows a part of the settings and saves its own changes.

import { request } from "./api.js";
import { ApprovalDesk } from "./approvals.js";
import { byId, element, notify } from "./dom.js";
import { showKeys } from "./keys.js";
import { showSessions } from "./sessions.js";
import { showModels } from "./settings_models.js";
import { showRules } from "./settings_rules.js";
import { showTools } from "./settings_tools.js";
import { showVault } from "./settings_vault.js";

const RETRY = 3000;
const SECTIONS = { vault: showVault, models: showModels, tools: showTools };
const unsaved = new Set();

/** What a section needs: it says that it has unsaved changes, and saves them. */
function actions(id) {
  return {
    changed: () => unsaved.add(id),
    async save(changes, button, message, done = "Saved.") {
      if (!Object.keys(changes).length) return say(message, "Nothing was changed.");
      say(message, "");
      const place = [...byId(id).querySelectorAll("form")].indexOf(button.form);
      button.disabled = true;
      try {
        const settings = await request("PATCH", "/api/settings", { changes });
        unsaved.delete(id);
        show(settings);
        const shown = byId(id).querySelectorAll("form")[Math.max(place, 0)];
        shown?.querySelector("[type=submit]").focus();
        say(shown?.querySelector(".message"), done);
      } catch (error) {
        say(message, error.message, true);
      } finally {
        button.disabled = false;
      }
    },
  };
}

function say(node, text, isError = false) {
  if (!node) return;
  node.classList.toggle("error", isError);
  node.textContent = text;
}

/** Show all sections, but those with unsaved changes: what was entered there stays. */
function show(settings) {
  showNotes(settings);
  for (const [id, fill] of Object.entries(SECTIONS)) {
    if (unsaved.has(id)) continue;
    const nodes = fill(settings, actions(id));
    byId(id).querySelector(".body").replaceChildren(...nodes);
  }
}

function showNotes(settings) {
  const notes = [];
  if (!settings.may_change) notes.push("You may look at the settings. Only who runs the gateway may change them: sign in with the address that toolrelay console prints.");
  if (settings.tools.value === "off") notes.push("All tools are turned off by the environment variable TOOLRELAY_TOOLS. What you change counts when they are turned on again.");
  if (!settings.lasts) notes.push("The store is in memory (record = \"none\"): what you change here is gone after a restart.");
  const ignored = settings.ignored.map((each) => {
    const drop = actions("settings-notes");
    const message = element("span", { role: "alert" });
    const button = element("button", { type: "button", onclick: () => drop.save({ [each.path]: null }, button, message) }, "Remove");
    return element("li", {}, element("code", {}, each.path), `: ${each.reason} `, settings.may_change ? button : null, message);
  });
  byId("settings-notes").replaceChildren(
    ...notes.map((text) => element("p", { class: "privacy" }, text)),
    ...(ignored.length ? [element("p", {}, "These changes do not fit the configuration any more, and do not count:"), element("ul", { class: "ignored" }, ...ignored)] : []),
  );
}

async function load() {
  try {
    show(await request("GET", "/api/settings"));
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      const text = "Sign in as the one who runs the gateway to see and change settings.";
      for (const id of Object.keys(SECTIONS)) byId(id).querySelector(".body").replaceChildren(element("p", { class: "hint" }, text));
    } else {
      notify(error.message, { key: "settings", seconds: 10 });
      setTimeout(load, RETRY);
    }
  }
}

new ApprovalDesk({}).start();
load();
showRules(byId("rules").querySelector(".body"));
showKeys();
showSessions();
