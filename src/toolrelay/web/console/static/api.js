// Requests to the gateway, and its streams of server-sent events.

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // 0: the gateway could not be reached
  }

  get mayPass() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

async function send(method, path, body, signal) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The gateway cannot be reached.", 0);
  }
  if (response.ok) return response;
  let message = `The gateway answered with status ${response.status}.`;
  try {
    message = (await response.json()).error.message || message;
  } catch {
    // The message above is all there is to say.
  }
  throw new ApiError(message, response.status);
}

export async function request(method, path, body) {
  return (await send(method, path, body)).json();
}

export async function requestText(path) {
  return (await send("GET", path)).text();
}

/** Yield the events of a stream as {name, data}. It ends with the stream, or throws an ApiError if the connection breaks. */
export async function* events(method, path, body, signal, onOpen = () => {}) {
  const response = await send(method, path, body, signal);
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces = []; // of a frame that is not complete: a long one comes in many
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The connection to the gateway broke.", 0);
    }
    if (part.done) return;
    const startsWithEnd = part.value[0] === "\n" && pieces.at(-1)?.endsWith("\n");
    if (!startsWithEnd && !part.value.includes("\n\n")) {
      if (part.value) pieces.push(part.value);
      continue;
    }
    const frames = (pieces.join("") + part.value).split("\n\n");
    pieces = [frames.pop()].filter(Boolean);
    for (const frame of frames) {
      const event = decode(frame);
      if (event) yield event;
    }
  }
}

function decode(frame) {
  let name = "message";
  const data = [];
  for (const line of frame.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  const text = data.join("\n");
  return text && text !== "[DONE]" ? { name, data: JSON.parse(text) } : null;
}
