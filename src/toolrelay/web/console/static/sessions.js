// The section "Signed-in browsers" of the settings: list, revoke, sign out.

import { request } from "./api.js";
import { byId, element, formatTime, notify } from "./dom.js";

const BASE = "/console/sessions";

/** Fill the section. */
export async function showSessions() {
  const status = byId("sessions-status");
  try {
    const { sessions } = await request("GET", BASE);
    byId("session-list").replaceChildren(...sessions.map(item));
    byId("sign-out").hidden = !sessions.some(({ current }) => current);
    status.textContent = sessions.length ? "" : "No browser is signed in.";
  } catch (error) {
    byId("session-list").replaceChildren();
    status.textContent = error.status === 401 ? "Nobody is signed in in this browser." : error.message;
  }
}

function item(session) {
  const used = `Used ${formatTime(session.last_used_at)}, ends ${formatTime(session.expires_at)}`;
  const label = `Revoke the session of ${session.key}, used ${formatTime(session.last_used_at)}`;
  const action = session.current
    ? element("strong", {}, "This browser")
    : element("button", { type: "button", "aria-label": label, onclick: () => revoke(session) }, "Revoke");
  return element(
    "li",
    {},
    element("h3", {}, session.key, session.may_approve ? element("small", {}, " may approve") : null),
    element("p", { class: "hint" }, session.user_agent || "unknown browser"),
    element("p", { class: "hint" }, used),
    action,
  );
}

async function revoke(session) {
  try {
    await request("DELETE", `${BASE}/${encodeURIComponent(session.id)}`);
  } catch (error) {
    notify(error.message, { key: "sessions", seconds: 10 });
  }
  await showSessions();
}
