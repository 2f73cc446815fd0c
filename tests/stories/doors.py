"""The gateway's APIs as the official Python SDKs use them: one door each, with one interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message
from msgspec import Struct
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.stories.scripts import Json
from tests.stories.stories import FREE_TEXT

Tools: TypeAlias = dict[str, tuple[str, Json]]
MAX_TOKENS = 20_000


class ReceivedCall(Struct, frozen=True):
    """A call as the client received it. The input of a custom tool is the argument `input`."""

    id: str
    name: str
    arguments: Any
    is_custom: bool = False


class ClientReply(Struct, frozen=True, kw_only=True):
    """What the client received.

    parts    text and calls, in order
    finish   "calls" or "stop"
    history  what the client adds to its conversation
    deltas   how many pieces of arguments arrived
    ran      the names of the calls that the gateway ran, on an API that shows them
    """

    parts: list[str | ReceivedCall]
    finish: str
    history: list[Any]
    deltas: int = 0
    ran: list[str] = []

    @property
    def calls(self) -> list[ReceivedCall]:
        return [part for part in self.parts if isinstance(part, ReceivedCall)]


class Door(Protocol):
    def ask(self, model: str, history: Sequence[Any], tools: Tools, choice: str, *, stream: bool) -> ClientReply: ...

    def user(self, text: str) -> Any:
        """Return a message of the user."""
        ...

    def results(self, results: Sequence[tuple[ReceivedCall, str]], *, failed: bool) -> list[Any]:
        """Return the results of calls, as (call, text), for the conversation."""
        ...

    async def abandon(self, model: str, history: Sequence[Any], tools: Tools, *, stream: bool) -> None:
        """Begin to ask, and return when something of the answer has arrived. To leave earlier, cancel this."""
        ...

    def close(self) -> None: ...


class ChatDoor:
    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1"
        self._client = OpenAI(base_url=self._url, api_key="none", max_retries=0)

    def close(self) -> None:
        self._client.close()

    def _members(self, model: str, history: Sequence[Any], tools: Tools, choice: str = "auto") -> Json:
        kinds = {name: "custom" if schema is FREE_TEXT else "function" for name, (_, schema) in tools.items()}
        declared: list[Any] = [
            {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
            if schema is not FREE_TEXT
            else {"type": "custom", "custom": {"name": name, "description": description, "format": _nested(schema)}}
            for name, (description, schema) in tools.items()
        ]
        value: Any = choice
        if choice in kinds:
            value = {"type": kinds[choice], kinds[choice]: {"name": choice}}
        more = {} if choice == "auto" else {"tool_choice": value}
        return {"model": model, "messages": history, "tools": declared, **more}

    def ask(self, model: str, history: Sequence[Any], tools: Tools, choice: str, *, stream: bool) -> ClientReply:
        members = self._members(model, history, tools, choice)
        deltas = 0
        if stream and any(tool["type"] == "custom" for tool in members["tools"]):
            completion = _accumulate(self._client.chat.completions.create(**members, stream=True))
        elif stream:
            with self._client.chat.completions.stream(**members) as events:
                deltas = sum(event.type == "tool_calls.function.arguments.delta" for event in events)
                completion = events.get_final_completion()
        else:
            completion = self._client.chat.completions.create(**members)
        (choice_,) = completion.choices
        message = choice_.message
        parts: list[str | ReceivedCall] = [message.content] if message.content else []
        for call in message.tool_calls or ():
            if call.type == "custom":
                parts.append(ReceivedCall(call.id, call.custom.name, {"input": call.custom.input}, is_custom=True))
            else:
                parts.append(ReceivedCall(call.id, call.function.name, json.loads(call.function.arguments)))
        echo = message.model_dump(exclude_none=True, exclude={"parsed": True, "tool_calls": {"__all__": {"index"}}})
        for made in echo.get("tool_calls", ()):
            made.get("function", {}).pop("parsed_arguments", None)
        finish = {"tool_calls": "calls"}.get(choice_.finish_reason, choice_.finish_reason)
        return ClientReply(parts=parts, finish=finish, history=[echo], deltas=deltas)

    def user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def results(self, results: Sequence[tuple[ReceivedCall, str]], *, failed: bool) -> list[Any]:
        del failed  # the API cannot say it
        return [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in results]

    async def abandon(self, model: str, history: Sequence[Any], tools: Tools, *, stream: bool) -> None:
        async with AsyncOpenAI(base_url=self._url, api_key="none", max_retries=0) as client:
            answer: Any = await client.chat.completions.create(**self._members(model, history, tools), stream=stream)
            if stream:
                async for chunk in answer:
                    if any(choice.delta.content for choice in chunk.choices):
                        break


def _nested(format_: Json) -> Json:
    """Return the format of a custom tool as Chat has it."""
    return {"type": "grammar", "grammar": {"syntax": format_["syntax"], "definition": format_["definition"]}}


def _accumulate(chunks: Iterable[Any]) -> ChatCompletion:
    """Return the answer of a stream with custom calls, of which the SDK's own helper knows nothing."""
    calls: list[Json] = []
    message: Json = {"role": "assistant", "content": None}
    finish = None
    for chunk in chunks:
        for choice in chunk.model_dump(exclude_none=True)["choices"]:
            finish = choice.get("finish_reason") or finish
            if text := choice["delta"].get("content"):
                message["content"] = (message["content"] or "") + text
            if text := choice["delta"].get("reasoning_content"):
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            for delta in choice["delta"].get("tool_calls", ()):
                if delta["index"] == len(calls):
                    calls.append(delta)
                    continue
                kind, member = ("custom", "input") if "custom" in delta else ("function", "arguments")
                calls[delta["index"]][kind][member] += delta[kind][member]
    if calls:
        message["tool_calls"] = calls
    choices = [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}]
    head = {"id": "chatcmpl_1", "object": "chat.completion", "created": 0, "model": "m"}
    return ChatCompletion.model_validate({**head, "choices": choices})


class ResponsesDoor:
    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1"
        self._client = OpenAI(base_url=self._url, api_key="none", max_retries=0)

    def close(self) -> None:
        self._client.close()

    def _members(self, model: str, history: Sequence[Any], tools: Tools, choice: str = "auto") -> Json:
        kinds = {name: "custom" if schema is FREE_TEXT else "function" for name, (_, schema) in tools.items()}
        declared: list[Any] = [
            {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}
            if schema is not FREE_TEXT
            else {"type": "custom", "name": name, "description": description, "format": schema}
            for name, (description, schema) in tools.items()
        ]
        value: Any = {"type": kinds[choice], "name": choice} if choice in kinds else choice
        more = {} if choice == "auto" else {"tool_choice": value}
        return {"model": model, "input": history, "tools": declared, "store": False, **more}

    def ask(self, model: str, history: Sequence[Any], tools: Tools, choice: str, *, stream: bool) -> ClientReply:
        members = self._members(model, history, tools, choice)
        deltas = 0
        if stream:
            with self._client.responses.stream(**members) as events:
                deltas = sum(event.type == "response.function_call_arguments.delta" for event in events)
                response: Response = events.get_final_response()
        else:
            response = self._client.responses.create(**members)
        assert response.status == "completed"
        parts: list[str | ReceivedCall] = []
        ran: list[str] = []
        for item in response.output:
            if item.type == "message":
                parts.append("".join(part.text for part in item.content if part.type == "output_text"))
            elif item.type == "function_call":
                parts.append(ReceivedCall(item.call_id, item.name, json.loads(item.arguments)))
            elif item.type == "custom_tool_call":
                parts.append(ReceivedCall(item.call_id, item.name, {"input": item.input}, is_custom=True))
            elif item.type == "mcp_call":
                ran.append(item.name)
            else:
                assert item.type == "reasoning", item
        finish = "calls" if any(isinstance(part, ReceivedCall) for part in parts) else "stop"
        history = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        return ClientReply(parts=parts, finish=finish, history=history, deltas=deltas, ran=ran)

    def user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def results(self, results: Sequence[tuple[ReceivedCall, str]], *, failed: bool) -> list[Any]:
        del failed  # the API cannot say it
        return [
            {"type": "custom_tool_call_output" if call.is_custom else "function_call_output", "call_id": call.id, "output": text}
            for call, text in results
        ]

    async def abandon(self, model: str, history: Sequence[Any], tools: Tools, *, stream: bool) -> None:
        async with AsyncOpenAI(base_url=self._url, api_key="none", max_retries=0) as client:
            answer: Any = await client.responses.create(**self._members(model, history, tools), stream=stream)
            if stream:
                async for event in answer:
                    if event.type == "response.output_text.delta":
                        break


class MessagesDoor:
    def __init__(self, url: str) -> None:
        self._url = url
        self._client = Anthropic(base_url=url, api_key="none", max_retries=0)

    def close(self) -> None:
        self._client.close()

    def _members(self, model: str, history: Sequence[Any], tools: Tools, choice: str = "auto") -> Json:
        declared = [
            {"name": name, "description": description, "input_schema": schema} for name, (description, schema) in tools.items()
        ]
        words = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
        more = {} if choice == "auto" else {"tool_choice": words.get(choice, {"type": "tool", "name": choice})}
        return {"model": model, "max_tokens": MAX_TOKENS, "messages": history, "tools": declared, **more}

    def ask(self, model: str, history: Sequence[Any], tools: Tools, choice: str, *, stream: bool) -> ClientReply:
        members = self._members(model, history, tools, choice)
        deltas = 0
        if stream:
            with self._client.messages.stream(**members) as events:
                deltas = sum(event.type == "input_json" for event in events)
                message: Message = events.get_final_message()
        else:
            message = self._client.messages.create(**members)
        parts: list[str | ReceivedCall] = []
        for block in message.content:
            if block.type == "text":
                parts.append(block.text)
            elif block.type == "tool_use":
                parts.append(ReceivedCall(block.id, block.name, block.input))
            else:
                assert block.type == "thinking", block
        finish = {"tool_use": "calls", "end_turn": "stop"}.get(message.stop_reason or "", str(message.stop_reason))
        content = [block.model_dump(exclude_none=True) for block in message.content]
        return ClientReply(parts=parts, finish=finish, history=[{"role": "assistant", "content": content}], deltas=deltas)

    def user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def results(self, results: Sequence[tuple[ReceivedCall, str]], *, failed: bool) -> list[Any]:
        more = {"is_error": True} if failed else {}
        blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": text, **more} for call, text in results]
        return [{"role": "user", "content": blocks}]

    async def abandon(self, model: str, history: Sequence[Any], tools: Tools, *, stream: bool) -> None:
        members = self._members(model, history, tools)
        async with AsyncAnthropic(base_url=self._url, api_key="none", max_retries=0) as client:
            if not stream:
                await client.messages.create(**members)
                return
            async with client.messages.stream(**members) as events:
                async for event in events:
                    if event.type == "text":
                        break


DOORS: dict[str, Callable[[str], Door]] = {"chat": ChatDoor, "responses": ResponsesDoor, "messages": MessagesDoor}
"""They are opened with the gateway's URL."""
