"""Steps as messages in the shape of Chat Completions, for the table `messages`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

import msgspec

from toolrelay.core.approvals import NOT_ANSWERED, NOT_ANSWERED_SHARE, denial_text
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
)
from toolrelay.core.steps import AnswerReceived, QuestionClosed, StepEvent, ToolRunFinished, TurnAccepted, VerdictGiven
from toolrelay.stores.turns import MessageRow

_encode = msgspec.json.Encoder().encode


def message_rows(step: StepEvent, *, skip: int = 0, legacy: bool = False) -> list[MessageRow]:
    """Return the messages that the step adds to the conversation.

    `skip`: how many items of an accepted request are on record already. `legacy`: the client uses `functions`, so that a single
    call is also a `function_call`. An accepted request says so itself.
    """
    match step:
        case TurnAccepted(request=request):
            return list(_rows(request.items[skip:], is_legacy=request.legacy_functions))
        case AnswerReceived(items=items):
            return list(_rows(items, is_legacy=legacy))
        case ToolRunFinished(withheld=False):
            return [_row("tool", step.output, tool_call_id=step.call_id)]
        case VerdictGiven(verdict="deny", kind=kind, reason=reason):
            return [_row("tool", denial_text(kind, reason), tool_call_id=step.call_id)]
        case VerdictGiven(kind="share", output=output) if output is not None:
            return [_row("tool", output, tool_call_id=step.call_id)]
        case QuestionClosed(status="expired", kind=kind):
            return [_row("tool", NOT_ANSWERED if kind == "run" else NOT_ANSWERED_SHARE, tool_call_id=step.call_id)]
        case _:
            return []


def _rows(items: Iterable[Item], *, is_legacy: bool) -> Iterator[MessageRow]:
    """Make a row of each message and result. Calls belong to the assistant's message before them.

    Reasoning, and items that only one wire knows, are no messages; the steps have them.
    """
    said: Message | None = None
    calls: list[Call] = []
    for item in items:
        match item:
            case Message() | Result():
                if said is not None or calls:
                    yield _assistant_row(said, calls, is_legacy=is_legacy)
                    said, calls = None, []
                if isinstance(item, Result):
                    yield _row("tool", item.output, tool_call_id=item.call_id)
                elif item.role == "assistant":
                    said = item
                else:
                    yield _row(item.role, item.content)
            case Call():
                calls.append(item)
            case Reasoning() | OpaqueItem():
                pass
            case _:
                assert_never(item)
    if said is not None or calls:
        yield _assistant_row(said, calls, is_legacy=is_legacy)


def _assistant_row(said: Message | None, calls: list[Call], *, is_legacy: bool) -> MessageRow:
    function_call = None
    if is_legacy and len(calls) == 1 and calls[0].kind == "function":
        function_call = _json({"name": calls[0].name, "arguments": calls[0].arguments})
    tool_calls = _json([_call(call) for call in calls]) if calls else None
    return _row("assistant", said.content if said else (), tool_calls=tool_calls, function_call=function_call)


def _call(call: Call) -> dict[str, Any]:
    name = "input" if call.kind == "custom" else "arguments"
    return {"id": call.id, "type": call.kind, call.kind: {"name": call.name, name: call.arguments}}


def _row(
    role: str,
    content: Content,
    *,
    tool_calls: str | None = None,
    tool_call_id: str | None = None,
    function_call: str | None = None,
) -> MessageRow:
    text, parts = _content(content)
    return MessageRow(
        role=role,
        content=text,
        content_json=parts,
        tool_calls=tool_calls,
        tool_call_id=tool_call_id,
        function_call=function_call,
    )


def _content(content: Content) -> tuple[str | None, str | None]:
    """Return plain text, or else the JSON of the parts."""
    if isinstance(content, str):
        return content, None
    if not content:
        return None, None
    texts = [part.text for part in content if isinstance(part, Text)]
    return ("".join(texts), None) if len(texts) == len(content) else (None, _json([_part(part) for part in content]))


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case Image():
            return {"type": "image_url", "image_url": _members(url=part.url, file_id=part.file_id, detail=part.detail)}
        case Audio():
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
        case File():
            members = _members(file_id=part.file_id, file_data=part.data, file_url=part.url, filename=part.filename)
            return {"type": "file", "file": members}
        case OpaquePart():
            return part.raw
        case _:
            assert_never(part)


def _members(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _json(value: object) -> str:
    return _encode(value).decode()
