"""Request members that Chat Completions and Responses share."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from toolrelay.core.request import OutputFormat


class RequestBody(Struct, kw_only=True):
    """The top-level members that both APIs spell alike."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


class JsonSchema(Struct):
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None

    def output_format(self, kind: Literal["text", "json_object", "json_schema"]) -> OutputFormat:
        return OutputFormat(type=kind, name=self.name, description=self.description, schema=self.schema, strict=self.strict)


class ImageUrl(Struct):
    url: str
    detail: str | None = None


class InputAudio(Struct):
    data: str
    format: str
