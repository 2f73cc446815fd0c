// The list of conversations: the gateway's, or for those who are not signed in that of this browser.

import { request } from "./api.js";

const KEY = "toolrelay.conversations";
const MAX_KEPT = 500;

/** Return {entries, next, isShared}: entries as {id, title, running}, the last used first, and where the list goes on. */
export async function load(search = "", before = "") {
  try {
    const query = new URLSearchParams({ q: search.trim().slice(0, 200), before });
    const { data, next } = await request("GET", `/api/conversations?${query}`);
    return { entries: data, next, isShared: true };
  } catch (error) {
    if (error.status !== 401 && error.status !== 403) throw error;
    return { entries: listKept(search), next: null, isShared: false };
  }
}

// Ids and titles in this browser, because without a session the gateway lists nothing.

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((entry) => typeof entry?.id === "string") : [];
  } catch {
    return [];
  }
}

function write(entries) {
  try {
    localStorage.setItem(KEY, JSON.stringify(entries.slice(0, MAX_KEPT)));
  } catch {
    // A full or forbidden storage costs the list, not the chat.
  }
}

function listKept(search) {
  const wanted = search.trim().toLowerCase();
  return read().filter((entry) => String(entry.title).toLowerCase().includes(wanted));
}

/** Put a conversation first. */
export function keep(id, title) {
  write([{ id, title }, ...read().filter((entry) => entry.id !== id)]);
}

export function forget(id) {
  write(read().filter((entry) => entry.id !== id));
}

export function titleOf(text) {
  const line = text.trim().split("\n")[0] || "Image";
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
