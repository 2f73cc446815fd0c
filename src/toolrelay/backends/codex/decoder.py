"""Decoder of one Codex turn: messages of its thread in, stream events and answers to its requests out.

Codex runs a loop of its own: it asks the model, runs what the model calls, and asks again. Only one answer of the model is
wanted, so the decoder ends the answer with the first response that holds calls to be run. Which of them the client gets, and
where its text is cut, is decided by the tool-calling layer, as for every backend.

    what arrives                               what becomes of it
    ----------------------------------------   ---------------------------------------------------------------------------
    text, reasoning                            events, as they arrive
    a call of an offered tool, whole           events, in the model's order; Codex's own request to run it is left unanswered
    the end of a response with such calls      the end of the answer
    a call of another tool, or a bad one       Codex refuses it by itself and asks the model again, a few times at most; the
                                               call becomes events only where `reported_calls` says so
    a built-in tool that starts to run         the answer fails at once, unless it is on rails
    a patch on rails, raw or to be approved    see _codex_patches
    a request for approval or input            refused
    the end of the turn                        the end of the answer: stop, length, content_filter, or a failure
    an upstream that is asked again            ignored, if nothing was emitted yet; otherwise the answer fails

Calls are taken from `rawResponseItem/completed`, which holds the model's own text in the model's own order. `item/tool/call`
arrives for one call at a time, only after the previous one was answered, and holds parsed arguments.

When Codex asks the upstream again after an interruption, the model starts over, and the client would see both beginnings.
Therefore that answer fails.

While a call waits, Codex does not report that its upstream has broken off: `probe` gives the waiting calls up to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct

from toolrelay.backends.codex.errors import cut_short, explained
from toolrelay.backends.codex.json_access import REFUSALS, json_of, object_of, text_of
from toolrelay.backends.codex.output import Speech
from toolrelay.backends.codex.patches import APPROVAL, Patches
from toolrelay.backends.codex.pending_requests import Waiting
from toolrelay.backends.codex.rails import NO_RAILS, OWN_WORK, Rails
from toolrelay.backends.codex.request import Plan
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.backends.codex.tools import BUILT_IN, given
from toolrelay.backends.codex.usage import Cost
from toolrelay.core.events import (
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
from toolrelay.toolcalls.repair import repaired
from toolrelay.wires.responses.items import NAME as RESPONSES

PATCHED = "tool_run"  # the event of a patch that was allowed, and cannot be taken back
MOST_REFUSED = 3  # responses of one turn that hold nothing but refused calls

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")


class DecoderOptions(Struct, frozen=True, kw_only=True):
    """`model` is the provider's name for it. `reported_calls`: which of the calls that Codex refuses become events, too."""

    model: str = ""
    reported_calls: Literal["none", "runnable", "all"] = "none"
    rails: Rails = NO_RAILS
    is_account: bool = False


class CodexDecoder:
    """After each `feed`:

    over      the answer has ended; later messages are ignored
    answers   what to answer to which request, once
    """

    def __init__(self, plan: Plan, turn_id: str, *, options: DecoderOptions, now: datetime) -> None:
        self.over = False
        self._draining = False
        self._waiting = Waiting()
        self.answers = self._waiting.answers
        self._plan = plan
        self._turn_id = turn_id
        self._options = options
        self._now = now
        self._out: list[StreamEvent] = []
        self._speech = Speech()
        self._cost = Cost(plan.size)
        self._begun = False
        self._streamed: set[str] = set()  # messages of which a delta arrived
        self._made = 0
        self._given: set[str] = set()
        self._patches = Patches(options.rails)
        self._refused = ""  # a tool that this response called
        self._strikes: list[str] = []

    @property
    def waits(self) -> bool:
        """Codex waits: for the result of a call that the client has got, as far as it knows, or for leave to patch."""
        return bool(self._waiting.requests or self._patches.asked)

    def feed(self, messages: Sequence[Notification | ServerRequest]) -> list[StreamEvent]:
        self._out = self._speech.out = []
        for message in messages:
            if isinstance(message, ServerRequest):
                if not self.over:
                    self._read_request(message)
            elif message.method == "turn/completed":
                self._read_end(message.params)
            elif not self.over and message.params.get("turnId") == self._turn_id:
                read = self._READS.get(message.method)
                if read is not None:
                    read(self, message.params)
        return self._opened()

    def _opened(self) -> list[StreamEvent]:
        """The events, behind the beginning of the answer, if they are its first."""
        out = self._out
        if not self._begun and any(not isinstance(event, Noticed | AnswerFailed) for event in out):
            self._begun = True
            out.insert(0, AnswerStarted(model=self._options.model or None))
        return out

    # Text and reasoning

    def _read_text(self, params: JsonObject) -> None:
        item_id, delta = text_of(params, "itemId"), text_of(params, "delta")
        self._streamed.add(item_id)
        self._say(item_id, delta)

    def _say(self, item_id: str, text: str) -> None:
        if text and not self._draining:
            self._cost.written += len(text)
            self._speech.say(item_id, text)

    def _read_thought(self, params: JsonObject) -> None:
        delta = text_of(params, "delta")
        if delta and not self._draining:
            self._cost.written += len(delta)
            try:
                self._speech.think(text_of(params, "itemId"), delta, params)
            except BackendError as error:
                self._fail(error)

    def _read_start(self, params: JsonObject) -> None:
        item = object_of(params.get("item"))
        kind, item_id = text_of(item, "type"), text_of(item, "id")
        if kind == "agentMessage":
            self._speech.announce(item)
        elif kind == "reasoning" and not self._draining:
            self._speech.begin_thought(item_id)
        elif kind == "fileChange" and kind in self._plan.own_work:
            self._patches.begin(item)
        else:
            self._check_work(kind)

    def _check_work(self, kind: str) -> None:
        if kind in OWN_WORK - self._plan.own_work:
            self._notice("builtin_stopped", kind)
            self._fail(ModelError(f"Codex began to work on its own ({kind}), which it may not.", code="builtin_tool"))

    def _read_end_of_item(self, params: JsonObject) -> None:
        """A message may come whole, without deltas."""
        item = object_of(params.get("item"))
        if item.get("type") == "agentMessage" and text_of(item, "id") not in self._streamed:
            self._say(text_of(item, "id"), text_of(item, "text"))

    # Calls

    def _read_raw(self, params: JsonObject) -> None:
        if self._draining:
            return
        item = object_of(params.get("item"))
        kind = item.get("type")
        if kind == "reasoning":
            self._speech.end_thought(item)
        elif kind == "message" and item.get("role") == "assistant":
            self._speech.annotate(item)
        elif kind == "web_search_call":
            self._check_work("webSearch")
            if not self.over:
                raw: JsonObject = {key: value for key, value in item.items() if not key.startswith("internal_")}
                self._out.append(ItemReceived(wire=RESPONSES, raw=raw))
        elif kind == "custom_tool_call" and item.get("name") == "apply_patch" and "fileChange" in self._plan.own_work:
            self._take_patch(text_of(item, "input"))
        elif kind in _CALLS:
            self._take_call(text_of(item, "call_id"), text_of(item, "name") or str(kind), item)

    def _take_patch(self, patch: str) -> None:
        self._cost.written += len(patch)
        error = self._patches.read(patch)
        if error is not None:
            self._notice(error.code or "", "apply_patch")
            self._fail(error)
        elif self._made:
            self._notice("patch_beside_calls", "apply_patch")

    def _take_call(self, call_id: str, name: str, item: JsonObject) -> None:
        tool = self._plan.offered.get(name) if item.get("type") == "function_call" else None
        arguments = text_of(item, "arguments") or text_of(item, "input")
        self._cost.written += len(arguments)
        if tool is None:
            self._refuse(call_id, name, arguments, "unknown_tool")
        elif (usable := repaired(arguments)) is None:
            self._refuse(call_id, tool.name, arguments, "invalid_json")
        else:
            kind, given_arguments = given(tool, usable)
            self._emit_call(call_id, tool.name, arguments if kind == "function" else given_arguments, kind)

    def _emit_call(self, call_id: str, name: str, arguments: str, kind: CallKind = "function") -> None:
        index = self._made
        self._made += 1
        if self._patches.is_open and index == 0:
            self._notice("patch_beside_calls", "apply_patch")
        self._given.add(call_id)
        self._out += [CallStarted(index, name, kind=kind), ArgumentsDelta(index, arguments), CallFinished(index)]

    def _refuse(self, call_id: str, name: str, arguments: str, rule: str) -> None:
        """Codex refuses the call too and asks the model again, unless it takes the call for a good one."""
        reported = self._options.reported_calls
        runnable = rule == "invalid_json" or (arguments and name not in BUILT_IN)
        if reported == "all" or (reported == "runnable" and runnable):
            self._emit_call(call_id, name, arguments)
            return
        self._notice(rule, name)
        self._refused = name
        self._waiting.refuse(call_id, rule)

    def _read_request(self, request: ServerRequest) -> None:
        if request.method == "item/tool/call":
            self._waiting.add(request)
        elif request.method == APPROVAL and "fileChange" in self._plan.own_work:
            self._patches.asked.append(request)
        elif request.method in REFUSALS:
            self._notice("builtin_refused", request.method)
            self._refused = request.method
            self.answers.append((request, REFUSALS[request.method]))

    def answer_patches(self) -> list[StreamEvent]:
        """Decide the patches of a response that is over. The events so far must have been delivered: they may end the answer."""
        self._out = []
        if self.over or self._patches.is_open:
            return self._out
        for request, allowed in self._patches.decided(may=not (self._made or self._draining)):
            if allowed:
                self._notice("patch_allowed", "apply_patch", PATCHED)
            else:
                self._notice("patch_refused", "apply_patch")
            self.answers.append((request, {"decision": "accept"} if allowed else REFUSALS[APPROVAL]))
        return self._out

    def probe(self) -> None:
        """Nothing has arrived for long although Codex waits: if the upstream has broken off, Codex will report it now."""
        self._waiting.give_up()
        self._patches.end_response()

    # The end

    def _read_end_of_response(self, params: JsonObject) -> None:
        self._cost.add(params.get("usage"))
        for call_id, request in list(self._waiting.requests.items()):
            if call_id not in self._given and not self._draining:  # nothing raw has arrived of it
                name = text_of(request.params, "tool")
                self._take_call(call_id, name, {"type": "function_call", "arguments": json_of(request.params.get("arguments"))})
        if self.over:
            return
        if self._draining:
            self._end("calls" if self._made else "stop")
        elif self._made:
            self._notice("end_of_calls", None, "tool_cutoff")
            self._end("calls")
        elif self._refused:
            self._strikes.append(self._refused)
            self._refused = ""
            if len(self._strikes) >= MOST_REFUSED:
                self._notice("refused_too_often", self._strikes[-1])
                self._fail_for_strikes("keeps calling tools")
        if not self.over:
            self._patches.end_response()

    def _fail_for_strikes(self, how: str) -> None:
        message = f"The model {how} that it was not given, such as {self._strikes[-1]!r}, and was stopped."
        self._fail(ModelError(message, code="unknown_tool"))

    def _read_usage(self, params: JsonObject) -> None:
        self._cost.note(params.get("tokenUsage"))

    def _read_error(self, params: JsonObject) -> None:
        """One that is not retried comes again with the end of the turn."""
        error = object_of(params.get("error"))
        if params.get("willRetry") is not True:
            return
        cut = cut_short(error)
        if cut is not None:
            self._end(cut)
        elif self._speech.said or self._made:
            message = "The model's server cut its answer off. A second answer would begin anew, so there is none."
            self._fail(BackendError(message, code="upstream_cut"))
        else:
            self._notice("nothing_said", None, "upstream_retried")

    def _read_end(self, params: JsonObject) -> None:
        turn = object_of(params.get("turn"))
        if turn.get("id") != self._turn_id or self.over:
            return
        match turn.get("status"):
            case "completed":
                self._end("calls" if self._made else "stop")
            case "failed":
                error = object_of(turn.get("error"))
                cut = cut_short(error)
                if cut is not None:
                    self._end(cut)
                else:
                    self._fail(explained(error, now=self._now, is_account=self._options.is_account))
            case status:
                self._fail(BackendError(f"Codex ended the turn too early ({status}).", code="upstream_cut"))

    def discard_output(self) -> None:
        """Only the usage is still wanted."""
        self._draining = True

    def _end(self, finish: Finish) -> None:
        if finish == "stop" and self._strikes and not self._speech.said:  # Codex does not ask again after every call it refuses
            self._fail_for_strikes("only called tools")
            return
        self.over = True
        self._out.append(AnswerFinished(finish=finish, usage=self._cost.usage()))

    def _fail(self, error: ToolrelayError) -> None:
        self.over = True
        self._out.append(AnswerFailed(error))

    def _notice(self, rule: str, tool: str | None, event: str = "tool_block") -> None:
        self._out.append(Noticed(event=event, rule=rule, tool=tool))

    _READS: ClassVar[dict[str, Callable[[CodexDecoder, JsonObject], None]]] = {
        "item/agentMessage/delta": _read_text,
        "item/reasoning/summaryTextDelta": _read_thought,
        "item/reasoning/textDelta": _read_thought,
        "item/started": _read_start,
        "item/completed": _read_end_of_item,
        "rawResponseItem/completed": _read_raw,
        "rawResponse/completed": _read_end_of_response,
        "thread/tokenUsage/updated": _read_usage,
        "error": _read_error,
    }
