"""Traces without content, for bug reports. Pure.

Nothing is kept unless it is named here: kinds, times, sizes, codes of the gateway, names of declared tools and of their
parameters. Texts become their lengths, other values their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from toolrelay.core.approvals import decode_text
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Message, Reasoning, Result
from toolrelay.core.request import Request, Tool
from toolrelay.runtime.traces.timeline import TraceEntry

MAX_RUN = 7  # characters of content that may be in an error message by chance
MAX_MESSAGE = 300
MAX_CONTENT = 8_000_000  # characters that error messages are compared with; that takes about 4 s
MAX_ELEMENTS = 50
MAX_DEPTH = 8
_CODE = re.compile(r"[a-z][a-z0-9_.]{0,63}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/~][^\s'\"]+|\b[\w.+-]+://\S+|\S*[\w-]\.(?:md|txt|pdf|canvas)\b|\S{24,}")
# Words of the records themselves, which are no content.
_VOCABULARY = frozenset(
    {field for kind in (Request, Tool, Message, Call, Result, Reasoning) for field in kind.__struct_fields__}
    | {
        "Reasoning",
        "OpaqueItem",
        "function",
        "assistant",
        "developer",
        "openai_chat",
        "openai_responses",
        "anthropic_messages",
        "first_ms",
        "service_tier",
    }
    | {"properties", "required", "description", "private", "withheld", "additionalProperties", "call_ids"}
)
_SHORT = ("role", "id", "call_id", "kind", "wire")  # members of an item that are not its content
_REQUEST_FLAGS = ("stream", "store", "background", "parallel_tool_calls", "max_tool_calls", "takes_gateway_tools")


def describe_text(text: str) -> str:
    return f"[text, {len(text)} characters]"


class Redactor:
    """`names` are the names that may be kept: of tools and of their parameters."""

    def __init__(self, names: Iterable[str], entries: Iterable[TraceEntry]) -> None:
        self._names = frozenset(name for name in names if _NAME.fullmatch(name))
        self._entries = list(entries)
        self._content: list[str] | None = None
        self._messages: dict[str, str] = {}

    def redact_entry(self, entry: TraceEntry) -> JsonObject:
        detail = entry.detail
        kept: JsonObject = {"kind": entry.kind, "status": entry.status, "started_ms": entry.started, "ms": entry.ms}
        if "tool" in detail:
            kept["tool"] = self._tool(detail["tool"])
        match entry.kind:
            case "accepted":
                kept |= self._redact_request(detail["request"])
            case "model" | "rejected":
                kept |= self._redact_answer(detail)
            case "call" | "question" | "share" | "run":
                kept |= self._redact_call(detail)
            case "taken_up":
                kept["tools"] = [self._tool(each["call"]["name"]) for each in detail["calls"]]
            case "handed_over":
                kept["tools"] = [self._tool(name) for name in detail["tools"]]
            case "finished":
                kept |= {"finish": detail["finish"], "usage": _numbers(detail["usage"])}
            case "failed":
                kept |= {
                    "code": _code(detail.get("code")),
                    "http_status": detail.get("status", 500),
                    "message": self.redact_message(detail["message"]),
                }
            case "unreadable":
                kept["step"] = _name(detail["step"])
            case "resumed":
                pass
        return kept

    def redact(self, value: Json, depth: int = 0) -> Json:
        """Return types and lengths."""
        match value:
            case str():
                return describe_text(value)
            case bool():
                return "[boolean]"
            case int() | float():
                return "[number]"
            case list() if depth < MAX_DEPTH:
                kept: list[Json] = [self.redact(each, depth + 1) for each in value[:MAX_ELEMENTS]]
                return kept if len(value) <= MAX_ELEMENTS else [*kept, f"[{len(value) - MAX_ELEMENTS} more elements]"]
            case dict() if depth < MAX_DEPTH:
                return self._redact_members(value, depth)
            case list() | dict():
                return f"[{'list' if isinstance(value, list) else 'object'}, {len(value)} elements]"
            case _:
                return None

    def _redact_members(self, members: dict[str, Json], depth: int) -> JsonObject:
        known = {name: self.redact(each, depth + 1) for name, each in members.items() if name in self._names}
        others = len(members) - len(known)
        return known if not others else {**known, "[other members]": others}

    def redact_message(self, message: str) -> str:
        """Return an error message without paths, and without what also occurs in the content of the turn.

        In a very large turn that would take long: then nothing of the message is kept.
        """
        if message not in self._messages:
            is_small = sum(map(len, self._all_content())) <= MAX_CONTENT
            self._messages[message] = self._clean(message) if is_small else describe_text(message)
        return self._messages[message]

    def _clean(self, message: str) -> str:
        text = _PATH.sub("[…]", message[:MAX_MESSAGE])
        size = MAX_RUN + 1
        content = self._all_content()
        hidden = [False] * len(text)
        for start in range(len(text) - size + 1):
            run = text[start : start + size]
            if any(run in each for each in content):
                hidden[start : start + size] = [True] * size
        out = "".join("\0" if is_hidden else character for character, is_hidden in zip(text, hidden, strict=True))
        return re.sub("\0+", "[…]", out)

    def _all_content(self) -> list[str]:
        if self._content is None:
            details = [entry.detail for entry in self._entries if entry.kind != "failed" and "error" not in entry.detail]
            texts = {text for text in _texts(details) if text not in _VOCABULARY}
            decoded = {inner for text in texts if text[:1] in ("{", "[") for inner in _texts(decode_text(text))}
            self._content = [text for text in texts | decoded if len(text) > MAX_RUN]
        return self._content

    def _tool(self, name: str) -> str:
        return name if name in self._names else f"[unknown tool, {len(name)} characters]"

    def _redact_request(self, request: dict[str, Any]) -> JsonObject:
        choice = request.get("tool_choice")
        return {
            "items": [self._redact_item(item) for item in request.get("items", [])[:MAX_ELEMENTS]],
            "item_count": len(request.get("items", [])),
            "instructions": self.redact(request.get("instructions")),
            "tools": [self._tool(str(tool.get("name", ""))) for tool in request.get("tools", [])[:MAX_ELEMENTS]],
            "tool_choice": None if choice is None else choice.get("mode", "auto"),
            **{name: request[name] for name in _REQUEST_FLAGS if isinstance(request.get(name), bool | int)},
        }

    def _redact_item(self, item: dict[str, Any]) -> JsonObject:
        kind = _name(str(item.get("type", "")))
        kept: JsonObject = {"type": kind}
        if kind == "Message":
            kept["role"] = _name(str(item.get("role", "")))
        if kind == "Call":
            kept |= {"tool": self._tool(str(item.get("name", ""))), "arguments": self._arguments(item.get("arguments"))}
        return {**kept, "characters": _size({name: each for name, each in item.items() if name not in _SHORT})}

    def _redact_answer(self, detail: dict[str, Any]) -> JsonObject:
        kept: JsonObject = {"raw": self.redact(detail.get("raw"))}
        if "rule" in detail:
            return {**kept, "rule": _code(detail["rule"])}
        if "error" in detail:
            return {**kept, "error": self.redact_message(detail["error"])}
        return {
            **kept,
            "finish": detail.get("finish"),
            "first_ms": detail.get("first_ms"),
            "usage": _numbers(detail.get("usage")),
            "cut": detail.get("cut", False),
            "retries": [_code(reason) for reason in detail.get("retries", [])],
            "items": [self._redact_item(item) for item in detail.get("items", [])[:MAX_ELEMENTS]],
        }

    def _redact_call(self, detail: dict[str, Any]) -> JsonObject:
        kept: JsonObject = {}
        if "owner" in detail:
            kept["owner"] = detail["owner"]
        if "arguments" in detail:
            kept["arguments"] = self._arguments(detail["arguments"])
        answer = detail.get("answer")
        if answer is not None:
            by = "rule" if str(answer["by"]).startswith("rule ") else "person"
            kept["answer"] = {
                "by": by,
                "arguments": self._arguments(answer["arguments"]),
                "reason": self.redact(answer["reason"]),
            }
        if "output" in detail:
            kept |= {"output_characters": _size(detail["output"]), "private": detail["private"], "withheld": detail["withheld"]}
        return kept

    def _arguments(self, text: str | None) -> Json:
        if text is None:
            return None
        return {"characters": len(text), "value": self.redact(decode_text(text))}


def _texts(value: object) -> Iterator[str]:
    """Yield all texts of a JSON value, also the names of members."""
    match value:
        case str():
            yield value
        case list() | tuple():
            for each in value:
                yield from _texts(each)
        case dict():
            for name, each in value.items():
                yield str(name)
                yield from _texts(each)
        case _:
            pass


def _size(value: object) -> int:
    """Return the number of characters of all texts, without the names of members and the types of parts."""
    match value:
        case str():
            return len(value)
        case list() | tuple():
            return sum(_size(each) for each in value)
        case dict():
            return sum(_size(each) for name, each in value.items() if name != "type")
        case _:
            return 0


def _numbers(usage: dict[str, Any] | None) -> JsonObject | None:
    return None if usage is None else {name: each for name, each in usage.items() if isinstance(each, int)}


def _code(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    return text if _CODE.fullmatch(text) else describe_text(text)


def _name(text: str) -> str:
    return text if _NAME.fullmatch(text) else describe_text(text)
