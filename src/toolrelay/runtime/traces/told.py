"""The request of a model call, as the model saw it: computed again from the record with the present configuration. Pure.

The record has what the client sent. Tools of the gateway, the rules for calls as text, and the history in the model's dialect
are added by the same code as in the turn itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolrelay.core.commands import AskAgain, CallModel
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Content, Item, Message, OpaqueItem, Reasoning, Result, plain_text
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.steps import AnswerReceived, AnswerRejected, StepEvent
from toolrelay.core.turn import Turn
from toolrelay.runtime.traces.timeline import builtins_of
from toolrelay.stores.turns import StoredStep
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions


class ToldInputs(Struct, frozen=True, kw_only=True):
    """What a turn needs besides its steps: its gateway tools, the conversation before it, and how its model is offered tools."""

    token: str
    policy: Policy
    context: tuple[Item, ...]
    options: ToolCallOptions


def describe_told(steps: Sequence[StoredStep], before: int, inputs: ToldInputs) -> JsonObject | None:
    """Return what the model was told in the call that the step `before` ended. None: the record has no such call.

    Of a later call only what was added since the one before is returned; `repeats` is the number of messages before it.
    `rejected` is the number of answers that were rejected before this one: the model was shown them and what was wrong, too.
    """
    earlier = [stored.step for stored in steps if stored.seq < before]
    request = _told_request(earlier, inputs)
    if request is None:
        return None
    answers = [index for index, step in enumerate(earlier) if isinstance(step, AnswerReceived)]
    previous = _told_request(earlier[: answers[-1]], inputs) if answers else None
    repeats = 0 if previous is None else _count_common(previous.items, request.items)
    options = inputs.options
    last = answers[-1] if answers else 0
    described: JsonObject = {
        "recomputed": True,
        "tool_calling": "native" if options.native else options.dialect.name,
        "repeats": repeats,
        "rejected": sum(isinstance(step, AnswerRejected) for step in earlier[last:]),
        "messages": [_describe_item(item) for item in request.items[repeats:]],
        "tools": [builtins_of(tool) for tool in request.tools] if not repeats else [],
        "tool_choice": None if request.tool_choice is None else request.tool_choice.mode,
    }
    if not repeats:
        described["instructions"] = request.instructions
        described["rules"] = _find_rules(request, inputs, earlier)
    return described


def _told_request(steps: Sequence[StepEvent], inputs: ToldInputs) -> Request | None:
    turn = Turn.replay(steps, token=inputs.token, policy=inputs.policy, context=inputs.context)
    commands = ToolCallLayer(turn, ActiveOptions(inputs.options)).resume()
    return next((command.request for command in commands if isinstance(command, CallModel | AskAgain)), None)


def _count_common(first: Sequence[Item], second: Sequence[Item]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _find_rules(request: Request, inputs: ToldInputs, steps: Sequence[StepEvent]) -> str | None:
    """Return the text that the gateway has put before the client's own, if calls are asked for as text."""
    turn = Turn.replay(steps, token=inputs.token, policy=inputs.policy, context=inputs.context)
    told, own = request.instructions, turn.request.instructions
    if told is None:
        told, own = _system_text(request.items), _system_text(turn.items)
    if told is None or told == own:
        return None
    return told.removesuffix(own or "").rstrip("\n")


def _system_text(items: Sequence[Item]) -> str | None:
    first = items[0] if items else None
    is_system = isinstance(first, Message) and first.role in ("system", "developer")
    return plain_text(first.content) if is_system and isinstance(first, Message) else None


def _describe_item(item: Item) -> JsonObject:
    match item:
        case Message(role=role, content=content):
            return {"role": role, "content": _describe_content(content)}
        case Call():
            return {"role": "assistant", "call": item.name, "call_id": item.id, "arguments": item.arguments}
        case Result():
            return {"role": "tool", "call_id": item.call_id, "content": _describe_content(item.output), "private": item.private}
        case Reasoning():
            return {"role": "reasoning", "content": "\n\n".join((*item.summary, *item.text))}
        case OpaqueItem():
            return {"role": "other", "content": builtins_of(item.raw)}


def _describe_content(content: Content) -> JsonObject | str:
    described: JsonObject | str = builtins_of(content)
    return described
