// Answers questions about gateway tools with the openai package: node approvals.mjs BASE_URL
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const weather = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  strict: false,
};

const first = await client.responses.create({ model: "fast", input: "Go.", tools: [weather] });
const question = first.output.find((item) => item.type === "mcp_approval_request");
const call = first.output.find((item) => item.type === "function_call");

const refusals = [];
for (const input of [
  [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
  [{ type: "mcp_approval_response", approval_request_id: question.id, approve: true }],
]) {
  try {
    await client.responses.create({ model: "fast", input, previous_response_id: first.id, tools: [weather] });
  } catch (error) {
    refusals.push(error.status);
  }
}

const events = [];
const stream = await client.responses.create({
  model: "fast",
  previous_response_id: first.id,
  tools: [weather],
  stream: true,
  input: [
    { type: "function_call_output", call_id: call.call_id, output: "sunny" },
    { type: "mcp_approval_response", approval_request_id: question.id, approve: true },
  ],
});
let second = null;
for await (const event of stream) {
  events.push(event.type);
  if (event.type === "response.completed") second = event.response;
}

console.log(
  JSON.stringify({
    first: first.output.map((item) => item.type),
    question: { name: question.name, label: question.server_label, arguments: JSON.parse(question.arguments) },
    refusals,
    second: second.output.map((item) => item.type),
    ran: second.output[0].output,
    approval: second.output[0].approval_request_id === question.id,
    text: second.output.at(-1).content[0].text,
    last: events.at(-1),
  }),
);
