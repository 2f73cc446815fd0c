"""Base of the request encoders: what a wire cannot express is dropped by name, or refused."""

from __future__ import annotations

from toolrelay.core.identity import shorten_id
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import File, OpaqueItem, OpaquePart
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, Request, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import Unsupported
from toolrelay.wires.extra import unknown_names
from toolrelay.wires.sealed_reasoning import EXTRA_CONTENT, carried_text, unseal

CUSTOM_TOOLS = "custom tools (free text)"  # the row of a wire that has only functions
_TOOL_CHOICE = "tool_choice that names a provider's own tool"
_OPAQUE = {
    OpaqueTool: "a provider's own tools (web_search, file_search, mcp, …)",
    OpaqueItem: "a provider's own items (web_search_call, …)",
    OpaquePart: "content parts of unknown type",
}
# Fields of requests that only one API knows, and without which a request would mean something else.
_DECISIVE = ("prompt", "moderation", "inference_geo")
_DECISIVE_ROW = "prompt (a template), moderation, inference_geo"
# The rows that every wire's table of unsupported features ends with.
FOREIGN: Unsupported = {
    **dict.fromkeys((*_OPAQUE.values(), _TOOL_CHOICE, _DECISIVE_ROW), "refused"),
    "other fields, at any level": "dropped",
}


class RequestEncoder:
    """Encodes one request, by a wire's table of what it does not support. `refusal` begins the message of an error."""

    wire: str
    unsupported: Unsupported
    refusal: str

    def __init__(self, request: Request, profile: Profile) -> None:
        self.request = request
        self.profile = profile
        self.is_same_wire = request.wire == self.wire
        self.dropped: list[str] = []

    def reject(self, name: str, param: str = "", shown: str | None = None) -> None:
        """Drop or refuse, as the table says. `shown` is the value in question. What is to be emulated must not get here."""
        if self.unsupported[name] != "dropped":
            raise ClientError(f"{self.refusal} {shown or name}.", param=param, code="unsupported_by_upstream")
        self.drop(name)

    def keep_extra(self, extra: JsonObject | None) -> JsonObject:
        """Return the members that only the client's wire knows, if this is that wire; else drop them by name.

        What another wire sealed is dropped in any case: strict servers refuse members that they do not know.
        """
        if not extra:
            return {}
        if self.is_same_wire:
            text = carried_text(extra)
            if text is None or unseal(text) is None:
                return extra
            self.drop(EXTRA_CONTENT)
            return {key: value for key, value in extra.items() if key != EXTRA_CONTENT}
        self.dropped += [name for name in unknown_names(extra) if name not in self.dropped]
        return {}

    def keep_request_extra(self, extra: JsonObject | None) -> JsonObject:
        """Return the fields of the request that only the client's wire knows; else drop them, or refuse them."""
        if extra and not self.is_same_wire:
            for name in _DECISIVE:
                if extra.get(name) is not None:
                    self.reject(_DECISIVE_ROW, name, f"the field {name!r}")
        return self.keep_extra(extra)

    def opaque(self, value: OpaqueItem | OpaquePart | OpaqueTool, param: str, shown: str) -> JsonObject:
        """Return what only one wire understands as it came, or refuse it on other wires."""
        if value.wire != self.wire:
            self.reject(_OPAQUE[type(value)], param, f"{shown} {value.raw.get('type')!r}")
        return value.raw

    def check_tool_choice(self, choice: ToolChoice) -> None:
        if choice.raw is not None and not self.is_same_wire:
            self.reject(_TOOL_CHOICE, "tool_choice", f"a tool_choice of type {choice.raw.get('type')!r}")

    def adapt(self, body: JsonObject) -> JsonObject:
        """Leave out the fields that the server refuses, and rename those that it calls differently."""
        for name in self.profile.refused_fields:
            if body.pop(name, None) is not None:
                self.drop(name)
        for name, its_own in self.profile.renamed_fields:
            if name in body:
                body[its_own] = body.pop(name)
        return body

    def drop(self, name: str) -> None:
        if name not in self.dropped:
            self.dropped.append(name)

    def file_name(self, file: File) -> str | None:
        """Return the file's name. OpenAI's APIs require one beside data; others do not."""
        if file.filename is not None or file.data is None or self.is_same_wire:
            return file.filename
        return "document.txt" if file.data.startswith("data:text/") else "document.pdf"

    def call_id(self, identifier: str) -> str:
        return shorten_id(identifier) if self.profile.call_ids == "nine" else identifier
