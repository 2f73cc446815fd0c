// Conversations on the server: their items, branches, titles, costs, and a Markdown export.

import { errorText, textOf } from "./answer.js";
import { ApiError, request } from "./api.js";

const BATCH = 20; // items that the API takes in one request
const PAGE = 100; // items that it returns in one
const MAX_COSTS = 50; // answers in one request
const TOKEN = /^[a-z]+_([0-9a-z]{20})[0-9a-z]{4}$/;

const url = (id, rest = "") => `/v1/conversations/${encodeURIComponent(id)}${rest}`;
const listUrl = (id, rest = "") => `/api/conversations/${encodeURIComponent(id)}${rest}`;

export async function create(title, items = []) {
  const made = await request("POST", "/v1/conversations", { metadata: { title }, items: items.slice(0, BATCH) });
  for (let start = BATCH; start < items.length; start += BATCH) {
    await request("POST", url(made.id, "/items"), { items: items.slice(start, start + BATCH) });
  }
  return made.id;
}

/** Make a conversation that begins with these items. If the gateway takes no calls of the past, only the messages are copied. */
export async function branch(title, items) {
  const copies = items.map(({ id, status, ...item }) => item);
  try {
    return await create(title, copies);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 400) throw error;
    return create(title, copies.filter((item) => item.type === "message"));
  }
}

/** Return {title, running}: `running` is a response that has not ended. */
export function describe(id) {
  return request("GET", listUrl(id));
}

export async function rename(id, title) {
  const { metadata } = await request("GET", url(id));
  await request("POST", url(id), { metadata: { ...metadata, title } });
}

export async function remove(id) {
  try {
    await request("DELETE", url(id));
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}

function page(id, order, limit, after) {
  return request("GET", url(id, `/items?order=${order}&limit=${limit}${after ? `&after=${encodeURIComponent(after)}` : ""}`));
}

/** Return the last items, or those before an item, in order, and whether there are more before them. */
export async function loadBefore(id, limit, before = null) {
  const found = await page(id, "desc", limit, before);
  return { items: found.data.toReversed(), hasMore: found.has_more };
}

/** Return all items before an item. */
export async function loadAllBefore(id, before) {
  const items = [];
  for (;;) {
    const found = await loadBefore(id, PAGE, items[0]?.id ?? before);
    items.unshift(...found.items);
    if (!found.hasMore) return items;
  }
}

/** Return the items after an item, or all. */
export async function loadAfter(id, after = null) {
  const items = [];
  for (;;) {
    const found = await page(id, "asc", PAGE, items.at(-1)?.id ?? after);
    items.push(...found.data);
    if (!found.has_more) return items;
  }
}

/** Return the response that an item is part of, or null. */
export function responseOf(item) {
  const token = TOKEN.exec(item.id ?? "")?.[1];
  return token ? `resp_${token}` : null;
}

/** Return the costs of responses, by id: {input, output, seconds, status}. */
export async function loadCosts(id, responses) {
  const costs = new Map();
  for (let start = 0; start < responses.length; start += MAX_COSTS) {
    const ids = responses.slice(start, start + MAX_COSTS).map(encodeURIComponent).join(",");
    for (const cost of (await request("GET", listUrl(id, `/answers?ids=${ids}`))).data) costs.set(cost.id, cost);
  }
  return costs;
}

export function toMarkdown(title, items) {
  const sections = items.map((item) => {
    if (item.type === "message") return `## ${item.role === "user" ? "You" : "Model"}\n\n${textOf(item)}`;
    if (item.type === "reasoning") return textOf(item) && `> ${textOf(item).replaceAll("\n", "\n> ")}`;
    const outcome = item.error ? `failed: ${errorText(item.error)}` : String(item.output ?? "");
    const fence = "`".repeat(Math.max(3, ...(outcome.match(/`+/g) ?? []).map((run) => run.length + 1)));
    return `**Tool ${item.name ?? item.type}** \`${item.arguments ?? ""}\`\n\n${fence}\n${outcome}\n${fence}`;
  });
  return `# ${title}\n\n${sections.filter(Boolean).join("\n\n")}\n`;
}
