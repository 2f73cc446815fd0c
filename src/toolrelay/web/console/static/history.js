// The list of conversations. The API has no list of them, so ids and titles are kept in this browser.

const KEY = "toolrelay.conversations";
const MAX_KEPT = 500;

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((entry) => typeof entry?.id === "string") : [];
  } catch {
    return [];
  }
}

export function list(search = "") {
  const wanted = search.trim().toLowerCase();
  const entries = read().filter((entry) => String(entry.title).toLowerCase().includes(wanted));
  return entries.sort((one, other) => (other.used ?? 0) - (one.used ?? 0));
}

export function find(id) {
  return read().find((entry) => entry.id === id) ?? null;
}

/** Change members of an entry, or add it. */
export function save(id, members) {
  const entries = read();
  let entry = entries.find((each) => each.id === id);
  if (!entry) entries.push((entry = { id, title: "New chat", costs: {} }));
  Object.assign(entry, members, { used: Date.now() });
  entries.sort((one, other) => other.used - one.used);
  try {
    localStorage.setItem(KEY, JSON.stringify(entries.slice(0, MAX_KEPT)));
  } catch {
    // A full or forbidden storage costs the list, not the chat.
  }
}

export function remove(id) {
  localStorage.setItem(KEY, JSON.stringify(read().filter((entry) => entry.id !== id)));
}

export function titleOf(text) {
  const line = text.trim().split("\n")[0] || "Image";
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
