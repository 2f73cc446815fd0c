// Conversations on the server: their items, branches, and a Markdown export.

import { ApiError, request } from "./api.js";
import { textOf } from "./answer.js";

const BATCH = 20; // items that the API takes in one request

const url = (id, rest = "") => `/v1/conversations/${encodeURIComponent(id)}${rest}`;

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

export async function loadItems(id) {
  const items = [];
  let after = "";
  for (;;) {
    const page = await request("GET", url(id, `/items?order=asc&limit=100${after && `&after=${encodeURIComponent(after)}`}`));
    items.push(...page.data);
    if (!page.has_more) return items;
    after = page.last_id;
  }
}

export async function remove(id) {
  try {
    await request("DELETE", url(id));
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}

export function toMarkdown(title, items) {
  const sections = items.map((item) => {
    if (item.type === "message") return `## ${item.role === "user" ? "You" : "Model"}\n\n${textOf(item)}`;
    if (item.type === "reasoning") return textOf(item) && `> ${textOf(item).replaceAll("\n", "\n> ")}`;
    const outcome = item.error ? `failed: ${JSON.stringify(item.error)}` : String(item.output ?? "");
    const fence = "`".repeat(Math.max(3, ...(outcome.match(/`+/g) ?? []).map((run) => run.length + 1)));
    return `**Tool ${item.name ?? item.type}** \`${item.arguments ?? ""}\`\n\n${fence}\n${outcome}\n${fence}`;
  });
  return `# ${title}\n\n${sections.filter(Boolean).join("\n\n")}\n`;
}
