"""Chat Completions, the gateway's answer to a client: stream events into chunks, or an Answer into one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolrelay.core.assembly import Answer
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ItemReceived,
    MessageStarted,
    Noticed,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Message, Reasoning, Refusal, Text
from toolrelay.wires.base import Envelope
from toolrelay.wires.errors import encode_error
from toolrelay.wires.json import encode
from toolrelay.wires.sse import DONE

FINISH: dict[Finish, str] = {"stop": "stop", "length": "length", "calls": "tool_calls", "content_filter": "content_filter"}


class ChatEncoder:
    """A choice's first chunk carries its role; a call's name goes once, with its id; the finish has a chunk of its own."""

    def __init__(self, envelope: Envelope) -> None:
        self._request = envelope.request
        self._envelope = envelope
        self._legacy = envelope.request.legacy_functions
        self._most = min(envelope.request.sampling.n or 1, MAX_INDEXES)
        self._roles: set[int] = set()
        self._spoken: set[int] = set()
        self._thoughts: dict[int, tuple[str, int]] = {}
        self._annotations: dict[int, list[Json]] = {}
        self._plain: set[tuple[int, int]] = set()
        self._custom: set[tuple[int, int]] = set()
        self._frame_as(AnswerStarted())

    def _frame_as(self, started: AnswerStarted, tier: str | None = None) -> None:
        """Everything in a chunk that does not change from one to the next."""
        self._started = started
        head = _head(self._envelope, "chat.completion.chunk", started, tier)
        if self._request.include_usage:
            head["usage"] = None
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self._text = self._head + b'{"index":0,"delta":{"content":'
        self._arguments = self._head + b'{"index":0,"delta":{"tool_calls":[{"index":'

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if event.__class__ is TextDelta:  # nearly every event
                if 0 in self._spoken and not event.choice and event.logprobs is None:
                    out.append(self._text + encode(event.text) + _TAIL)
                    continue
            elif event.__class__ is ArgumentsDelta and (event.choice, event.index) in self._plain:  # nearly every other
                out.append(b'%b%d,"function":{"arguments":%b}}]%b' % (self._arguments, event.index, encode(event.text), _TAIL))
                continue
            self._encode_event(event, out)
        return b"".join(out)

    def _encode_event(self, event: StreamEvent, out: list[bytes]) -> None:
        match event:
            case AnswerStarted():
                self._frame_as(event)
            case TextDelta():
                logprobs: Json = {"content": event.logprobs, "refusal": None} if event.logprobs else None
                self._delta(event.choice, {"content": event.text}, out, logprobs)
            case RefusalDelta():
                self._delta(event.choice, {"refusal": event.text}, out)
            case ReasoningDelta():
                self._think(event, out)
            case AnnotationAdded():
                shown = _annotation(event.annotation)
                if shown is not None:
                    self._annotations.setdefault(event.choice, []).append(shown)
            case CallStarted():
                self._start_call(event, out)
            case ArgumentsDelta():
                self._grow_call(event, out)
            case ChoiceFinished():
                self._finish(event.choice, event.finish, out)
            case AnswerFinished():
                if event.service_tier is not None and event.service_tier != self._started.service_tier:
                    self._frame_as(self._started, event.service_tier)
                self._finish(0, event.finish, out)
                if self._request.include_usage and event.usage is not None:
                    usage = encode(encode_usage(event.usage))
                    out.append(self._head.replace(b'"usage":null', b'"usage":' + usage) + b"]}\n\n")
                out.append(DONE)
            case AnswerFailed():
                out.append(b"data: " + encode_error(event.error) + b"\n\n" + DONE)
            case MessageStarted() | ReasoningStarted() | ReasoningFinished() | CallFinished() | ItemReceived() | Noticed():
                pass

    def _role(self, choice: int, out: list[bytes], *, has_text: bool) -> None:
        """An answer without text has the content null, also when its chunks are put together.

        OpenAI's library takes the first chunk of a choice for the next choice in order, so a lower one begins first.
        """
        if choice in self._roles:
            return
        for each in (*range(min(choice, self._most)), choice):
            if each not in self._roles:
                self._roles.add(each)
                self._chunk(each, {"role": "assistant", "content": "" if has_text and each == choice else None}, out)

    def _delta(self, choice: int, delta: JsonObject, out: list[bytes], logprobs: Json = None) -> None:
        self._role(choice, out, has_text="content" in delta)
        self._spoken.add(choice)
        self._chunk(choice, delta, out, logprobs=logprobs)

    def _chunk(
        self, choice: int, delta: JsonObject, out: list[bytes], *, finish: str | None = None, logprobs: Json = None
    ) -> None:
        body = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        out.append(self._head + encode(body) + b"]}\n\n")

    def _think(self, event: ReasoningDelta, out: list[bytes]) -> None:
        """Parts are paragraphs."""
        part = event.kind, event.part
        begins = event.part > 0 and self._thoughts.get(event.choice) != part
        self._thoughts[event.choice] = part
        self._delta(event.choice, {"reasoning_content": _PARAGRAPH + event.text if begins else event.text}, out)

    def _start_call(self, event: CallStarted, out: list[bytes]) -> None:
        key = event.choice, event.index
        if self._legacy:
            if not event.index:
                self._delta(event.choice, {"function_call": {"name": event.name, "arguments": ""}}, out)
            return
        if event.kind == "custom":
            self._custom.add(key)
            body: JsonObject = {"name": event.name, "input": ""}
        else:
            body = {"name": event.name, "arguments": ""}
            if not event.choice:
                self._plain.add(key)
        call: JsonObject = {"index": event.index, "id": event.id, "type": event.kind, event.kind: body}
        self._delta(event.choice, {"tool_calls": [call | (event.extra or {})]}, out)

    def _grow_call(self, event: ArgumentsDelta, out: list[bytes]) -> None:
        if self._legacy:
            if not event.index:
                self._delta(event.choice, {"function_call": {"arguments": event.text}}, out)
            return
        kind, member = ("custom", "input") if (event.choice, event.index) in self._custom else ("function", "arguments")
        self._delta(event.choice, {"tool_calls": [{"index": event.index, kind: {member: event.text}}]}, out)

    def _finish(self, choice: int, finish: Finish, out: list[bytes]) -> None:
        annotations = self._annotations.pop(choice, None)
        if annotations:  # all at once: OpenAI's library cannot add to a list of them
            self._delta(choice, {"annotations": annotations}, out)
        began = choice in self._roles
        self._role(choice, out, has_text=True)
        if began and choice not in self._spoken:
            self._chunk(choice, {"content": ""}, out)
        self._chunk(choice, {}, out, finish=_finish_reason(finish, legacy=self._legacy))


_PARAGRAPH = "\n\n"
_TAIL = b'},"logprobs":null,"finish_reason":null}]}\n\n'


def encode_answer(answer: Answer, envelope: Envelope) -> bytes:
    """The whole answer: what the chunks above say, folded."""
    legacy = envelope.request.legacy_functions
    body: dict[str, Any] = {
        **_head(envelope, "chat.completion", answer.started, answer.service_tier),
        "choices": [_choice(number, each, legacy=legacy) for number, each in enumerate((answer, *answer.others))],
    }
    if answer.usage is not None:
        body["usage"] = encode_usage(answer.usage)
    return encode(body)


def _choice(index: int, answer: Answer, *, legacy: bool) -> JsonObject:
    texts: list[Text] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for item in answer.items:
        if type(item) is Message:
            for part in item.content:
                if type(part) is Text:
                    texts.append(part)
                elif type(part) is Refusal:
                    refusals.append(part.text)
        elif type(item) is Call:
            calls.append(item)
        elif type(item) is Reasoning:
            thoughts += [_PARAGRAPH.join(parts) for parts in (item.summary, item.text) if parts]
    message: JsonObject = {
        "role": "assistant",
        "content": "".join([text.text for text in texts]) if texts or not (calls or refusals or thoughts) else None,
        "refusal": "".join(refusals) if refusals else None,
    }
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    annotations: list[Json] = [shown for text in texts for raw in text.annotations if (shown := _annotation(raw)) is not None]
    if annotations:
        message["annotations"] = annotations
    if calls and legacy:
        message["function_call"] = {"name": calls[0].name, "arguments": calls[0].arguments}
    elif calls:
        message["tool_calls"] = [_call(call) for call in calls]
    logprobs = [entry for text in texts for entry in text.logprobs]
    return {
        "index": index,
        "message": message,
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": _finish_reason(answer.finish, legacy=legacy),
    }


def _call(call: Call) -> JsonObject:
    key = "arguments" if call.kind == "function" else "input"
    return {"id": call.id, "type": call.kind, call.kind: {"name": call.name, key: call.arguments}, **(call.extra or {})}


def _annotation(raw: Json) -> JsonObject | None:
    """Chat nests citations of the web, and does not know those of files that Responses has."""
    if not isinstance(raw, dict) or raw.get("type") in ("file_citation", "container_file_citation", "file_path"):
        return None
    if raw.get("type") != "url_citation":
        return raw
    return {"type": "url_citation", "url_citation": {key: value for key, value in raw.items() if key != "type"}}


def _finish_reason(finish: Finish, *, legacy: bool) -> str:
    return "function_call" if legacy and finish == "calls" else FINISH[finish]


def _head(envelope: Envelope, kind: str, started: AnswerStarted, tier: str | None = None) -> JsonObject:
    """`tier` is the one that was used, where that is known only at the end."""
    head: JsonObject = {
        "id": f"chatcmpl-{envelope.token}",
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
    }
    if tier is not None or started.service_tier is not None:
        head["service_tier"] = tier or started.service_tier
    if started.fingerprint is not None:
        head["system_fingerprint"] = started.fingerprint
    return head


def encode_usage(usage: Usage) -> JsonObject:
    total = usage.input + usage.output if usage.total is None else usage.total
    prompt = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written, "audio_tokens": usage.audio_in}
    completion = {
        "reasoning_tokens": usage.reasoning,
        "audio_tokens": usage.audio_out,
        "accepted_prediction_tokens": usage.accepted_prediction,
        "rejected_prediction_tokens": usage.rejected_prediction,
    }
    out: JsonObject = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total}
    for name, details in (("prompt_tokens_details", prompt), ("completion_tokens_details", completion)):
        known: JsonObject = {key: value for key, value in details.items() if value is not None}
        if known:
            out[name] = known
    return out
