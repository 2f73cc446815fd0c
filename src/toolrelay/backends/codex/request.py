"""A request into what Codex is given: instructions, tools, the conversation as items, and how the turn is to be run.

    of the request                           goes to
    --------------------------------------   ----------------------------------------------------------------------------
    instructions, leading system messages    developerInstructions: Codex drops a message of role system without a word
    tools, as tool_choice leaves them        dynamicTools
    all other items, the last user's too     thread/inject_items; the turn's own input stays empty
    effort, summary, a strict schema         turn/start

Everything said goes by injected items, because these reach the model as they are: a turn's own input is searched for mentions,
its images are re-encoded, and it may not be longer than 1,048,576 characters.

`baseInstructions` is never sent. It would replace or, when empty, remove what the catalog says that the model is told first: not
the gateway's to edit, and no place for rules. A model that the catalog does not know has none there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_never

import msgspec
from msgspec import Struct

from toolrelay.backends.codex.images import is_inline, is_readable
from toolrelay.backends.codex.json_access import object_of
from toolrelay.backends.codex.rails import NO_RAILS, Rails
from toolrelay.backends.codex.schemas import is_strict, is_too_deep
from toolrelay.backends.codex.tools import Tools
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
from toolrelay.wires.responses.items import NAME as RESPONSES

# What Codex cannot say of a request, and what then happens (decision 13).
UNSUPPORTED: dict[str, Literal["dropped", "refused"]] = {
    "temperature": "dropped",
    "top_p": "dropped",
    "max_output_tokens": "dropped",
    "max_tokens": "dropped",
    "max_completion_tokens": "dropped",
    "seed": "dropped",
    "presence_penalty": "dropped",
    "frequency_penalty": "dropped",
    "logit_bias": "dropped",
    "logprobs": "dropped",
    "top_logprobs": "dropped",
    "max_tool_calls": "dropped",
    "service_tier other than flex": "dropped",
    "truncation": "dropped",
    "metadata": "dropped",
    "user": "dropped",
    "prompt_cache_key": "dropped",
    "safety_identifier": "dropped",
    "name": "dropped",
    "strict of a tool": "dropped",
    "reasoning that is not sealed": "dropped",
    "a response format that is not strict": "dropped",
    "n": "refused",
    "images that are not given inline": "refused",
    "audio": "refused",
    "files": "refused",
    "a provider's own tools": "refused",
    "a provider's own items": "refused",
    "content parts of unknown type": "refused",
    "tool_choice that names a provider's own tool": "refused",
    "other fields, at any level": "dropped",
}

_SUMMARIES = ("auto", "concise", "detailed", "none")
_VERBOSITIES = ("low", "medium", "high")
_PHASES = ("commentary", "final_answer")
# Items of the provider's own that Codex sends on as they came. Of any other it forgets all without a word.
_SENT_ON = frozenset({"web_search_call", "image_generation_call", "compaction", "context_compaction"})
# It replaces an image of low detail by a sentence, and knows no further words.
_DETAILS = {"auto": "auto", "low": "auto", "high": "high", "original": "original"}

_encode = msgspec.json.Encoder().encode


class Plan(Struct, frozen=True, kw_only=True):
    """One request in Codex's terms.

    `thread` and `turn` are members of thread/start and turn/start. `offered` are the tools by the names that Codex gets.
    `own_work` are the kinds of items that Codex may produce by itself. `size` is about how many characters the model is sent.
    """

    thread: JsonObject
    items: list[Json]
    turn: JsonObject
    offered: dict[str, Tool]
    own_work: frozenset[str] = frozenset()
    size: int = 0
    dropped: tuple[str, ...] = ()


def plan_for(request: Request, *, rails: Rails = NO_RAILS, keeps_plain_reasoning: bool = False) -> Plan:
    """`keeps_plain_reasoning`: the provider takes reasoning back that it did not seal. OpenAI's own refuses it."""
    return _Writer(request, rails, keeps_plain_reasoning=keeps_plain_reasoning).plan()


class _Writer:
    def __init__(self, request: Request, rails: Rails, *, keeps_plain_reasoning: bool) -> None:
        self.request = request
        self.rails = rails
        self.tools = Tools(request, taken=("apply_patch",) if rails.patch_dir else ())
        self.dropped: list[str] = []
        self._keeps_plain_reasoning = keeps_plain_reasoning
        self._size = 0

    def plan(self) -> Plan:
        request, tools = self.request, self.tools
        self._check_tools()
        self._check_settings()
        leading = _leading(request.items)
        turn = self._turn()
        instructions = [request.instructions or "", *map(_instruction, request.items[:leading]), self._form()]
        items: list[Json] = [item for each in request.items[leading:] if (item := self._item(each)) is not None]
        self._check_results()
        thread = self._thread()
        told = "\n\n".join(filter(None, instructions))
        if told:
            thread["developerInstructions"] = told
        if tools.offered:
            thread["dynamicTools"] = [*tools.declared()]
        return Plan(
            thread=thread,
            items=items,
            turn=turn,
            offered=tools.offered,
            own_work=self.rails.kinds(request.items),
            size=self._size + len(told) + sum(len(_encode(tool)) for tool in tools.declared()),
            dropped=tuple(dict.fromkeys(self.dropped)),
        )

    def _drop(self, what: str) -> None:
        self.dropped.append(what)

    def _refusal(self, what: str, param: str, shown: str | None = None) -> ClientError:
        """`shown` is the value in question."""
        message = f"This model is reached through Codex, which cannot say {shown or what}."
        return ClientError(message, param=param, code="unsupported_by_upstream")

    def _lose(self, extra: JsonObject | None) -> None:
        if extra:
            self.dropped += unknown_names(extra)

    @property
    def _said_in(self) -> str:
        """The client's word for its conversation."""
        return "input" if self.request.wire == RESPONSES else "messages"

    # The conversation

    def _item(self, item: Item) -> JsonObject | None:
        match item:
            case Message():
                return self._message(item)
            case Call():
                self._size += len(item.arguments)
                self._lose(item.extra)
                return self.tools.item(item)
            case Result():
                self._lose(item.extra)
                output = item.output
                return {
                    "type": "function_call_output",
                    "call_id": item.call_id,
                    "output": self._counted(output) if isinstance(output, str) else self._parts(output, "user"),
                }
            case Reasoning():
                return self._reasoning(item)
            case OpaqueItem():
                kind = item.raw.get("type")
                if item.wire != RESPONSES or kind not in _SENT_ON:
                    raise self._refusal("a provider's own items", self._said_in, f"an item of type {kind!r}")
                self._check_depth(item.raw, self._said_in)
                return item.raw
            case _:
                assert_never(item)

    def _check_results(self) -> None:
        """Codex would make up a result for a call without one ("aborted"). Results are never made up."""
        answered = {item.call_id for item in self.request.items if isinstance(item, Result)}
        for item in self.request.items:
            if isinstance(item, Call) and item.id not in answered:
                message = f"There is no result for the call {item.id!r} of the tool {item.name!r}."
                raise invalid(message, self._said_in, code="missing_result")

    def _message(self, message: Message) -> JsonObject | None:
        if message.name is not None:
            self._drop("name")
        self._lose(message.extra)
        role = "developer" if message.role == "system" else message.role
        if role == "assistant" and not plain_text(message.content) and not _shows_something(message.content):
            return None  # some clients send an empty one before calls
        item: JsonObject = {"type": "message", "role": role, "content": self._parts(message.content, role)}
        if message.phase in _PHASES:
            item["phase"] = message.phase
        return item

    def _parts(self, content: Content, role: str) -> list[Json]:
        parts = (Text(text=content),) if isinstance(content, str) else content
        return [self._part(part, role) for part in parts]

    def _part(self, part: Part, role: str) -> JsonObject:
        self._lose(part.extra)
        match part:
            case Text() | Refusal():
                kind = "output_text" if role == "assistant" else "input_text"
                return {"type": kind, "text": self._counted(part.text)}
            case Image() if role != "assistant":
                return self._image(part)
            case Image():
                raise self._refusal("content parts of unknown type", self._said_in, "an image of the assistant's")
            case Audio():
                raise self._refusal("audio", self._said_in)
            case File():
                raise self._refusal("files", self._said_in)
            case OpaquePart():
                shown = f"a content part of type {part.raw.get('type')!r}"
                raise self._refusal("content parts of unknown type", self._said_in, shown)
            case _:
                assert_never(part)

    def _image(self, image: Image) -> JsonObject:
        item: JsonObject = {"type": "input_image"}
        if image.url is not None:
            if not is_inline(image.url):
                shown = "an image that is not given inline, as data:image/…;base64,…"
                raise self._refusal("images that are not given inline", self._said_in, shown)
            if not is_readable(image.url):
                message = "An image is no PNG, JPEG, GIF or WebP in plain base64. Codex would leave it out."
                raise invalid(message, self._said_in, code="invalid_image")
            item["image_url"] = image.url
        else:
            item["file_id"] = image.file_id
        if image.detail in _DETAILS:
            item["detail"] = _DETAILS[image.detail]
        return item

    def _reasoning(self, thought: Reasoning) -> JsonObject | None:
        """Unsealed, and without an id that means anything to it, a provider that stores nothing refuses it."""
        keeps_text = bool(thought.text) and self._keeps_plain_reasoning
        if not (thought.encrypted or keeps_text):
            self._drop("reasoning that is not sealed")
            return None
        self._lose(thought.extra)
        item: JsonObject = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": self._counted(text)} for text in thought.summary],
        }
        if thought.id is not None:
            item["id"] = thought.id
        if keeps_text:
            item["content"] = [{"type": "reasoning_text", "text": self._counted(text)} for text in thought.text]
        if thought.encrypted:
            item["encrypted_content"] = thought.encrypted
        return item

    def _counted(self, text: str) -> str:
        self._size += len(text)
        return text

    # Everything else

    def _check_tools(self) -> None:
        choice = self.request.tool_choice
        for tool in self.request.tools:
            if isinstance(tool, OpaqueTool):
                if self.rails.searches and str(tool.raw.get("type")).startswith("web_search"):
                    continue
                raise self._refusal("a provider's own tools", "tools", f"the tool {tool.raw.get('type')!r}")
            self._lose(tool.extra)
            self._check_depth(tool.parameters, "tools")
            if tool.strict and tool.kind == "function":
                self._drop("strict of a tool")
        if choice is not None and choice.raw is not None:
            shown = f"a tool_choice of type {choice.raw.get('type')!r}"
            raise self._refusal("tool_choice that names a provider's own tool", "tool_choice", shown)

    def _check_depth(self, value: Json, param: str) -> None:
        """It would wait for an answer that never comes, and the process would be taken for a dead one."""
        if is_too_deep(value):
            raise invalid("What is sent is nested too deeply for Codex.", param, code="too_deep")

    def _check_settings(self) -> None:
        request, sampling = self.request, self.request.sampling
        if sampling.n is not None and sampling.n > 1:
            raise self._refusal("n", "n", f"n = {sampling.n}")
        if sampling.max_output_tokens is not None:
            self._drop(sampling.max_tokens_field or "max_output_tokens")
        for name in ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias"):
            if getattr(sampling, name) is not None:
                self._drop(name)
        for name in ("logprobs", "top_logprobs"):
            if getattr(sampling, name):
                self._drop(name)
        for name in ("max_tool_calls", "metadata", "user", "prompt_cache_key", "safety_identifier"):
            if getattr(request, name):
                self._drop(name)
        if request.service_tier not in (None, "auto", "default", "flex"):
            self._drop("service_tier other than flex")
        if request.truncation not in (None, "disabled"):
            self._drop("truncation")
        self._lose(request.extra)

    def _thread(self) -> JsonObject:
        thread = self.rails.thread(self.request.items)
        if self.request.service_tier == "flex":
            thread["serviceTier"] = "flex"
        verbosity = self.request.sampling.verbosity
        if verbosity is not None:
            if verbosity not in _VERBOSITIES:
                raise invalid(f"The verbosity must be one of {', '.join(_VERBOSITIES)}.", "verbosity")
            thread["config"] = {**object_of(thread.get("config")), "model_verbosity": verbosity}
        return thread

    def _turn(self) -> JsonObject:
        wish, form = self.request.reasoning, self.request.output
        turn: JsonObject = {"input": [], "summary": "none"}
        if wish is not None:
            self._lose(wish.extra)
            if wish.effort:
                turn["effort"] = wish.effort
            if wish.summary is not None and wish.summary not in _SUMMARIES:
                raise invalid(f"The summary of reasoning must be one of {', '.join(_SUMMARIES)}.", "reasoning.summary")
            turn["summary"] = wish.summary or "none"
        if form is not None and form.type == "json_schema" and is_strict(form):
            self._check_depth(form.schema, "text.format" if self.request.wire == RESPONSES else "response_format")
            turn["outputSchema"] = form.schema
        return turn

    def _form(self) -> str:
        """What Codex has no word for: it knows only schemas that are held to, and those have to be written for it."""
        form = self.request.output
        if form is None or form.type == "text" or (form.type == "json_schema" and is_strict(form)):
            return ""
        self._drop("a response format that is not strict")
        if form.type == "json_object":
            return "Answer with one JSON object, and nothing else."
        schema = _encode(form.schema).decode()
        return f"Answer with one JSON value that fits this schema, and nothing else: {schema}"


def _leading(items: Sequence[Item]) -> int:
    """How many messages at the beginning are instructions and nothing but text."""
    for place, item in enumerate(items):
        if not isinstance(item, Message) or item.role not in ("system", "developer") or _shows_something(item.content):
            return place
    return len(items)


def _instruction(item: Item) -> str:
    return plain_text(item.content) if isinstance(item, Message) else ""


def _shows_something(content: Content) -> bool:
    return not isinstance(content, str) and any(not isinstance(part, Text | Refusal) for part in content)
