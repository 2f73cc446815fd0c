// The openai package's Responses WebSocket, on Node's own WebSocket: `node websocket.mjs BASE_URL MODEL` prints what it saw.
import OpenAI from "openai";
import { BrowserWebSocket } from "./node_modules/openai/internal/ws-adapter-browser.mjs"; // not exported; the exported socket needs the package `ws`
import { ResponsesWSBase } from "openai/resources/responses/ws-base";

class Socket extends ResponsesWSBase {
  constructor(client) {
    super(client, {});
    this._connectInitial();
  }
  _createSocket(url, headers) {
    return new BrowserWebSocket(new WebSocket(url, { headers }));
  }
}

const [baseURL, model] = process.argv.slice(2);
const socket = new Socket(new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 }));
const finals = [];

// The events of one response, up to its last.
async function respond(request) {
  socket.send({ type: "response.create", model, store: false, ...request });
  const types = [];
  for await (const record of socket) {
    if (record.type === "error") return { types, error: record.error.error.error.code };
    if (record.type !== "message") continue;
    types.push(record.message.type);
    if (record.message.type === "response.completed") {
      finals.push(record.message.response);
      return { types, text: record.message.response.output_text ?? record.message.response.output[0].content[0].text };
    }
  }
}

const first = await respond({ input: "count to 3" });
const second = await respond({ input: "count to 4", previous_response_id: finals[0].id });
const failed = await respond({ input: "hi", previous_response_id: "resp_unknown" });
const third = await respond({ input: "count to 2" });
socket.close();
console.log(JSON.stringify({ first, second, failed, third, previous: finals[1].previous_response_id === finals[0].id }));
