// The official SDKs play tool-calling stories: `node stories.mjs URL < plays.json` prints what each received, as JSON.
// A play: { client, model, text, tools: [{name, description, schema}], rounds: [{choice, results, failed}] }.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import { text } from "node:stream/consumers";

const [url] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const ai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const isName = (choice) => !["auto", "none", "required"].includes(choice);

// Each returns the parts of an answer (text, or [id, name, arguments]), its finish, and what the client adds to its history.
const clients = {
  async chat(play, history, round, streamed) {
    const body = {
      model: play.model,
      messages: history,
      tools: play.tools.map(({ name, description, schema }) => ({
        type: "function",
        function: { name, description, parameters: schema },
      })),
      tool_choice: isName(round.choice) ? { type: "function", function: { name: round.choice } } : round.choice,
    };
    const completion = streamed
      ? await openai.chat.completions.stream(body).finalChatCompletion()
      : await openai.chat.completions.create(body);
    const { message, finish_reason } = completion.choices[0];
    const calls = message.tool_calls ?? [];
    return {
      parts: [...(message.content ? [message.content] : []), ...calls.map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)])],
      finish: finish_reason === "tool_calls" ? "calls" : finish_reason,
      history: [message, ...calls.map((call, place) => ({ role: "tool", tool_call_id: call.id, content: round.results[place] }))],
    };
  },

  async responses(play, history, round, streamed) {
    const body = {
      model: play.model,
      input: history,
      store: false,
      tools: play.tools.map(({ name, description, schema }) => ({ type: "function", name, description, parameters: schema, strict: false })),
      tool_choice: isName(round.choice) ? { type: "function", name: round.choice } : round.choice,
    };
    const response = streamed ? await openai.responses.stream(body).finalResponse() : await openai.responses.create(body);
    const calls = response.output.filter((item) => item.type === "function_call");
    const parts = response.output
      .filter((item) => item.type !== "reasoning")
      .map((item) => (item.type === "message" ? item.content[0].text : [item.call_id, item.name, JSON.parse(item.arguments)]));
    return {
      parts,
      finish: response.status === "completed" ? (calls.length ? "calls" : "stop") : response.status,
      history: [
        ...response.output.map(({ parsed_arguments, ...item }) => item),
        ...calls.map((call, place) => ({ type: "function_call_output", call_id: call.call_id, output: round.results[place] })),
      ],
    };
  },

  async messages(play, history, round, streamed) {
    const choices = { auto: { type: "auto" }, none: { type: "none" }, required: { type: "any" } };
    const body = {
      model: play.model,
      max_tokens: 20000,
      messages: history,
      tools: play.tools.map(({ name, description, schema }) => ({ name, description, input_schema: schema })),
      tool_choice: choices[round.choice] ?? { type: "tool", name: round.choice },
    };
    const message = streamed ? await anthropic.messages.stream(body).finalMessage() : await anthropic.messages.create(body);
    const calls = message.content.filter((block) => block.type === "tool_use");
    const results = calls.map((call, place) => ({
      type: "tool_result",
      tool_use_id: call.id,
      content: round.results[place],
      is_error: round.failed,
    }));
    return {
      parts: message.content
        .filter((block) => block.type !== "thinking")
        .map((block) => (block.type === "text" ? block.text : [block.id, block.name, block.input])),
      finish: { tool_use: "calls", end_turn: "stop" }[message.stop_reason] ?? message.stop_reason,
      history: [{ role: "assistant", content: message.content }, ...(results.length ? [{ role: "user", content: results }] : [])],
    };
  },
};

async function playRounds(play, streamed) {
  const history = [{ role: "user", content: play.text }];
  const replies = [];
  for (const round of play.rounds) {
    const { parts, finish, history: more } = await clients[play.client](play, history, round, streamed);
    replies.push({ parts, finish });
    history.push(...more);
  }
  return replies;
}

// The AI SDK runs the loop itself: its tools return the results of the play, in the order of the calls.
async function playAgent(play, streamed) {
  const results = play.rounds.flatMap((round) => round.results);
  const outputs = new Map();
  const tools = Object.fromEntries(
    play.tools.map(({ name, description, schema }) => [
      name,
      tool({ description, inputSchema: jsonSchema(schema), execute: (_, { toolCallId }) => outputs.get(toolCallId) }),
    ]),
  );
  const options = {
    model: ai[play.client === "aiChat" ? "chat" : "responses"](play.model),
    prompt: play.text,
    tools,
    maxRetries: 0,
    stopWhen: isStepCount(play.rounds.length),
    providerOptions: { openai: { store: false } },
    prepareStep: ({ stepNumber }) => {
      const { choice } = play.rounds[stepNumber];
      return { toolChoice: isName(choice) ? { type: "tool", toolName: choice } : choice };
    },
  };
  for (const made of Object.values(tools)) made.onInputAvailable = ({ toolCallId }) => void outputs.set(toolCallId, results[outputs.size]);
  const result = streamed ? streamText(options) : await generateText(options);
  if (streamed) for await (const _ of result.fullStream);
  return (await result.steps).map((step) => ({
    parts: step.content
      .filter((part) => part.type === "text" || part.type === "tool-call")
      .map((part) => (part.type === "text" ? part.text : [part.toolCallId, part.toolName, part.input])),
    finish: step.finishReason === "tool-calls" ? "calls" : step.finishReason,
  }));
}

const seen = [];
for (const play of JSON.parse(await text(process.stdin))) {
  try {
    seen.push(await (play.client in clients ? playRounds : playAgent)(play, play.streamed));
  } catch (error) {
    seen.push({ error: `${error.stack}` });
  }
}
console.log(JSON.stringify(seen));
