// The openai package and stored state: `node state.mjs BASE_URL KEY OTHER_KEY` plays the stories below and prints what it saw as JSON.
import OpenAI from "openai";

const [baseURL, apiKey, otherKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const other = new OpenAI({ baseURL, apiKey: otherKey, maxRetries: 0 });
const terminal = ["response.completed", "response.incomplete", "response.failed"];

async function failure(attempt) {
  try {
    await attempt();
    return null;
  } catch (error) {
    return [error.constructor.name, error.status, error.code];
  }
}

async function all(pages) {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
}

async function stored() {
  const first = await client.responses.create({ model: "with_tools", input: "What is fog?" });
  const second = await client.responses.create({ model: "plain", input: "Sure?", previous_response_id: first.id });
  const retrieved = await client.responses.retrieve(first.id);
  const given = await all(client.responses.inputItems.list(first.id, { order: "asc", limit: 1 }));
  const hidden = await failure(() => other.responses.retrieve(first.id));
  await client.responses.delete(first.id);
  return {
    same: JSON.stringify(retrieved.output) === JSON.stringify(first.output) && retrieved.output_text === first.output_text,
    types: first.output.map((item) => item.type),
    input: given.map((item) => item.content[0].text),
    second: second.output_text,
    hidden,
    deleted: await failure(() => client.responses.retrieve(first.id)),
    broken: await failure(() => client.responses.create({ model: "plain", input: "?", previous_response_id: second.id })),
    unknown: await failure(() => client.responses.create({ model: "plain", input: "?", previous_response_id: "resp_0" })),
  };
}

async function background() {
  let polled = await client.responses.create({ model: "plain", input: "Hi", background: true });
  const created = polled.status;
  while (["queued", "in_progress"].includes(polled.status)) polled = await client.responses.retrieve(polled.id);
  const events = [];
  const stream = await client.responses.create({ model: "plain", input: "Count", background: true, stream: true });
  for await (const event of stream) {
    events.push(event);
    if (event.sequence_number === 3) break; // drops the connection
  }
  const id = events[0].response.id;
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: 3 })) events.push(event);
  const again = await all(await client.responses.retrieve(id, { stream: true }));
  return {
    created,
    polled: [polled.status, polled.output_text],
    gapless: events.every((event, place) => event.sequence_number === place),
    ends: events.filter((event) => terminal.includes(event.type)).map((event) => event.type),
    last: events.at(-1).type,
    text: events.at(-1).response.output[0].content[0].text,
    again: JSON.stringify(again) === JSON.stringify(events),
    cancelled: (await client.responses.cancel(id)).status,
    unstored: await failure(() => client.responses.create({ model: "plain", input: "Hi", background: true, store: false })),
  };
}

async function conversations() {
  const created = await client.conversations.create({ metadata: { a: "b" }, items: [{ role: "user", content: "0" }] });
  const updated = await client.conversations.update(created.id, { metadata: { a: "c" } });
  const first = await client.responses.create({ model: "plain", input: "1", conversation: created.id });
  const second = await client.responses.create({ model: "plain", input: "2", conversation: { id: created.id } });
  const added = await client.conversations.items.create(created.id, { items: [{ role: "user", content: "3" }] });
  const items = await all(client.conversations.items.list(created.id, { order: "asc", limit: 2 }));
  const hidden = await failure(() => other.conversations.items.list(created.id));
  const retrieved = await client.conversations.items.retrieve(added.data[0].id, { conversation_id: created.id });
  await client.conversations.items.delete(added.data[0].id, { conversation_id: created.id });
  const left = await all(client.conversations.items.list(created.id));
  const deleted = await client.conversations.delete(created.id);
  return {
    metadata: [created.metadata, updated.metadata],
    texts: items.map((item) => item.content[0].text),
    ids: [items[2].id === first.output[0].id, items[4].id === second.output[0].id, retrieved.id === items[5].id],
    left: left.length,
    hidden,
    deleted: deleted.deleted,
    gone: await failure(() => client.conversations.retrieve(created.id)),
  };
}

console.log(JSON.stringify({ stored: await stored(), background: await background(), conversations: await conversations() }));
