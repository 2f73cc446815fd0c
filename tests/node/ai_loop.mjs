// The AI SDK's OpenAI models: `node ai_loop.mjs BASE_URL '[[MODEL, API, STREAMED], …]'` plays a loop with a tool each and prints what it saw.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, loops] = process.argv.slice(2);
const openai = createOpenAI({ baseURL, apiKey: "none" });
const seen = [];
for (const [model, api, streamed] of JSON.parse(loops)) {
  const ran = [];
  const get_weather = tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      ran.push(city);
      return `18 degrees in ${city}`;
    },
  });
  const options = { model: openai[api](model), prompt: "Weather?", tools: { get_weather }, stopWhen: isStepCount(3), maxRetries: 0 };
  let pieces = [];
  if (streamed) {
    for await (const text of streamText(options).textStream) pieces.push(text);
  } else {
    pieces = [(await generateText(options)).text];
  }
  seen.push({ ran, pieces });
}
console.log(JSON.stringify(seen));
