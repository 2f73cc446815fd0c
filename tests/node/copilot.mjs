// Obsidian Copilot as a client: `node copilot.mjs BASE_URL CHAT_MODEL RESPONSES_MODEL [XML_MODEL]` plays its tool loop and prints
// what was sent and seen as JSON. From 3.2 on the plugin is LangChain with bound tools; up to 3.1 it finds blocks in the text.
import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";

const [baseURL, chatModel, responsesModel, xmlModel] = process.argv.slice(2);
const ITERATIONS = 4;

const object = (properties) => ({
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const ran = [];
const made = (name, properties, run) =>
  tool(
    async (given) => {
      ran.push([name, given]);
      return run(given);
    },
    { name, description: `The tool ${name}.`, schema: object(properties) },
  );
const tools = [
  made("localSearch", { query: { type: "string" } }, ({ query }) => `3 notes about ${query}`),
  made("readNote", { notePath: { type: "string" } }, ({ notePath }) => `# ${notePath}\nbuy <b>milk</b> & bread`),
  made("getCurrentTime", {}, () => "noon"),
];
const system = "You are Obsidian Copilot.";

// Every body that went over the wire.
function watched(sent) {
  return async (url, init) => {
    sent.push({ path: new URL(url).pathname, body: JSON.parse(init.body) });
    return fetch(url, init);
  };
}

function client(model, sent, settings = {}) {
  return new ChatOpenAI({
    model,
    temperature: 0.1,
    streaming: true,
    apiKey: "none",
    maxRetries: 0,
    streamUsage: false,
    configuration: { baseURL, fetch: watched(sent) },
    ...settings,
  });
}

// The plugin puts the chunks together, and runs the calls one after the other.
async function answer(model, messages) {
  let whole;
  let chunks = 0;
  for await (const chunk of await model.stream(messages)) {
    whole = whole === undefined ? chunk : whole.concat(chunk);
    chunks++;
  }
  return { whole, chunks };
}

async function native(name, questions, settings) {
  const sent = [];
  const model = client(name, sent, settings).bindTools(tools);
  const messages = [new SystemMessage(system)];
  const texts = [];
  ran.length = 0;
  let streamed = 0;
  for (const question of questions) {
    messages.push(new HumanMessage(question));
    for (let iteration = 0; iteration < ITERATIONS; iteration++) {
      const { whole, chunks } = await answer(model, messages);
      streamed = Math.max(streamed, chunks);
      if (!whole.tool_calls?.length) {
        texts.push(whole.text);
        messages.push(new AIMessage(whole.text));
        break;
      }
      const calls = whole.tool_calls.map((call) => ({ id: call.id, name: call.name, args: call.args, type: "tool_call" }));
      messages.push(new AIMessage({ content: whole.text, tool_calls: calls }));
      for (const call of calls) {
        const content = String(await tools.find((each) => each.name === call.name).invoke(call.args));
        messages.push(new ToolMessage({ content, name: call.name, tool_call_id: call.id }));
      }
    }
  }
  return { ran: [...ran], texts, streamed, sent };
}

// Up to 3.1: its tools are in its prompt, its calls in the text, its results in the user's message.
function blocks(text) {
  const found = [];
  for (const match of text.matchAll(/<use_tool>([\s\S]*?)(<\/use_tool>|$)/g)) {
    const name = match[1].match(/<name>([\s\S]*?)<\/name>/)?.[1].trim();
    if (!name) continue;
    const given = {};
    for (const [, key, value] of match[1].matchAll(/<([\w-]+)>([\s\S]*?)<\/\1>/g)) if (key !== "name") given[key] = value;
    found.push({ name, given });
  }
  return found;
}

async function xml(name, question) {
  const sent = [];
  const model = client(name, sent);
  const messages = [new SystemMessage(`${system} Call tools with <use_tool>.`), new HumanMessage(question)];
  const answers = [];
  ran.length = 0;
  for (let iteration = 0; iteration < ITERATIONS; iteration++) {
    const seen = [];
    for await (const chunk of await model.stream(messages)) if (chunk.text) seen.push(chunk.text);
    const text = seen.join("");
    answers.push(seen);
    const calls = blocks(text);
    messages.push(new AIMessage(text));
    if (!calls.length) break;
    const results = [];
    for (const call of calls) {
      const result = await tools.find((each) => each.name === call.name).invoke(call.given);
      results.push(`Tool '${call.name}' result: ${result}`);
    }
    messages.push(new HumanMessage(results.join("\n\n")));
  }
  return { ran: [...ran], answers, sent };
}

const questions = ["localSearch {\"query\": \"milk\"}", "readNote {\"notePath\": \"shop & co.md\"}", "localSearch about milk and getCurrentTime"];
const printed =
  "repeat: I will look.\n\n<use_tool>\n<name>localSearch</name>\n<query>milk</query>\n</use_tool>\n" +
  "<use_tool>\n<name>getCurrentTime</name>\n</use_tool>";
console.log(
  JSON.stringify({
    chat: await native(chatModel, questions),
    responses: await native(responsesModel, questions, { useResponsesApi: true }), // as for names that look like GPT-5
    xml: xmlModel ? await xml(xmlModel, printed) : null,
  }),
);
