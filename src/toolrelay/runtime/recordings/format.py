"""The format of a recorded exchange, which `toolrelay serve --record` writes and `toolrelay replay` plays.

A recording is a JSON object:

    request   the body of the client's request
    answer    the model's text; or {"sse": "…", "wire": "chat"}: the bytes that its server sent; or a list of these, one for each
              time that the model was asked
    wire      chat | responses: the client's API. Default: responses if the request has an `input`, else chat
    client    openai | use_tool: the kind of tool calls that the client understands
    order     tools_first | as_is, for use_tool
    dialect   the dialect in which the model prints its calls. Default: none, its text is only text
    model     settings of the model instead of `dialect`: provider, model, tool_calling, cutoff, on_bad_call, printed_calls
    note      a comment

In the text of a sealed model the tag is written as TAG.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolrelay.settings import ModelSettings

SEALED_TAG = "TAG"


class UpstreamStream(Struct, frozen=True, forbid_unknown_fields=True):
    """The bytes that a model's server sent, and their wire."""

    sse: str
    wire: str = "chat"


RecordedAnswer: TypeAlias = str | UpstreamStream


class RecordedModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of a model that decide what a client gets for an answer. They are those of a model's table."""

    provider: str = "compatible"
    model: str = ""
    tool_calling: str = "auto"
    cutoff: Literal["off", "first", "burst"] = "burst"
    on_bad_call: Literal["", "pass", "retry", "text", "fail"] = ""
    printed_calls: Literal["", "catch", "text"] = ""

    @classmethod
    def of(cls, settings: ModelSettings) -> RecordedModel:
        return cls(**{field: getattr(settings, field) for field in cls.__struct_fields__})

    def settings(self) -> ModelSettings:
        return ModelSettings(name=self.model, **{field: getattr(self, field) for field in self.__struct_fields__})


class Recording(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    request: msgspec.Raw
    answer: RecordedAnswer | tuple[RecordedAnswer, ...]
    wire: str = ""
    client: Literal["openai", "use_tool"] = "openai"
    order: Literal["tools_first", "as_is"] = "tools_first"
    dialect: str = ""
    model: RecordedModel | None = None
    note: str = ""

    @property
    def answers(self) -> tuple[RecordedAnswer, ...]:
        return self.answer if isinstance(self.answer, tuple) else (self.answer,)
