"""Chat Completions, the answer to a client: stream events into chunks, or an Answer into one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from toolrelay.core.assembly import Answer
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallStarted,
    ChoiceFinished,
    Finish,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Message, Reasoning, Refusal, Text
from toolrelay.wires.base import KEEP_ALIVE, Envelope
from toolrelay.wires.chat.reasoning_details import REASONING_DETAILS, name_calls, unseal_details
from toolrelay.wires.errors import encode_error
from toolrelay.wires.json import encode
from toolrelay.wires.sse import DONE

_PARAGRAPH = "\n\n"
_TAIL = b'},"logprobs":null,"finish_reason":null}]}\n\n'


class ChatEncoder:
    """See wires.base.Encoder. A choice's first chunk has its role, a call's first its id and name, its last only the finish."""

    def __init__(self, envelope: Envelope) -> None:
        self._request = envelope.request
        self._envelope = envelope
        self._is_legacy = envelope.request.legacy_functions
        self._choice_count = min(envelope.request.sampling.n or 1, MAX_INDEXES)
        self._started_choices: set[int] = set()
        self._choices_with_content: set[int] = set()
        self._reasoning_parts: dict[int, tuple[str, int]] = {}  # the kind and number of each choice's last part
        self._annotations: dict[int, list[Json]] = {}
        self._details: list[JsonObject] = []  # of the first choice's reasoning
        self._call_ids: dict[int, str] = {}  # of the first choice
        self._function_calls: set[tuple[int, int]] = set()  # of the first choice
        self._custom_calls: set[tuple[int, int]] = set()
        self._set_head(AnswerStarted())

    def _set_head(self, started: AnswerStarted, tier: str | None = None) -> None:
        """Encode what all chunks begin with."""
        self._started = started
        head = _head(self._envelope, "chat.completion.chunk", started, tier)
        if self._request.include_usage:
            head["usage"] = None
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self._text_head = self._head + b'{"index":0,"delta":{"content":'
        self._arguments_head = self._head + b'{"index":0,"delta":{"tool_calls":[{"index":'

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if event.__class__ is TextDelta:  # nearly every event
                if 0 in self._choices_with_content and not event.choice and event.logprobs is None:
                    out.append(self._text_head + encode(event.text) + _TAIL)
                    continue
            elif event.__class__ is ArgumentsDelta and (event.choice, event.index) in self._function_calls:  # nearly every other
                head, text = self._arguments_head, encode(event.text)
                out.append(b'%b%d,"function":{"arguments":%b}}]%b' % (head, event.index, text, _TAIL))
                continue
            self._encode_event(event, out)
        return b"".join(out)

    def _encode_event(self, event: StreamEvent, out: list[bytes]) -> None:
        match event:
            case AnswerStarted():
                self._set_head(event)
            case TextDelta():
                logprobs: Json = {"content": event.logprobs, "refusal": None} if event.logprobs else None
                self._delta(event.choice, {"content": event.text}, out, logprobs)
            case RefusalDelta():
                self._delta(event.choice, {"refusal": event.text}, out)
            case ReasoningDelta():
                self._reasoning_delta(event, out)
            case ReasoningFinished():
                self._details += unseal_details(event.encrypted)
            case AnnotationAdded():
                annotation = _annotation(event.annotation)
                if annotation is not None:
                    self._annotations.setdefault(event.choice, []).append(annotation)
            case CallStarted() | ArgumentsDelta() if self._is_legacy:
                self._legacy_call(event, out)
            case CallStarted():
                self._start_call(event, out)
            case ArgumentsDelta():
                self._arguments_delta(event, out)
            case ChoiceFinished():
                self._finish(event.choice, event.finish, out)
            case AnswerFinished():
                if event.service_tier is not None and event.service_tier != self._started.service_tier:
                    self._set_head(self._started, event.service_tier)
                self._finish(0, event.finish, out)
                if self._request.include_usage and event.usage is not None:
                    usage = encode(_encode_usage(event.usage))
                    out.append(self._head.replace(b'"usage":null', b'"usage":' + usage) + b"]}\n\n")
                out.append(DONE)
            case AnswerFailed():
                out.append(b"data: " + encode_error(event.error) + b"\n\n" + DONE)
            case _:  # the limits of messages, reasoning and calls, and other wires' items: Chat has no chunks for them
                pass

    def _start_choice(self, choice: int, out: list[bytes], *, has_text: bool) -> None:
        """Send the role. The content of an answer without text is null, also when its chunks are put together.

        OpenAI's library takes the first chunk of a choice for the next choice in order, so lower ones are started first.
        """
        if choice in self._started_choices:
            return
        for each in (*range(min(choice, self._choice_count)), choice):
            if each not in self._started_choices:
                self._started_choices.add(each)
                self._chunk(each, {"role": "assistant", "content": "" if has_text and each == choice else None}, out)

    def _delta(self, choice: int, delta: JsonObject, out: list[bytes], logprobs: Json = None) -> None:
        self._start_choice(choice, out, has_text="content" in delta)
        self._choices_with_content.add(choice)
        self._chunk(choice, delta, out, logprobs)

    def _chunk(self, choice: int, delta: JsonObject, out: list[bytes], logprobs: Json = None, finish: str | None = None) -> None:
        body = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        out.append(self._head + encode(body) + b"]}\n\n")

    def _reasoning_delta(self, event: ReasoningDelta, out: list[bytes]) -> None:
        """Send reasoning, each part a paragraph."""
        part = event.kind, event.part
        is_new_paragraph = event.part > 0 and self._reasoning_parts.get(event.choice) != part
        self._reasoning_parts[event.choice] = part
        self._delta(event.choice, {"reasoning_content": _PARAGRAPH + event.text if is_new_paragraph else event.text}, out)

    def _legacy_call(self, event: CallStarted | ArgumentsDelta, out: list[bytes]) -> None:
        if not event.index:  # a legacy answer has one call
            call: JsonObject = (
                {"arguments": event.text} if isinstance(event, ArgumentsDelta) else {"name": event.name, "arguments": ""}
            )
            self._delta(event.choice, {"function_call": call}, out)

    def _start_call(self, event: CallStarted, out: list[bytes]) -> None:
        key = event.choice, event.index
        if event.kind == "custom":
            self._custom_calls.add(key)
        elif not event.choice:
            self._function_calls.add(key)
        if not event.choice:
            self._call_ids[event.index] = event.id
        call = {"index": event.index, **_call(event.id, event.kind, event.name, ""), **(event.extra or {})}
        self._delta(event.choice, {"tool_calls": [call]}, out)

    def _arguments_delta(self, event: ArgumentsDelta, out: list[bytes]) -> None:
        kind, member = ("custom", "input") if (event.choice, event.index) in self._custom_calls else ("function", "arguments")
        self._delta(event.choice, {"tool_calls": [{"index": event.index, kind: {member: event.text}}]}, out)

    def _finish(self, choice: int, finish: Finish, out: list[bytes]) -> None:
        details = name_calls(self._details, self._call_ids) if not choice else []
        if details:  # all at once, as annotations
            self._delta(choice, {REASONING_DETAILS: details}, out)
        annotations = self._annotations.pop(choice, None)
        if annotations:  # all at once: OpenAI's library cannot add to a list of them
            self._delta(choice, {"annotations": annotations}, out)
        was_started = choice in self._started_choices
        self._start_choice(choice, out, has_text=True)
        if was_started and choice not in self._choices_with_content:
            self._chunk(choice, {"content": ""}, out)
        self._chunk(choice, {}, out, finish=_finish_reason(finish, is_legacy=self._is_legacy))


def encode_answer(answer: Answer, envelope: Envelope) -> bytes:
    """Encode a whole answer: what the chunks of its stream amount to."""
    is_legacy = envelope.request.legacy_functions
    body: dict[str, Any] = {
        **_head(envelope, "chat.completion", answer.started, answer.service_tier),
        "choices": [_choice(number, each, is_legacy=is_legacy) for number, each in enumerate((answer, *answer.others))],
    }
    if answer.usage is not None:
        body["usage"] = _encode_usage(answer.usage)
    return encode(body)


def _choice(index: int, answer: Answer, *, is_legacy: bool) -> JsonObject:
    texts: list[Text] = []
    refusals: list[str] = []
    reasoning: list[str] = []
    details: list[JsonObject] = []
    for item in answer.items:
        if type(item) is Message:
            for part in item.content:
                if type(part) is Text:
                    texts.append(part)
                elif type(part) is Refusal:
                    refusals.append(part.text)
        elif type(item) is Reasoning:
            reasoning += [_PARAGRAPH.join(parts) for parts in (item.summary, item.text) if parts]
            details += unseal_details(item.encrypted)
    calls = answer.calls
    message: JsonObject = {
        "role": "assistant",
        "content": "".join([text.text for text in texts]) if texts or not (calls or refusals or reasoning) else None,
        "refusal": "".join(refusals) if refusals else None,
    }
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    named = name_calls(details, {number: call.id for number, call in enumerate(calls)})
    if named:
        message[REASONING_DETAILS] = named
    annotations: list[Json] = [shown for text in texts for raw in text.annotations if (shown := _annotation(raw)) is not None]
    if annotations:
        message["annotations"] = annotations
    if calls and is_legacy:
        message["function_call"] = {"name": calls[0].name, "arguments": calls[0].arguments}
    elif calls:
        message["tool_calls"] = [_call(call.id, call.kind, call.name, call.arguments) | (call.extra or {}) for call in calls]
    logprobs = [entry for text in texts for entry in text.logprobs]
    return {
        "index": index,
        "message": message,
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": _finish_reason(answer.finish, is_legacy=is_legacy),
    }


def _call(identifier: str, kind: str, name: str, arguments: str) -> JsonObject:
    return {"id": identifier, "type": kind, kind: {"name": name, "arguments" if kind == "function" else "input": arguments}}


def _annotation(raw: Json) -> JsonObject | None:
    """Return the annotation as Chat has it: web citations nested, those of files not at all."""
    if not isinstance(raw, dict) or raw.get("type") in ("file_citation", "container_file_citation", "file_path"):
        return None
    if raw.get("type") != "url_citation":
        return raw
    return {"type": "url_citation", "url_citation": {key: value for key, value in raw.items() if key != "type"}}


def _finish_reason(finish: Finish, *, is_legacy: bool) -> str:
    if finish == "calls":
        return "function_call" if is_legacy else "tool_calls"
    return finish


def _head(envelope: Envelope, kind: str, started: AnswerStarted, tier: str | None = None) -> JsonObject:
    """Return the members before the choices. `tier` is the service tier that was used, if known only at the end."""
    head: JsonObject = {"id": f"chatcmpl-{envelope.token}", "object": kind, "created": envelope.created, "model": envelope.model}
    if tier is not None or started.service_tier is not None:
        head["service_tier"] = tier or started.service_tier
    if started.fingerprint is not None:
        head["system_fingerprint"] = started.fingerprint
    return head


_DETAILS = {
    "prompt_tokens_details": {
        "cached": "cached_tokens",
        "cache_written": "cache_write_tokens",
        "audio_in": "audio_tokens",
    },
    "completion_tokens_details": {
        "reasoning": "reasoning_tokens",
        "audio_out": "audio_tokens",
        "accepted_prediction": "accepted_prediction_tokens",
        "rejected_prediction": "rejected_prediction_tokens",
    },
}
"""OpenAI's names for the parts of input and output."""


def _encode_usage(usage: Usage) -> JsonObject:
    total = usage.input + usage.output if usage.total is None else usage.total
    members: JsonObject = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total}
    known = to_builtins(usage)  # without members that are None
    for name, details in _DETAILS.items():
        if not details.keys().isdisjoint(known):
            members[name] = {theirs: known[ours] for ours, theirs in details.items() if ours in known}
    return members
