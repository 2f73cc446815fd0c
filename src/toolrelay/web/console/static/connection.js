// Whether the gateway can be reached. The page says so when it cannot, and once when it can again.

import { notify } from "./dom.js";

const listeners = [];
let clear = null;

/** Call a function each time the gateway is back. */
export function onRestored(listener) {
  listeners.push(listener);
}

export function reportLost() {
  clear ??= notify("The connection to the gateway is lost. Trying again …", { key: "connection" });
}

export function reportRestored() {
  if (!clear) return;
  clear();
  clear = null;
  notify("Connected again.", { seconds: 4, key: "connection" });
  for (const listener of listeners) listener();
}
