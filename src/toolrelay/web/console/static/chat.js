// The chat page: a thin client of /v1/responses and /v1/conversations.

import { Answer, textOf } from "./answer.js";
import { request } from "./api.js";
import { ApprovalDesk } from "./approvals.js";
import * as conversations from "./conversation.js";
import { byId, element, notify } from "./dom.js";
import * as history from "./history.js";
import * as images from "./images.js";
import { Turn } from "./turn.js";

const SUGGESTIONS = [
  ["Count to 100", "count to 100"],
  ["Show Markdown", "repeat: ## Hello\n\nSome **bold** text, a [link](https://example.com) and code:\n\n```python\ndef greet(name: str) -> str:\n    return f\"Hello {name}\"\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"],
  ["Search the notes for bees (asks you first)", "vault search for bees"],
];
const NEAR_END = 80; // pixels

const chat = { id: null, items: [], turn: null, answer: null, editing: null };
const log = byId("log");
const messages = byId("messages");
const desk = new ApprovalDesk({ onChange: showWaiting, shows: true });

// Scrolling: the end stays in view while the reader is there.

let follows = true;
log.addEventListener("scroll", () => (follows = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END));
new ResizeObserver(() => follows && (log.scrollTop = log.scrollHeight)).observe(messages);

// Messages

function showUser(item, index) {
  const content = typeof item.content === "string" ? [{ type: "input_text", text: item.content }] : item.content;
  const pictures = content.filter((part) => part.type === "input_image" && /^data:image\//.test(part.image_url ?? ""));
  const node = element(
    "article",
    { class: "message user", "aria-label": "Your message" },
    element("div", { class: "plain" }, textOf({ content })),
    ...pictures.map((part, number) => element("img", { src: part.image_url, alt: `Image ${number + 1} of the message` })),
    element("button", { type: "button", class: "edit", onclick: () => edit(item, index) }, "Edit"),
  );
  messages.append(node);
  return node;
}

function showItems(items) {
  let answer = null;
  const costs = history.find(chat.id)?.costs ?? {};
  items.forEach((item, index) => {
    if (item.type === "message" && item.role !== "assistant") {
      answer = null;
      if (item.role === "user") showUser(item, index);
      return;
    }
    answer ??= new Answer(messages);
    answer.add(item);
    const next = items[index + 1];
    if (!next || (next.type === "message" && next.role === "user")) answer.finish(costs[item.id]);
  });
}

function clearPage() {
  chat.turn?.leave();
  Object.assign(chat, { id: null, items: [], turn: null, answer: null });
  stopEditing();
  messages.replaceChildren();
  showState();
}

function showState() {
  byId("welcome").hidden = chat.id !== null || chat.turn !== null;
  byId("export").hidden = chat.id === null;
  byId("stop").hidden = chat.turn === null;
  byId("send").disabled = chat.turn !== null;
  showHistory();
  showWaiting();
}

function showWaiting() {
  const question = desk.pending().find((each) => each.conversation && each.conversation === chat.id);
  chat.answer?.showWaiting(question ? `Waiting for an approval: ${question.title}.` : "", () => desk.review(question.id));
}

// Conversations

function showHistory() {
  const entries = history.list(byId("search").value);
  byId("conversations").replaceChildren(
    ...entries.map((entry) =>
      element(
        "li",
        {},
        element("a", { href: `#${encodeURIComponent(entry.id)}`, "aria-current": entry.id === chat.id ? "page" : null }, String(entry.title)),
        element("button", { type: "button", "aria-label": `Delete ${entry.title}`, onclick: () => forget(entry.id) }, "×"),
      ),
    ),
  );
}

async function forget(id) {
  if (!confirm("Delete this conversation?")) return;
  try {
    await conversations.remove(id);
  } catch (error) {
    report(error);
    return;
  }
  history.remove(id);
  if (id === chat.id) location.hash = "";
  showHistory();
}

async function open(id) {
  clearPage();
  byId("history").classList.remove("shown");
  if (!id) return;
  chat.id = id;
  const entry = history.find(id);
  follows = true;
  showState();
  try {
    const running = entry?.running;
    const items = await conversations.loadItems(id);
    if (chat.id !== id) return;
    const token = running?.replace(/^resp_/, "");
    chat.items = running ? items.filter((item) => !String(item.id).includes(token)) : items;
    showItems(chat.items);
    if (running) await resume(running);
  } catch (error) {
    if (chat.id === id) report(error);
  }
}

async function resume(response) {
  const input = await request("GET", `/v1/responses/${encodeURIComponent(response)}/input_items?order=asc`);
  for (const item of input.data) showUser(item, chat.items.length);
  chat.items.push(...input.data);
  await run((turn) => turn.resume(response));
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
  try {
    if (chat.editing !== null) await startBranch(text);
    else if (chat.id === null) await startConversation(text, []);
  } catch (error) {
    byId("input").value = text;
    images.put(pictures);
    report(error);
    return;
  }
  const node = showUser(item, chat.items.length);
  chat.items.push(item);
  follows = true;
  const body = { model, input: [item], conversation: chat.id };
  if (effort) body.reasoning = { effort, summary: "auto" };
  const wasStarted = await run((turn) => turn.start(body));
  if (!wasStarted) {
    node.remove();
    chat.items.pop();
    byId("input").value ||= text;
    images.put(pictures);
  }
}

async function startConversation(text, before) {
  const title = history.titleOf(text);
  const id = before.length ? await conversations.branch(title, before) : await conversations.create(title);
  history.save(id, { title });
  chat.id = id;
  window.history.pushState(null, "", `#${encodeURIComponent(id)}`);
}

/** Ask again with another text: a new conversation that begins with what was before the message. */
async function startBranch(text) {
  const before = chat.items.slice(0, chat.editing);
  await startConversation(text, before);
  stopEditing();
  chat.items = await conversations.loadItems(chat.id);
  messages.replaceChildren();
  showItems(chat.items);
}

/** Run a turn and show it. Return whether the gateway has taken it. */
async function run(begin) {
  const id = chat.id;
  const started = performance.now();
  const answer = new Answer(messages);
  const turn = new Turn((event) => {
    if (event.type === "response.created") history.save(id, { running: event.response.id });
    answer.handle(event);
  });
  Object.assign(chat, { turn, answer });
  showState();
  try {
    const response = await begin(turn);
    finish(id, answer, response, (performance.now() - started) / 1000);
    if (chat.id === id) chat.items = await conversations.loadItems(id);
  } catch (error) {
    if (error.name === "AbortError") return true;
    report(error);
    answer.finish();
    if (turn.id === null) answer.node.remove();
    if (error.status === 404) history.save(id, { running: null });
  } finally {
    if (chat.turn === turn) {
      Object.assign(chat, { turn: null, answer: null });
      showState();
    }
  }
  return turn.id !== null;
}

function finish(id, answer, response, seconds) {
  const usage = response.usage ?? {};
  const lasted = response.completed_at && response.created_at ? Math.max(response.completed_at - response.created_at, 0) : seconds;
  const cost = { input: usage.input_tokens, output: usage.output_tokens, seconds: lasted < 2 ? Math.min(seconds, 2) : lasted, turn: response.id };
  answer.finish(cost);
  if (response.status === "cancelled") answer.footer.prepend("Stopped. ");
  if (response.status === "incomplete") answer.footer.prepend(`Incomplete: ${response.incomplete_details?.reason ?? "unknown"}. `);
  if (response.status === "failed") answer.showError(response.error?.message ?? "The answer failed.");
  const last = response.output?.at(-1)?.id;
  const costs = history.find(id)?.costs ?? {};
  history.save(id, { running: null, costs: last ? { ...costs, [last]: cost } : costs });
}

function edit(item, index) {
  if (chat.turn) return;
  chat.editing = index;
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
    byId("model").replaceChildren(...data.map(({ id }) => element("option", { value: id }, id)));
    const kept = localStorage.getItem("toolrelay.model");
    if (data.some(({ id }) => id === kept)) byId("model").value = kept;
    showSuggestions(data.find((model) => model.owned_by === "toolrelay:demo")?.id);
  } catch (error) {
    report(error);
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

function exportMarkdown() {
  const title = history.find(chat.id)?.title ?? "Conversation";
  const file = new Blob([conversations.toMarkdown(title, chat.items)], { type: "text/markdown" });
  const link = element("a", { href: URL.createObjectURL(file), download: `${title.replace(/[^\p{L}\p{N} _-]/gu, "").trim() || "conversation"}.md` });
  link.click();
  URL.revokeObjectURL(link.href);
}

const idInAddress = () => decodeURIComponent(location.hash.slice(1)).replace(/^main$/, "");

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
byId("search").addEventListener("input", showHistory);
byId("export").addEventListener("click", exportMarkdown);
byId("model").addEventListener("change", () => localStorage.setItem("toolrelay.model", byId("model").value));
byId("toggle-history").addEventListener("click", () => {
  const shown = byId("history").classList.toggle("shown");
  byId("toggle-history").setAttribute("aria-expanded", String(shown));
});
window.addEventListener("hashchange", () => location.hash !== "#main" && open(idInAddress()));
window.addEventListener("storage", showHistory);
byId("base-url").textContent = `${location.origin}/v1`;
images.listen();
loadModels();
open(idInAddress());
desk.start();
