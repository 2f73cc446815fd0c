// Elements from plain values. Text is always set as text, never as HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Show a line at the top of the page. Return a function that removes it. */
export function notify(text, { link = null, seconds = 0, key = "" } = {}) {
  const area = byId("notices");
  if (key) for (const old of area.querySelectorAll("[data-key]")) if (old.dataset.key === key) old.remove();
  const notice = element("div", { class: "notice" }, element("span", {}, text));
  if (key) notice.dataset.key = key;
  if (link) notice.append(" ", element("a", { href: link.href }, link.text));
  const remove = () => notice.remove();
  notice.append(element("button", { type: "button", "aria-label": "Close this notice", onclick: remove }, "×"));
  area.append(notice);
  if (seconds) setTimeout(remove, seconds * 1000);
  return remove;
}

export const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function formatSize(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** Return a duration in words, exact enough to decide by. */
export function formatDuration(seconds) {
  const units = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [name, size] = units.find(([, length]) => seconds >= 2 * length) ?? units.at(-1);
  const count = Math.max(1, Math.floor(seconds / size));
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}
