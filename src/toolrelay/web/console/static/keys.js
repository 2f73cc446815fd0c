// The section "Keys" of the settings: list, create, rotate and revoke. Names of keys are text of strangers.

import { request } from "./api.js";
import { byId, element, formatTime, notify } from "./dom.js";

const BASE = "/api/keys";
const OPERATOR = "Only whoever runs the gateway sees its keys. Sign in there with the address that `toolrelay console` prints, or use `toolrelay keys`.";

/** Fill the section. */
export async function showKeys() {
  byId("new-key").addEventListener("submit", create);
  await load();
}

async function load() {
  const status = byId("keys-status");
  try {
    const { keys } = await request("GET", BASE);
    byId("key-rows").replaceChildren(...keys.map(row));
    const valid = keys.filter((key) => key.revoked_at === null).length;
    status.textContent = valid ? "" : "There are no keys: every program on this machine may use the gateway. From the first key on, every client needs one.";
    byId("keys-content").hidden = false;
  } catch (error) {
    status.textContent = error.status === 401 || error.status === 403 ? OPERATOR : error.message;
    byId("keys-content").hidden = true;
  }
}

function row(key) {
  const isRevoked = key.revoked_at !== null;
  const canChange = key.source === "store" && !isRevoked;
  const from = key.source === "file" ? "configuration file" : isRevoked ? `revoked ${formatTime(key.revoked_at)}` : "made here";
  const action = (name, act) => element("button", { type: "button", "aria-label": `${name} the key ${key.name}`, onclick: act }, name);
  return element(
    "tr",
    { class: isRevoked ? "revoked" : "" },
    element("th", { scope: "row" }, key.name, key.approve ? element("small", {}, " may approve") : null),
    cell("Models", key.models.join(", ") || "none"),
    cell("Toolsets", key.toolsets.join(", ") || "none"),
    cell("Per minute", key.requests_per_minute ? String(key.requests_per_minute) : "general limit"),
    cell("Last used", key.last_used_at ? formatTime(key.last_used_at) : "never"),
    cell("From", from),
    element(
      "td",
      { class: "actions" },
      canChange ? action("Rotate", () => confirmChange(key, "Rotate")) : "–",
      canChange ? " " : null,
      canChange ? action("Revoke", () => confirmChange(key, "Revoke")) : null,
    ),
  );
}

function cell(label, text) {
  const made = element("td", {}, text);
  made.dataset.label = label;
  return made;
}

const split = (text) => text.split(",").map((part) => part.trim()).filter((part) => part !== "");

async function create(event) {
  event.preventDefault();
  const problem = byId("key-error");
  problem.hidden = true;
  const wanted = {
    name: byId("key-name").value.trim(),
    models: split(byId("key-models").value),
    toolsets: split(byId("key-toolsets").value),
    requests_per_minute: Number(byId("key-limit").value),
    approve: byId("key-approve").checked,
  };
  try {
    const made = await request("POST", BASE, wanted);
    byId("new-key").reset();
    showSecret(made, "Key created");
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    byId("key-name").focus();
  }
  await load();
}

function openDialog(title, ...content) {
  const dialog = byId("key-dialog");
  const heading = element("h2", { id: "key-dialog-title", tabIndex: -1 }, title);
  dialog.replaceChildren(heading, ...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

const button = (text, onclick, kind = "") => element("button", { type: "button", class: kind, onclick }, text);

/** Show a new key. It is in the page only as long as the dialog is open. */
function showSecret(made, title) {
  const copied = element("span", { class: "hint", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(made.key);
      copied.textContent = "Copied.";
    } catch {
      copied.textContent = "Select it and copy it yourself: the browser does not allow this page to.";
    }
  };
  const client = `base URL  ${location.origin}/v1\nAPI key   ${made.key}`;
  const dialog = openDialog(
    title,
    element("p", {}, `The key ${made.name} is shown only now. The gateway keeps its hash.`),
    element("p", { class: "secret" }, element("code", { id: "new-key-text" }, made.key), button("Copy", copy, "primary"), copied),
    made.notice ? element("p", { class: "privacy" }, made.notice) : null,
    element("h3", {}, "In a client of the OpenAI API"),
    element("pre", { tabIndex: 0 }, client),
    element("footer", {}, button("Close", () => dialog.close())),
  );
  dialog.addEventListener("close", () => dialog.replaceChildren(), { once: true });
}

function confirmChange(key, action) {
  const isRotation = action === "Rotate";
  const text = isRotation
    ? "The key that its clients have ends at once, and so do its sessions. They need the new one. Its data stays."
    : "Its clients are refused at once, and its sessions end. The name cannot be used again.";
  const dialog = openDialog(
    `${action} the key ${key.name}?`,
    element("p", {}, text),
    element("footer", {}, button(action, () => change(key, isRotation, dialog), "primary"), button("Cancel", () => dialog.close())),
  );
}

async function change(key, isRotation, dialog) {
  const path = `${BASE}/${encodeURIComponent(key.id)}`;
  try {
    const made = await (isRotation ? request("POST", `${path}/rotate`) : request("DELETE", path));
    if (isRotation) showSecret(made, "Key rotated");
    else {
      dialog.close();
      notify(made.notice ?? `The key ${key.name} is revoked.`, { key: "keys", seconds: made.notice ? 0 : 10 });
    }
  } catch (error) {
    dialog.close();
    notify(error.message, { key: "keys" });
  }
  await load();
}
