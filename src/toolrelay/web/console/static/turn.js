// A background response: start it, follow its stream, and follow it again when the connection breaks.

import { ApiError, events, request } from "./api.js";
import { reportLost, reportRestored } from "./connection.js";
import { wait } from "./dom.js";

const ENDS = new Set(["response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"]);
const MAX_PAUSE = 5000;

export class Turn {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.id = null;
    this.sequence = -1;
    this.response = null; // at its end
    this.abort = new AbortController();
    this.wantsStop = false;
  }

  /** Ask, and return when the response has ended. */
  async start(body) {
    return this.follow(() => ["POST", "/v1/responses", { ...body, background: true, stream: true }]);
  }

  /** Follow a response that runs already. */
  async resume(id) {
    this.id = id;
    return this.follow(() => this.again());
  }

  again() {
    const after = this.sequence >= 0 ? `&starting_after=${this.sequence}` : "";
    return ["GET", `/v1/responses/${encodeURIComponent(this.id)}?stream=true${after}`, undefined];
  }

  async follow(first) {
    let target = first();
    let pause = 250;
    while (!this.response) {
      try {
        for await (const { data } of events(...target, this.abort.signal, reportRestored)) {
          pause = 250;
          this.receive(data);
        }
      } catch (error) {
        if (this.response) break; // cancelled
        if (!(error instanceof ApiError) || !error.mayPass || this.id === null) throw error;
      }
      if (this.response) break;
      if (this.id === null) throw new ApiError("The gateway sent no answer.", 0);
      reportLost();
      await wait(pause);
      if (this.abort.signal.aborted) throw new DOMException("left", "AbortError");
      pause = Math.min(pause * 2, MAX_PAUSE);
      target = this.again();
    }
    return this.response;
  }

  receive(event) {
    if (event.sequence_number !== undefined) {
      if (event.sequence_number <= this.sequence) return;
      this.sequence = event.sequence_number;
    }
    if (event.response?.id && this.id === null) {
      this.id = event.response.id;
      if (this.wantsStop) this.stop();
    }
    this.onEvent(event);
    if (ENDS.has(event.type)) this.response = event.response ?? { status: "failed", error: event.error ?? { message: event.message } };
  }

  /** Cancel the response. */
  async stop() {
    this.wantsStop = true;
    if (this.id === null) return;
    const response = await request("POST", `/v1/responses/${encodeURIComponent(this.id)}/cancel`, {});
    if (response.status === "cancelled" && !this.response) {
      this.response = response;
      this.abort.abort();
    }
  }

  /** Stop to follow it; it goes on. */
  leave() {
    this.abort.abort();
  }
}
