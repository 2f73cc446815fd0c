// The AI SDK's default OpenAI model: `node ai.mjs BASE_URL KEY MODEL` plays three turns with a tool and prints what it saw as JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey, model] = process.argv.slice(2);
const bodies = [];
const openai = createOpenAI({
  baseURL,
  apiKey,
  fetch: (url, options) => {
    bodies.push(JSON.parse(options.body));
    return fetch(url, options);
  },
});
const ran = [];
const tools = {
  get_weather: tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      ran.push(city);
      return "18 degrees";
    },
  }),
};

const messages = [];
const texts = [];
for (const [number, question] of ["Weather?", "Sure?", "Bye"].entries()) {
  messages.push({ role: "user", content: question });
  const options = { model: openai(model), messages, tools, stopWhen: isStepCount(5), maxRetries: 0 };
  const result = number === 1 ? streamText(options) : await generateText(options);
  texts.push(await result.text);
  messages.push(...(await result.responseMessages));
}
const references = bodies.map((body) => body.input.filter((item) => item.type === "item_reference").length);
console.log(JSON.stringify({ texts, ran, references }));
