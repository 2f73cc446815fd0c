// The chat page: a thin client of /v1/responses and /v1/conversations.

import { Answer, textOf } from "./answer.js";
import { request } from "./api.js";
import { ApprovalDesk } from "./approvals.js";
import { onRestored, reportLost, reportRestored } from "./connection.js";
import * as conversations from "./conversation.js";
import { byId, element, notify } from "./dom.js";
import { titleOf } from "./history.js";
import * as images from "./images.js";
import { Sidebar } from "./sidebar.js";
import { LongText } from "./text.js";
import { Turn } from "./turn.js";

const SUGGESTIONS = [
  ["Count to 100", "count to 100"],
  ["Show Markdown", "repeat: ## Hello\n\nSome **bold** text, a [link](https://example.com) and code:\n\n```python\ndef greet(name: str) -> str:\n    return f\"Hello {name}\"\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"],
  ["Search the notes for bees (asks you first)", "vault search for bees"],
];
const NEAR_END = 80; // pixels
const LATEST = 60; // items of a conversation that are shown at first
const MAX_SHOWN = 100_000; // characters of a message, until all is asked for

// `items` are those on the page, without older ones. Those that the gateway has not confirmed yet have no id. `added` ends when
// those of the last turn are there.
const chat = { id: null, title: "", items: [], hasOlder: false, isLoaded: true, turn: null, answer: null, added: null, editing: null };
const log = byId("log");
const messages = byId("messages");
const desk = new ApprovalDesk({ onChange: showWaiting, shows: true });
const sidebar = new Sidebar({ onDelete: (id) => id === chat.id && (location.hash = ""), report });

// Scrolling: the end stays in view while the reader is there.

let follows = true;
log.addEventListener("scroll", () => (follows = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END));
new ResizeObserver(() => follows && (log.scrollTop = log.scrollHeight)).observe(messages);

// Messages

function makeUser(item) {
  const content = typeof item.content === "string" ? [{ type: "input_text", text: item.content }] : item.content;
  const pictures = content.filter((part) => part.type === "input_image" && /^data:image\//.test(part.image_url ?? ""));
  const text = element("div", { class: "plain" });
  new LongText(text, MAX_SHOWN).append(textOf({ content }));
  return element(
    "article",
    { class: "message user", "aria-label": "Your message" },
    text,
    ...pictures.map((part, number) => element("img", { src: part.image_url, alt: `Image ${number + 1} of the message` })),
    element("button", { type: "button", class: "edit", onclick: () => edit(item) }, "Edit"),
  );
}

function showUser(item) {
  const node = makeUser(item);
  messages.append(node);
  return node;
}

/** Show items in a container, and load what their answers cost. */
function showItems(items, container) {
  const answers = new Map(); // by response
  let answer = null;
  items.forEach((item, index) => {
    if (item.type === "message" && item.role !== "assistant") {
      answer = null;
      if (item.role === "user") container.append(makeUser(item));
      return;
    }
    answer ??= new Answer(container);
    answer.add(item);
    const response = conversations.responseOf(item);
    if (response) answers.set(response, answer);
    const next = items[index + 1];
    if (!next || (next.type === "message" && next.role === "user")) answer.finish();
  });
  showCosts(answers);
}

async function showCosts(answers) {
  if (!answers.size) return;
  try {
    const costs = await conversations.loadCosts(chat.id, [...answers.keys()]);
    for (const [response, cost] of costs) answers.get(response)?.showCost(cost);
  } catch (error) {
    if (error.status !== 404) report(error);
  }
}

async function showOlder() {
  const { id } = chat;
  const button = byId("older");
  button.disabled = true;
  try {
    const { items, hasMore } = await conversations.loadBefore(id, LATEST, chat.items[0]?.id);
    if (chat.id !== id) return;
    const height = log.scrollHeight - log.scrollTop;
    const made = element("div", {});
    showItems(items, made);
    messages.prepend(...made.childNodes);
    chat.items.unshift(...items);
    chat.hasOlder = hasMore;
    log.scrollTop = log.scrollHeight - height;
    showState();
  } catch (error) {
    report(error);
  } finally {
    button.disabled = false;
  }
}

function clearPage() {
  chat.turn?.leave();
  Object.assign(chat, { id: null, title: "", items: [], hasOlder: false, isLoaded: true, turn: null, answer: null });
  stopEditing();
  messages.replaceChildren();
  showState();
}

function showState() {
  byId("welcome").hidden = chat.id !== null || chat.turn !== null;
  byId("export").hidden = chat.id === null;
  byId("older").hidden = !chat.hasOlder;
  byId("stop").hidden = chat.turn === null;
  byId("send").disabled = chat.turn !== null;
  sidebar.mark(chat.id);
  showWaiting();
}

function showWaiting() {
  const question = desk.pending().find((each) => each.conversation && each.conversation === chat.id);
  chat.answer?.showWaiting(question ? `Waiting for an approval: ${question.title}.` : "", () => desk.review(question.id));
}

function announce(text) {
  byId("announcement").textContent = text;
}

// Conversations

async function open(id) {
  clearPage();
  byId("history").classList.remove("shown");
  if (!id) return;
  Object.assign(chat, { id, isLoaded: false });
  follows = true;
  showState();
  try {
    const { title, running } = await conversations.describe(id);
    const { items, hasMore } = await conversations.loadBefore(id, LATEST);
    if (chat.id !== id) return;
    const known = running ? items.filter((item) => conversations.responseOf(item) !== running) : items;
    Object.assign(chat, { title, items: known, hasOlder: hasMore, isLoaded: true });
    showItems(chat.items, messages);
    showState();
    if (running) await resume(running);
  } catch (error) {
    if (chat.id === id) report(error);
  }
}

async function resume(response) {
  const input = await request("GET", `/v1/responses/${encodeURIComponent(response)}/input_items?order=asc&limit=100`);
  const items = input.data.map(({ id, ...item }) => item); // they become part of the conversation at the end
  for (const item of items) if (item.type === "message" && item.role === "user") showUser(item);
  chat.items.push(...items);
  await run((turn) => turn.resume(response));
}

/** Load what a turn has added. The message on the page becomes the one of the conversation. */
async function loadAdded(id) {
  const confirmed = chat.items.filter((item) => item.id);
  const own = chat.items.findLast((item) => !item.id && item.role === "user");
  const added = await conversations.loadAfter(id, confirmed.at(-1)?.id);
  if (chat.id !== id) return;
  const index = added.findLastIndex((item) => item.type === "message" && item.role === "user");
  if (own && index >= 0) added[index] = Object.assign(own, added[index]);
  chat.items = [...confirmed, ...added];
}

/** Return all items before one of those on the page, also older ones. */
async function allBefore(item) {
  const index = chat.items.indexOf(item);
  const shown = index < 0 ? chat.items : chat.items.slice(0, index);
  const first = chat.items.find((each) => each.id)?.id;
  return chat.hasOlder ? [...(await conversations.loadAllBefore(chat.id, first)), ...shown] : shown;
}

function report(error) {
  if (error.name === "AbortError") return;
  const link = error.status === 401 ? { href: "/console/sign-in", text: "Sign in" } : null;
  notify(error.message, { link, key: `error ${error.status}` });
}

// Asking

async function ask(text, pictures) {
  const content = [
    ...(text ? [{ type: "input_text", text }] : []),
    ...pictures.map((image_url) => ({ type: "input_image", image_url, detail: "auto" })),
  ];
  const item = { type: "message", role: "user", content };
  const model = byId("model").value;
  const effort = byId("effort").value;
  await chat.added;
  try {
    if (chat.editing !== null) await startBranch(text);
    else if (chat.id === null) await startConversation(text, []);
  } catch (error) {
    byId("input").value = text;
    images.put(pictures);
    report(error);
    return;
  }
  const node = showUser(item);
  chat.items.push(item);
  follows = true;
  const body = { model, input: [item], conversation: chat.id };
  if (effort) body.reasoning = { effort, summary: "auto" };
  const wasStarted = await run((turn) => turn.start(body));
  if (!wasStarted) {
    node.remove();
    chat.items = chat.items.filter((each) => each !== item);
    byId("input").value ||= text;
    images.put(pictures);
  }
}

async function startConversation(text, before) {
  const title = titleOf(text);
  const id = before.length ? await conversations.branch(title, before) : await conversations.create(title);
  Object.assign(chat, { id, title });
  window.history.pushState(null, "", `#${encodeURIComponent(id)}`);
  sidebar.add(id, title);
}

/** Ask again with another text: a new conversation that begins with what was before the message. */
async function startBranch(text) {
  await startConversation(text, await allBefore(chat.editing));
  stopEditing();
  const { items, hasMore } = await conversations.loadBefore(chat.id, LATEST);
  Object.assign(chat, { items, hasOlder: hasMore });
  messages.replaceChildren();
  showItems(items, messages);
}

/** Run a turn and show it. Return whether the gateway has taken it. */
async function run(begin) {
  const id = chat.id;
  const started = performance.now();
  const answer = new Answer(messages);
  const turn = new Turn((event) => answer.handle(event));
  Object.assign(chat, { turn, answer });
  showState();
  announce("The model is answering.");
  try {
    const response = await begin(turn);
    finish(answer, response, (performance.now() - started) / 1000);
    if (chat.id === id) {
      chat.added = loadAdded(id).catch(report);
      if (response.status === "completed") showCosts(new Map([[turn.id, answer]]));
    }
    sidebar.refresh();
  } catch (error) {
    if (error.name === "AbortError") return true;
    report(error);
    answer.finish();
    if (turn.id === null) answer.node.remove();
  } finally {
    if (chat.turn === turn) {
      Object.assign(chat, { turn: null, answer: null });
      showState();
    }
  }
  return turn.id !== null;
}

function finish(answer, response, seconds) {
  const usage = response.usage ?? {};
  answer.finish({ id: response.id, input: usage.input_tokens, output: usage.output_tokens, seconds, status: response.status });
  if (response.status === "incomplete") answer.footer.prepend(`Incomplete: ${response.incomplete_details?.reason ?? "unknown"}. `);
  if (response.status === "failed") answer.showError(response.error?.message ?? "The answer failed.");
  announce(response.status === "completed" ? "The answer is complete." : "The answer ended early.");
}

function edit(item) {
  if (chat.turn) return;
  chat.editing = item;
  byId("editing").hidden = false;
  byId("input").value = textOf(item);
  images.put((Array.isArray(item.content) ? item.content : []).filter((part) => part.type === "input_image").map((part) => part.image_url));
  byId("input").focus();
}

function stopEditing() {
  chat.editing = null;
  byId("editing").hidden = true;
}

function submit() {
  const text = byId("input").value.trim();
  if (chat.turn || byId("send").disabled) return;
  const pictures = images.take();
  if (!text && !pictures.length) return;
  byId("input").value = "";
  byId("send").disabled = true; // until the turn has begun
  ask(text, pictures).finally(showState);
}

// Set-up

async function loadModels() {
  try {
    const { data } = await request("GET", "/v1/models");
    reportRestored();
    byId("model").replaceChildren(...data.map(({ id }) => element("option", { value: id }, id)));
    const kept = localStorage.getItem("toolrelay.model");
    if (data.some(({ id }) => id === kept)) byId("model").value = kept;
    showSuggestions(data[0]?.owned_by === "toolrelay:demo" ? data[0].id : undefined); // not if it stands behind configured models
  } catch (error) {
    if (error.status === 0) reportLost();
    else report(error);
    if (error.mayPass) setTimeout(loadModels, 3000);
  }
}

function showSuggestions(demo) {
  byId("suggestions").hidden = demo === undefined;
  const choose = (text) => {
    byId("model").value = demo;
    byId("input").value = text;
    submit();
  };
  const made = SUGGESTIONS.map(([label, text]) => element("li", {}, element("button", { type: "button", onclick: () => choose(text) }, label)));
  document.querySelector(".suggestions").replaceChildren(...made);
}

async function exportMarkdown() {
  await chat.added;
  const title = sidebar.titleOf(chat.id) || chat.title || "Conversation";
  try {
    const file = new Blob([conversations.toMarkdown(title, await allBefore(null))], { type: "text/markdown" });
    const link = element("a", { href: URL.createObjectURL(file), download: `${title.replace(/[^\p{L}\p{N} _-]/gu, "").trim() || "conversation"}.md` });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    report(error);
  }
}

function idInAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1)).replace(/^main$/, "");
  } catch {
    return ""; // not an address that this page has made
  }
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
byId("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
byId("stop").addEventListener("click", () => chat.turn?.stop().catch(report));
byId("stop-editing").addEventListener("click", () => {
  stopEditing();
  byId("input").value = "";
  images.take();
});
byId("new-chat").addEventListener("click", () => {
  if (location.hash) location.hash = "";
  else open("");
  byId("input").focus();
});
byId("older").addEventListener("click", showOlder);
byId("export").addEventListener("click", exportMarkdown);
byId("model").addEventListener("change", () => localStorage.setItem("toolrelay.model", byId("model").value));
byId("toggle-history").addEventListener("click", () => {
  const shown = byId("history").classList.toggle("shown");
  byId("toggle-history").setAttribute("aria-expanded", String(shown));
});
window.addEventListener("hashchange", () => location.hash !== "#main" && open(idInAddress()));
onRestored(() => {
  if (!chat.isLoaded) open(chat.id);
  sidebar.refresh();
});
byId("base-url").textContent = `${location.origin}/v1`;
images.listen();
loadModels();
sidebar.refresh();
open(idInAddress());
desk.start();
