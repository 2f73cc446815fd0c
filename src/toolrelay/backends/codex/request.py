"""Encoder from a request to the parameters of a Codex thread and turn.

    part of the request                      encoded as
    --------------------------------------   ----------------------------------------------------------------------------
    instructions, leading system messages    developerInstructions: Codex silently drops messages of role system
    tools that tool_choice allows            dynamicTools
    all other items, the last user's too     thread/inject_items; the turn's own input stays empty
    effort, summary, a strict schema         turn/start

All messages are injected, because injected items reach the model unchanged: Codex searches a turn's own input for mentions,
re-encodes its images, and limits it to 1,048,576 characters.

`baseInstructions` is never sent. It would replace or, when empty, remove the instructions that the catalog has for the model.
These are not the gateway's to change. A model that is not in the catalog has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec import Struct

from toolrelay.backends.codex.input_checks import is_closed, is_inline_image, is_readable_image, is_strict, is_too_deep
from toolrelay.backends.codex.rails import NO_RAILS, Rails
from toolrelay.backends.codex.rpc import object_of
from toolrelay.backends.codex.strict_schema import REFUSED_SCHEMA, NotStrictError, StrictSchema
from toolrelay.backends.codex.tools import CodexTools
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
    plain_text,
)
from toolrelay.core.request import OpaqueTool, Request, Tool
from toolrelay.errors import ClientError, invalid
from toolrelay.wires.extra import unknown_names
from toolrelay.wires.responses.request import NAME as RESPONSES

_DROPPED = (
    "temperature", "top_p", "max_output_tokens", "max_tokens", "max_completion_tokens", "seed", "presence_penalty",
    "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tool_calls", "service_tier other than flex",
    "truncation", "metadata", "user", "prompt_cache_key", "safety_identifier", "name", "strict of a tool",
    "reasoning that is not sealed", "a response format that is not strict", "other fields, at any level",
)  # fmt: skip
_REFUSED = (
    "n", "images that are not given inline", "audio", "files", "a provider's own tools", "a provider's own items",
    "content parts of unknown type", "tool_choice that names a provider's own tool",
)  # fmt: skip
# Parts of a request that Codex does not support, and what happens to them (decision 13).
UNSUPPORTED = dict.fromkeys(_DROPPED, "dropped") | dict.fromkeys(_REFUSED, "refused")

_SAMPLING_FIELDS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias")
_REQUEST_FIELDS = ("max_tool_calls", "metadata", "user", "prompt_cache_key", "safety_identifier")
_SUMMARIES = ("auto", "concise", "detailed", "none")
_VERBOSITIES = ("low", "medium", "high")
_PHASES = ("commentary", "final_answer")
# The provider's own items that Codex passes on. It silently drops all others.
_PASSED_ITEMS = frozenset({"web_search_call", "image_generation_call", "compaction", "context_compaction"})
# Codex replaces an image of low detail by a sentence, and has no other values.
_DETAILS = {"auto": "auto", "low": "auto", "high": "high", "original": "original"}

_encode = msgspec.json.Encoder().encode


class TurnPlan(Struct, frozen=True, kw_only=True):
    """One request in Codex's terms.

    thread, turn    members of thread/start and turn/start
    items           the conversation, for thread/inject_items
    offered         the tools by their names in Codex
    allowed_items   the kinds of built-in items that Codex may produce
    strict_schema   the schema of the output, where its values have to be restored
    size            approximate number of characters sent to the model
    dropped         names of UNSUPPORTED and of unknown fields
    """

    thread: JsonObject
    items: list[Json]
    turn: JsonObject
    offered: dict[str, Tool]
    allowed_items: frozenset[str] = frozenset()
    strict_schema: StrictSchema | None = None
    size: int = 0
    dropped: tuple[str, ...] = ()


def plan_turn(request: Request, *, rails: Rails = NO_RAILS, is_other_provider: bool = False) -> TurnPlan:
    """Encode a request. Raise ClientError for what Codex does not support.

    `is_other_provider`: it is not OpenAI, which refuses reasoning that is not encrypted, and schemas that are not strict.
    """
    return _CodexRequestEncoder(request, rails, is_other_provider=is_other_provider).encode()


class _CodexRequestEncoder:
    def __init__(self, request: Request, rails: Rails, *, is_other_provider: bool) -> None:
        self._request = request
        self._rails = rails
        self._tools = CodexTools(request, reserved=("apply_patch",) if rails.patch_dir else ())
        self._is_other_provider = is_other_provider
        self._strict_schema: StrictSchema | None = None
        self._conversation_param = "input" if request.wire == RESPONSES else "messages"
        self._dropped: list[str] = []
        self._size = 0

    def encode(self) -> TurnPlan:
        request = self._request
        self._check_tools()
        self._check_settings()
        turn = self._turn_params()
        leading, conversation = _split_instructions(request.items)
        texts = [request.instructions or "", *leading, self._format_instruction()]
        items: list[Json] = [encoded for item in conversation if (encoded := self._item(item)) is not None]
        self._check_results()
        thread = self._thread_params()
        instructions = "\n\n".join(filter(None, texts))
        if instructions:
            thread["developerInstructions"] = instructions
        declarations = self._tools.declarations()
        if declarations:
            thread["dynamicTools"] = [*declarations]
        return TurnPlan(
            thread=thread,
            items=items,
            turn=turn,
            offered=self._tools.offered,
            allowed_items=self._rails.allowed_items(request.items),
            strict_schema=self._strict_schema,
            size=self._size + len(instructions) + sum(len(_encode(tool)) for tool in declarations),
            dropped=tuple(dict.fromkeys(self._dropped)),
        )

    def _unsupported(self, what: str, param: str | None = None) -> ClientError:
        message = f"This model is reached through Codex, which cannot say {what}."
        return ClientError(message, param=param or self._conversation_param, code="unsupported_by_upstream")

    def _drop_unknown(self, extra: JsonObject | None) -> None:
        if extra:
            self._dropped += unknown_names(extra)

    def _count(self, text: str) -> str:
        self._size += len(text)
        return text

    # The conversation

    def _item(self, item: Item) -> JsonObject | None:
        match item:
            case Message():
                return self._message(item)
            case Call():
                self._count(item.arguments)
                self._drop_unknown(item.extra)
                return self._tools.encode_call(item)
            case Result():
                self._drop_unknown(item.extra)
                output = self._count(item.output) if isinstance(item.output, str) else self._parts(item.output, "user")
                return {"type": "function_call_output", "call_id": item.call_id, "output": output}
            case Reasoning():
                return self._reasoning(item)
            case OpaqueItem():
                kind = item.raw.get("type")
                if item.wire != RESPONSES or kind not in _PASSED_ITEMS:
                    raise self._unsupported(f"an item of type {kind!r}")
                self._check_depth(item.raw, self._conversation_param)
                return item.raw
            case _:
                assert_never(item)

    def _check_results(self) -> None:
        """Refuse a call without a result: Codex would invent one ("aborted")."""
        answered = {item.call_id for item in self._request.items if isinstance(item, Result)}
        for item in self._request.items:
            if isinstance(item, Call) and item.id not in answered:
                message = f"There is no result for the call {item.id!r} of the tool {item.name!r}."
                raise invalid(message, self._conversation_param, code="missing_result")

    def _message(self, message: Message) -> JsonObject | None:
        if message.name is not None:
            self._dropped.append("name")
        self._drop_unknown(message.extra)
        role = "developer" if message.role == "system" else message.role
        if role == "assistant" and not plain_text(message.content) and not _has_media(message.content):
            return None  # some clients send an empty one before calls
        phase = message.phase if message.phase in _PHASES else None
        return _without_none({"type": "message", "role": role, "content": self._parts(message.content, role), "phase": phase})

    def _parts(self, content: Content, role: str) -> list[Json]:
        parts = (Text(text=content),) if isinstance(content, str) else content
        return [self._part(part, role) for part in parts]

    def _part(self, part: Part, role: str) -> JsonObject:
        self._drop_unknown(part.extra)
        match part:
            case Text() | Refusal():
                return {"type": "output_text" if role == "assistant" else "input_text", "text": self._count(part.text)}
            case Image() if role != "assistant":
                return self._image(part)
            case Image():
                raise self._unsupported("an image of the assistant's")
            case Audio():
                raise self._unsupported("audio")
            case File():
                raise self._unsupported("files")
            case OpaquePart():
                raise self._unsupported(f"a content part of type {part.raw.get('type')!r}")
            case _:
                assert_never(part)

    def _image(self, image: Image) -> JsonObject:
        if image.url is not None:
            if not is_inline_image(image.url):
                raise self._unsupported("an image that is not given inline, as data:image/…;base64,…")
            if not is_readable_image(image.url):
                message = "An image is no PNG, JPEG, GIF or WebP in plain base64. Codex would leave it out."
                raise invalid(message, self._conversation_param, code="invalid_image")
        file_id = image.file_id if image.url is None else None
        detail = _DETAILS.get(image.detail or "")
        return _without_none({"type": "input_image", "image_url": image.url, "file_id": file_id, "detail": detail})

    def _reasoning(self, reasoning: Reasoning) -> JsonObject | None:
        """Drop reasoning without encrypted content: a provider that stores nothing refuses it."""
        keeps_text = bool(reasoning.text) and self._is_other_provider
        if not (reasoning.encrypted or keeps_text):
            self._dropped.append("reasoning that is not sealed")
            return None
        self._drop_unknown(reasoning.extra)
        text = reasoning.text if keeps_text else ()
        return _without_none(
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": self._count(part)} for part in reasoning.summary],
                "id": reasoning.id,
                "content": [{"type": "reasoning_text", "text": self._count(part)} for part in text] or None,
                "encrypted_content": reasoning.encrypted or None,
            }
        )

    # Tools and settings

    def _check_tools(self) -> None:
        choice = self._request.tool_choice
        for tool in self._request.tools:
            if isinstance(tool, OpaqueTool):
                if self._rails.allows_search and str(tool.raw.get("type")).startswith("web_search"):
                    continue
                raise self._unsupported(f"the tool {tool.raw.get('type')!r}", "tools")
            self._drop_unknown(tool.extra)
            self._check_depth(tool.parameters, "tools")
            if tool.strict and tool.kind == "function":
                self._dropped.append("strict of a tool")
        if choice is not None and choice.raw is not None:
            raise self._unsupported(f"a tool_choice of type {choice.raw.get('type')!r}", "tool_choice")

    def _check_depth(self, value: Json, param: str) -> None:
        """Codex would never answer, and the process would count as unresponsive."""
        if is_too_deep(value):
            raise invalid("What is sent is nested too deeply for Codex.", param, code="too_deep")

    def _check_settings(self) -> None:
        request, sampling = self._request, self._request.sampling
        if sampling.n is not None and sampling.n > 1:
            raise self._unsupported(f"n = {sampling.n}", "n")
        if sampling.max_output_tokens is not None:
            self._dropped.append(sampling.max_tokens_field or "max_output_tokens")
        self._dropped += [name for name in _SAMPLING_FIELDS if getattr(sampling, name) is not None]
        self._dropped += [name for name in ("logprobs", "top_logprobs") if getattr(sampling, name)]
        self._dropped += [name for name in _REQUEST_FIELDS if getattr(request, name)]
        if request.service_tier not in (None, "auto", "default", "flex"):
            self._dropped.append("service_tier other than flex")
        if request.truncation not in (None, "disabled"):
            self._dropped.append("truncation")
        self._drop_unknown(request.extra)

    def _thread_params(self) -> JsonObject:
        thread = self._rails.thread_params(self._request.items)
        if self._request.service_tier == "flex":
            thread["serviceTier"] = "flex"
        verbosity = self._request.sampling.verbosity
        if verbosity is not None:
            if verbosity not in _VERBOSITIES:
                raise invalid(f"The verbosity must be one of {', '.join(_VERBOSITIES)}.", "verbosity")
            thread["config"] = {**object_of(thread.get("config")), "model_verbosity": verbosity}
        return thread

    def _turn_params(self) -> JsonObject:
        reasoning, output = self._request.reasoning, self._request.output
        turn: JsonObject = {"input": [], "summary": "none"}
        if reasoning is not None:
            self._drop_unknown(reasoning.extra)
            if reasoning.effort:
                turn["effort"] = reasoning.effort
            if reasoning.summary is not None and reasoning.summary not in _SUMMARIES:
                raise invalid(f"The summary of reasoning must be one of {', '.join(_SUMMARIES)}.", "reasoning.summary")
            turn["summary"] = reasoning.summary or "none"
        if output is not None and output.type == "json_schema" and is_strict(output):
            turn["outputSchema"] = self._output_schema(output.schema or {})
        return turn

    def _output_schema(self, schema: JsonObject) -> JsonObject:
        """Return the schema as strict mode has it. A provider that is not OpenAI may accept one for which that is impossible."""
        param = "text.format" if self._request.wire == RESPONSES else "response_format"
        self._check_depth(schema, param)
        try:
            strict = StrictSchema(schema)
        except NotStrictError as error:
            if self._is_other_provider or is_closed(schema):
                return schema
            raise invalid(f"Strict mode does not allow {error} in a schema.", param, code=REFUSED_SCHEMA) from None
        self._check_depth(strict.schema, param)
        if strict.is_changed:
            self._strict_schema = strict
        return strict.schema

    def _format_instruction(self) -> str:
        """Return the instruction for an output format that is not strict, which Codex cannot enforce."""
        output = self._request.output
        if output is None or output.type == "text" or (output.type == "json_schema" and is_strict(output)):
            return ""
        self._dropped.append("a response format that is not strict")
        if output.type == "json_object":
            return "Answer with one JSON object, and nothing else."
        schema = _encode(output.schema).decode()
        return f"Answer with one JSON value that fits this schema, and nothing else: {schema}"


def _split_instructions(items: Sequence[Item]) -> tuple[list[str], Sequence[Item]]:
    """Split off the system and developer messages at the start that contain only text."""
    texts: list[str] = []
    for item in items:
        if not isinstance(item, Message) or item.role not in ("system", "developer") or _has_media(item.content):
            break
        texts.append(plain_text(item.content))
    return texts, items[len(texts) :]


def _has_media(content: Content) -> bool:
    return not isinstance(content, str) and any(not isinstance(part, Text | Refusal) for part in content)


def _without_none(members: JsonObject) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}
