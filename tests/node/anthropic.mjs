// Anthropic's SDK as a client: `node anthropic.mjs BASE_URL '[MODEL, …]'` plays the stories below with each model and prints what it saw as JSON.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";

const [baseURL, models] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey: "none", maxRetries: 0 });

const question = "What is the weather and the time in Paris?";
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const results = { get_weather: "18 degrees", get_time: "noon" };
const tools = Object.keys(results).map((name) => ({ name, description: `Say ${name}.`, input_schema: schema }));
const ask = { max_tokens: 1000, tools };

const callsOf = (message) => message.content.filter((block) => block.type === "tool_use");
const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const plain = (calls) => calls.map((call) => [call.name, call.input]);
const answered = (message) => ({
  role: "user",
  content: callsOf(message).map((call) => ({ type: "tool_result", tool_use_id: call.id, content: results[call.name] })),
});

async function whole(model) {
  const messages = [{ role: "user", content: question }];
  const first = await client.messages.create({ ...ask, model, messages });
  messages.push({ role: "assistant", content: first.content }, answered(first));
  const second = await client.messages.create({ ...ask, model, messages });
  return {
    calls: plain(callsOf(first)),
    ids: new Set(callsOf(first).map((call) => call.id)).size,
    stops: [first.stop_reason, second.stop_reason],
    text: textOf(second),
    counted: second.usage.input_tokens > 0 && second.usage.output_tokens > 0,
    request: Boolean(second._request_id),
  };
}

// The stream helper: it accumulates events, parses partial arguments, and emits what it has read.
async function streamed(model) {
  const messages = [{ role: "user", content: question }];
  const seen = { inputs: 0, blocks: [], types: [], texts: 0 };
  const stream = client.messages
    .stream({ ...ask, model, messages })
    .on("inputJson", () => seen.inputs++)
    .on("contentBlock", (block) => seen.blocks.push(block.type))
    .on("streamEvent", (event) => seen.types.push(event.type));
  const first = await stream.finalMessage();
  messages.push({ role: "assistant", content: first.content }, answered(first));
  const second = client.messages.stream({ ...ask, model, messages }).on("text", () => seen.texts++);
  return {
    calls: plain(callsOf(first)),
    ids: new Set(callsOf(first).map((call) => call.id)).size,
    stops: [first.stop_reason, (await second.finalMessage()).stop_reason],
    text: await second.finalText(),
    blocks: seen.blocks,
    ends: [seen.types[0], seen.types.at(-1)],
    inputs: seen.inputs > 0,
    deltas: seen.texts > 1,
  };
}

async function runner(model, stream) {
  const ran = [];
  const note = (name) => ({ city }) => {
    ran.push([name, city]);
    return results[name];
  };
  const runnable = [
    betaTool({ name: "get_weather", description: "The weather.", inputSchema: schema, run: note("get_weather") }),
    betaZodTool({ name: "get_time", description: "The time.", inputSchema: z.object({ city: z.string() }), run: note("get_time") }),
  ];
  const messages = [{ role: "user", content: question }];
  const last = await client.beta.messages.toolRunner({ model, max_tokens: 1000, messages, tools: runnable, stream }).runUntilDone();
  return { ran: ran.sort(), text: textOf(last), stop: last.stop_reason };
}

async function chosen(model) {
  const names = {};
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_time" }, { type: "none" }]) {
    const messages = [{ role: "user", content: "What is the weather in Paris?" }];
    names[tool_choice.type] = callsOf(await client.messages.create({ ...ask, model, messages, tool_choice })).map((call) => call.name);
  }
  return names;
}

// A reader that stops ends the stream, and the client goes on.
async function aborted(model) {
  const stream = client.messages.stream({ model, max_tokens: 1000, messages: [{ role: "user", content: "count to 50" }] });
  for await (const event of stream) if (event.type === "content_block_delta") break;
  return stream.controller.signal.aborted;
}

async function failure() {
  try {
    await client.messages.create({ ...ask, model: "nobody", messages: [{ role: "user", content: "hi" }] });
    return null;
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, type: error.type ?? error.error?.error?.type };
  }
}

const seen = {};
for (const model of JSON.parse(models))
  seen[model] = {
    whole: await whole(model),
    streamed: await streamed(model),
    runner: await runner(model, false),
    streamedRunner: await runner(model, true),
    chosen: await chosen(model),
    aborted: await aborted(model),
  };
console.log(JSON.stringify({ models: seen, failure: await failure() }));
