"""Masking of content in recorded exchanges, so that they can still be replayed. Pure.

Letters become x or X, digits 1, so that lengths, punctuation and markup stay. What is kept: the words of the dialect's markup,
the names of declared tools and of their parameters, and the members of the API that are no content. Nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Request
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.runtime.traces.report import parameter_names

_PIECE = re.compile(r"\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt]|\w+|[^\w\x00-\x7f]")
_WORD = re.compile(r"\w+")
_CODE = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_LITERALS = frozenset({"true", "false", "null", "True", "False", "None", "TAG"})
_PROBE = "q"
_MASKED_URL = "https://example.com/redacted"

# Members of a request that are recorded; the others are left out.
_MEMBERS = frozenset(
    {"model", "messages", "input", "instructions", "stream", "stream_options", "store", "include", "text", "response_format"}
    | {"tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "functions", "function_call"}
    | {"temperature", "top_p", "n", "max_tokens", "max_completion_tokens", "max_output_tokens", "logprobs", "top_logprobs"}
    | {"reasoning", "reasoning_effort"}
)
_LEFT_OUT = frozenset({"metadata", "encrypted_content", "signature", "annotations", "extra_content", "reasoning_details"})
_CODES = frozenset(
    {"model", "role", "type", "status", "effort", "detail", "mode", "tool_choice", "function_call", "include", "phase", "$ref"}
)
_IDS = frozenset({"id", "call_id", "tool_call_id", "item_id", "approval_request_id"})
_LOCATIONS = frozenset({"url", "image_url", "file_url", "file_data", "data", "file_id"})


class Masker:
    """Masks the exchanges of one client and model. `dialects` are the forms in which the model may print calls."""

    def __init__(self, request: Request, dialects: Iterable[Dialect], markup: Iterable[str] = ()) -> None:
        names = {name for tool in request.functions() for name in (tool.name, *parameter_names(tool.parameters))}
        shown = "\n".join([*map(_sample, dialects), *markup])
        self._words = _LITERALS | set(_WORD.findall("\n".join([shown, *names]))) - {_PROBE}
        self._symbols = {character for character in shown if not character.isascii()}
        self._ids: dict[str, str] = {}

    def mask(self, text: str) -> str:
        return _PIECE.sub(self._mask_piece, text)

    def mask_request(self, body: JsonObject) -> Json:
        return {name: self._mask_value(name, value) for name, value in body.items() if name in _MEMBERS}

    def _mask_piece(self, found: re.Match[str]) -> str:
        piece = found.group()
        if piece[0] == "\\":
            return "\\u0078" if piece[1] == "u" else piece
        if piece in self._words or piece in self._symbols:
            return piece
        return "".join(map(_mask_character, piece))

    def _mask_value(self, name: str, value: Json) -> Json:
        match value:
            case str():
                return self._mask_string(name, value)
            case list():
                return [self._mask_value(name, each) for each in value]
            case dict():
                return {key: self._mask_value(key, each) for key, each in value.items() if key not in _LEFT_OUT}
            case _:
                return value

    def _mask_string(self, name: str, value: str) -> str:
        if name in _CODES and _CODE.fullmatch(value):
            return value
        if name in _IDS:
            return self._ids.setdefault(value, f"id_{len(self._ids) + 1}")
        return _MASKED_URL if name in _LOCATIONS else self.mask(value)


def _mask_character(character: str) -> str:
    if character == "_":
        return character
    if character.isdecimal():
        return "1"  # 0 would make invalid numbers
    return "X" if character.isupper() else "x"


def _sample(dialect: Dialect) -> str:
    """Return the markup of a dialect, with the probe as its only content."""
    call = Call(id=_PROBE, name=_PROBE, arguments=f'{{"{_PROBE}":"{_PROBE}"}}')
    markers = (*(marker.text for marker in dialect.start_markers), *dialect.end_markers)
    results = dialect.render_results([ToolResult(call=call, text=_PROBE)])
    return "\n".join((dialect.render_calls([call]), results, *markers))
