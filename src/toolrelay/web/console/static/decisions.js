// What people decided about calls, for those who may see it.

import { request } from "./api.js";
import { differences } from "./form.js";

const WORDS = { allowed: "allowed", edited: "allowed with changes", denied: "denied", expired: "not answered", withdrawn: "withdrawn" };
const MAX_CHANGES = 200; // characters

let mayAsk = true; // until the gateway says no

/** Return a line about the answer to a question and whether it kept the tool from running, or null if there is none to show. */
export async function describeDecision(id) {
  if (!mayAsk) return null;
  try {
    const { kind, status, answered_by: by, arguments: before, ran_with: after, reason } = await request("GET", `/approvals/${encodeURIComponent(id)}`);
    if (!WORDS[status]) return null;
    const more = after ? differences(before, after).join(", ") : (reason ?? "");
    const shown = more.length > MAX_CHANGES ? `${more.slice(0, MAX_CHANGES)}…` : more;
    return { isRefused: kind === "run" && status === "denied", line: `${WORDS[status]}${by ? ` by ${by}` : ""}${shown ? `: ${shown}` : ""}` };
  } catch (error) {
    if (error.status === 401 || error.status === 403) mayAsk = false;
    return null;
  }
}
