"""Decoder of one Codex turn: messages of its thread in, stream events and answers to its requests out.

Codex runs a loop of its own: it asks the model, runs the calls, and asks again. The gateway needs only one answer of the model,
so the decoder ends the answer with the first response that contains calls to run. The tool-calling layer decides which of them
the client gets and where the text is cut, as for every backend.

    message                                    reaction
    ----------------------------------------   ---------------------------------------------------------------------------
    text, reasoning                            events, as they arrive
    a complete call of an offered tool         events, in the model's order; Codex's request to run it stays unanswered
    the end of a response with such calls      the end of the answer
    a call of another tool, or an invalid one  Codex refuses it and asks the model again, a few times at most; the call becomes
                                               events only if `reported_calls` says so
    a built-in tool that starts                the answer fails at once, unless the rails allow the tool
    a patch, raw or to be approved             see rails
    a request for approval or input            refused
    the end of the turn                        the end of the answer: stop, length, content_filter, or a failure
    an upstream retry                          ignored if nothing was emitted yet; otherwise the answer fails

Calls are read from `rawResponseItem/completed`, which has the model's own text in the model's own order. `item/tool/call`
arrives for one call at a time, only after the previous one was answered, and has parsed arguments.

After an upstream retry the model starts over, and the client would see both beginnings. Therefore that answer fails.

While a call waits, Codex does not report that its upstream has disconnected: `probe` abandons the waiting calls to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar, Literal

import msgspec
from msgspec import Struct

from toolrelay.backends.codex.errors import decode_turn_error, truncation_finish
from toolrelay.backends.codex.output import OutputItems, TurnUsage
from toolrelay.backends.codex.rails import BUILTIN_ITEMS, NO_RAILS, PATCH_APPROVAL, PatchApprovals, Rails
from toolrelay.backends.codex.request import TurnPlan
from toolrelay.backends.codex.rpc import Notification, ServerRequest, object_of, text_of
from toolrelay.backends.codex.server_requests import REFUSALS, PendingRequests
from toolrelay.backends.codex.tools import BUILTIN_TOOLS, decode_arguments
from toolrelay.core.events import (
    UPSTREAM_RETRIED,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    ItemReceived,
    Noticed,
    StreamEvent,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.errors import BackendError, ModelError, ToolrelayError
from toolrelay.toolcalls.repair import repair_object
from toolrelay.wires.responses.request import NAME as RESPONSES

PATCH_EVENT = "tool_run"  # the event of an accepted patch, which cannot be undone
MAX_REFUSED_RESPONSES = 3  # responses of one turn that contain only refused calls

_CALL_ITEMS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")


class DecoderOptions(Struct, frozen=True, kw_only=True):
    """`model` is the provider's name for it. `reported_calls`: which of the calls that Codex refuses become events, too."""

    model: str = ""
    reported_calls: Literal["none", "runnable", "all"] = "none"
    rails: Rails = NO_RAILS
    is_account: bool = False


class CodexDecoder:
    """`is_finished`: the answer has ended, later messages are ignored. `answers` are results to send, each with its request."""

    def __init__(self, plan: TurnPlan, turn_id: str, *, options: DecoderOptions, now: datetime) -> None:
        self.is_finished = False
        self._pending = PendingRequests()
        self.answers = self._pending.answers
        self._plan = plan
        self._turn_id = turn_id
        self._options = options
        self._now = now
        self._out: list[StreamEvent] = []
        self._items = OutputItems(None if plan.strict_schema is None else plan.strict_schema.restore)
        self._usage = TurnUsage(plan.size)
        self._patches = PatchApprovals(options.rails)
        self._is_started = False
        self._discards_output = False
        self._streamed: set[str] = set()  # ids of messages that had a delta
        self._emitted: set[str] = set()  # ids of calls
        self._call_count = 0
        self._refused_tool = ""  # in the current response
        self._refused_tools: list[str] = []  # one per response that contained only refused calls

    @property
    def is_waiting(self) -> bool:
        """Codex waits for the result of a call or for the approval of a patch."""
        return bool(self._pending.requests or self._patches.requests)

    def feed(self, messages: Sequence[Notification | ServerRequest]) -> list[StreamEvent]:
        self._out = self._items.events = []
        for message in messages:
            if isinstance(message, ServerRequest):
                if not self.is_finished:
                    self._handle_request(message)
            elif message.method == "turn/completed":
                self._end_turn(message.params)
            elif not self.is_finished and message.params.get("turnId") == self._turn_id:
                handle = self.HANDLERS.get(message.method)
                if handle is not None:
                    handle(self, message.params)
        if not self._is_started and any(not isinstance(event, Noticed | AnswerFailed) for event in self._out):
            self._is_started = True
            self._out.insert(0, AnswerStarted(model=self._options.model or None))
        return self._out

    # Text and reasoning

    def _release_text(self) -> None:
        if not self._discards_output:
            self._items.release_text()

    def _add_text_delta(self, params: JsonObject) -> None:
        item_id = text_of(params, "itemId")
        self._streamed.add(item_id)
        self._add_text(item_id, text_of(params, "delta"))

    def _add_text(self, item_id: str, text: str) -> None:
        if text and not self._discards_output:
            self._usage.output_chars += len(text)
            self._items.add_text(item_id, text)

    def _add_reasoning_delta(self, params: JsonObject) -> None:
        delta = text_of(params, "delta")
        if delta and not self._discards_output:
            self._usage.output_chars += len(delta)
            try:
                self._items.add_reasoning(text_of(params, "itemId"), delta, params)
            except BackendError as error:
                self._fail(error)

    def _start_item(self, params: JsonObject) -> None:
        item = object_of(params.get("item"))
        kind = text_of(item, "type")
        if kind == "agentMessage":
            self._items.start_message(item)
        elif kind == "reasoning" and not self._discards_output:
            self._items.start_reasoning(text_of(item, "id"))
        elif kind == "fileChange" and kind in self._plan.allowed_items:
            self._patches.add_change(item)
        else:
            self._check_builtin(kind)

    def _check_builtin(self, kind: str) -> None:
        if kind in BUILTIN_ITEMS - self._plan.allowed_items:
            self._notice("builtin_stopped", kind)
            self._fail(ModelError(f"Codex began to work on its own ({kind}), which it may not.", code="builtin_tool"))

    def _complete_item(self, params: JsonObject) -> None:
        """Emit the text of a message that had no deltas."""
        item = object_of(params.get("item"))
        if item.get("type") == "agentMessage" and text_of(item, "id") not in self._streamed:
            self._add_text(text_of(item, "id"), text_of(item, "text"))

    # Calls

    def _add_raw_item(self, params: JsonObject) -> None:
        if self._discards_output:
            return
        item = object_of(params.get("item"))
        kind = item.get("type")
        if kind == "reasoning":
            self._items.finish_reasoning(item)
        elif kind == "message" and item.get("role") == "assistant":
            self._items.add_annotations(item)
        elif kind == "web_search_call":
            self._check_builtin("webSearch")
            if not self.is_finished:
                raw: JsonObject = {key: value for key, value in item.items() if not key.startswith("internal_")}
                self._out.append(ItemReceived(wire=RESPONSES, raw=raw))
        elif kind == "custom_tool_call" and item.get("name") == "apply_patch" and "fileChange" in self._plan.allowed_items:
            self._add_patch(text_of(item, "input"))
        elif kind in _CALL_ITEMS:
            self._add_call(text_of(item, "call_id"), text_of(item, "name") or str(kind), item)

    def _add_patch(self, patch: str) -> None:
        self._usage.output_chars += len(patch)
        error = self._patches.add_patch(patch)
        if error is not None:
            self._notice(error.code or "", "apply_patch")
            self._fail(error)
        elif self._call_count:
            self._notice("patch_beside_calls", "apply_patch")

    def _add_call(self, call_id: str, name: str, item: JsonObject) -> None:
        tool = self._plan.offered.get(name) if item.get("type") == "function_call" else None
        arguments = text_of(item, "arguments") or text_of(item, "input")
        self._usage.output_chars += len(arguments)
        if tool is None:
            self._refuse_call(call_id, name, arguments, "unknown_tool")
        elif (usable := repair_object(arguments)) is None:
            self._refuse_call(call_id, tool.name, arguments, "invalid_json")
        else:
            kind, decoded = decode_arguments(tool, usable)
            self._emit_call(call_id, tool.name, arguments if kind == "function" else decoded, kind)

    def _emit_call(self, call_id: str, name: str, arguments: str, kind: CallKind = "function") -> None:
        index = self._call_count
        self._call_count += 1
        if self._patches.in_response and index == 0:
            self._notice("patch_beside_calls", "apply_patch")
        self._emitted.add(call_id)
        self._release_text()
        self._out += [CallStarted(index, name, kind=kind), ArgumentsDelta(index, arguments), CallFinished(index)]

    def _refuse_call(self, call_id: str, name: str, arguments: str, rule: str) -> None:
        """Codex usually refuses the call as well and asks the model again. If it requests the call, answer with an error."""
        reported = self._options.reported_calls
        is_runnable = rule == "invalid_json" or (arguments and name not in BUILTIN_TOOLS)
        if reported == "all" or (reported == "runnable" and is_runnable):
            self._emit_call(call_id, name, arguments)
            return
        self._notice(rule, name)
        self._refused_tool = name
        self._pending.refuse(call_id, rule)

    def _handle_request(self, request: ServerRequest) -> None:
        if request.method == "item/tool/call":
            self._pending.add(request)
        elif request.method == PATCH_APPROVAL and "fileChange" in self._plan.allowed_items:
            self._patches.requests.append(request)
        elif request.method in REFUSALS:
            self._notice("builtin_refused", request.method)
            self._refused_tool = request.method
            self.answers.append((request, REFUSALS[request.method]))

    def answer_patches(self) -> list[StreamEvent]:
        """Decide the patches of a completed response. Call it after the events were delivered: they may end the answer."""
        self._out = []
        if self.is_finished or self._patches.in_response:
            return self._out
        for request, is_allowed in self._patches.decide(accept=not (self._call_count or self._discards_output)):
            if is_allowed:
                self._notice("patch_allowed", "apply_patch", PATCH_EVENT)
                self.answers.append((request, {"decision": "accept"}))
            else:
                self._notice("patch_refused", "apply_patch")
                self.answers.append((request, REFUSALS[PATCH_APPROVAL]))
        return self._out

    def probe(self) -> None:
        """Let Codex continue after a long silence, so that it reports an upstream that has disconnected."""
        self._pending.abandon()
        self._patches.end_response()

    def discard_output(self) -> None:
        """Emit only the end of the answer and its usage."""
        self._discards_output = True

    # The end

    def _complete_response(self, params: JsonObject) -> None:
        self._usage.add_response(params.get("usage"))
        for call_id, request in list(self._pending.requests.items()):
            if call_id not in self._emitted and not self._discards_output:  # there was no raw item for it
                arguments = msgspec.json.encode(request.params.get("arguments")).decode()
                self._add_call(call_id, text_of(request.params, "tool"), {"type": "function_call", "arguments": arguments})
        if self.is_finished:
            return
        if self._discards_output:
            self._finish("calls" if self._call_count else "stop")
        elif self._call_count:
            self._notice("end_of_calls", None, "tool_cutoff")
            self._finish("calls")
        elif self._refused_tool:
            self._refused_tools.append(self._refused_tool)
            self._refused_tool = ""
            if len(self._refused_tools) >= MAX_REFUSED_RESPONSES:
                self._notice("refused_too_often", self._refused_tools[-1])
                self._fail_for_refused_calls("keeps calling tools")
        if not self.is_finished:
            self._patches.end_response()

    def _fail_for_refused_calls(self, behaviour: str) -> None:
        message = f"The model {behaviour} that it was not given, such as {self._refused_tools[-1]!r}, and was stopped."
        self._fail(ModelError(message, code="unknown_tool"))

    def _update_usage(self, params: JsonObject) -> None:
        self._usage.set_thread_total(params.get("tokenUsage"))

    def _handle_error(self, params: JsonObject) -> None:
        """Handle an upstream retry. Any other error arrives again with the end of the turn."""
        if params.get("willRetry") is not True:
            return
        finish = truncation_finish(object_of(params.get("error")))
        if finish is not None:
            self._finish(finish)
        elif self._items.has_text or self._call_count:
            message = "The model's server cut its answer off. A second answer would begin anew, so there is none."
            self._fail(BackendError(message, code="upstream_cut"))
        else:
            self._notice("nothing_said", None, UPSTREAM_RETRIED)

    def _end_turn(self, params: JsonObject) -> None:
        turn = object_of(params.get("turn"))
        if turn.get("id") != self._turn_id or self.is_finished:
            return
        match turn.get("status"):
            case "completed":
                self._finish("calls" if self._call_count else "stop")
            case "failed":
                error = object_of(turn.get("error"))
                finish = truncation_finish(error)
                if finish is not None:
                    self._finish(finish)
                else:
                    self._fail(decode_turn_error(error, now=self._now, is_account=self._options.is_account))
            case status:
                self._fail(BackendError(f"Codex ended the turn too early ({status}).", code="upstream_cut"))

    def _finish(self, finish: Finish) -> None:
        # Codex does not ask the model again after every call that it refuses.
        if finish == "stop" and self._refused_tools and not self._items.has_text:
            self._fail_for_refused_calls("only called tools")
            return
        self._release_text()
        self.is_finished = True
        self._out.append(AnswerFinished(finish=finish, usage=self._usage.total()))

    def _fail(self, error: ToolrelayError) -> None:
        self._release_text()
        self.is_finished = True
        self._out.append(AnswerFailed(error))

    def _notice(self, rule: str, tool: str | None, event: str = "tool_block") -> None:
        self._out.append(Noticed(event=event, rule=rule, tool=tool))

    HANDLERS: ClassVar[dict[str, Callable[[CodexDecoder, JsonObject], None]]] = {
        "item/agentMessage/delta": _add_text_delta,
        "item/reasoning/summaryTextDelta": _add_reasoning_delta,
        "item/reasoning/textDelta": _add_reasoning_delta,
        "item/started": _start_item,
        "item/completed": _complete_item,
        "rawResponseItem/completed": _add_raw_item,
        "rawResponse/completed": _complete_response,
        "thread/tokenUsage/updated": _update_usage,
        "error": _handle_error,
    }
