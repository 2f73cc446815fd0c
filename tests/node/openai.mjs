// The openai package as a client: `node openai.mjs BASE_URL MODEL` plays the stories below and prints what it saw as JSON.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });

const question = "What is the weather and the time in Paris?";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const names = ["get_weather", "get_time"];
const results = { get_weather: "18 degrees", get_time: "noon" };
const chatTools = names.map((name) => ({ type: "function", function: { name, parameters } }));
const responsesTools = names.map((name) => ({ type: "function", name, parameters, strict: false }));

async function chatWhole() {
  const messages = [{ role: "user", content: question }];
  const first = await client.chat.completions.create({ model, messages, tools: chatTools });
  const message = first.choices[0].message;
  messages.push(message);
  for (const call of message.tool_calls)
    messages.push({ role: "tool", tool_call_id: call.id, content: results[call.function.name] });
  const second = await client.chat.completions.create({ model, messages, tools: chatTools });
  return {
    calls: message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
    finishes: [first.choices[0].finish_reason, second.choices[0].finish_reason],
    text: second.choices[0].message.content,
    tokens: second.usage.total_tokens,
  };
}

// The package's own runner: it accumulates the stream, runs the tools and asks again.
async function chatRunner() {
  const ran = [];
  const runner = client.chat.completions.runTools({
    model,
    stream: true,
    messages: [{ role: "user", content: question }],
    tools: names.map((name) => ({
      type: "function",
      function: {
        name,
        parameters,
        parse: JSON.parse,
        function: (given) => {
          ran.push([name, given]);
          return results[name];
        },
      },
    })),
  });
  let deltas = 0;
  runner.on("content", () => deltas++);
  const text = await runner.finalContent();
  return { calls: ran, text, streamed: deltas > 1 };
}

async function responsesWhole() {
  const input = [{ role: "user", content: question }];
  const first = await client.responses.create({ model, input, tools: responsesTools });
  const calls = first.output.filter((item) => item.type === "function_call");
  input.push(...first.output);
  for (const call of calls) input.push({ type: "function_call_output", call_id: call.call_id, output: results[call.name] });
  const second = await client.responses.create({ model, input, tools: responsesTools });
  return {
    calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]),
    statuses: [first.status, second.status],
    text: second.output_text,
    tokens: second.usage.total_tokens,
  };
}

async function responsesStream() {
  const stream = client.responses.stream({ model, input: question, tools: responsesTools });
  const types = [];
  const numbers = [];
  for await (const event of stream) {
    types.push(event.type);
    numbers.push(event.sequence_number);
  }
  const final = await stream.finalResponse();
  return {
    calls: final.output.filter((item) => item.type === "function_call").map((call) => [call.name, JSON.parse(call.arguments)]),
    first: types[0],
    last: types.at(-1),
    gapless: numbers.every((number, place) => number === place),
  };
}

async function failure() {
  try {
    await client.chat.completions.create({ model: "nobody", messages: [{ role: "user", content: "hi" }] });
    return null;
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, code: error.code };
  }
}

console.log(
  JSON.stringify({
    chatWhole: await chatWhole(),
    chatRunner: await chatRunner(),
    responsesWhole: await responsesWhole(),
    responsesStream: await responsesStream(),
    failure: await failure(),
  }),
);
