"""Requests that turn the reasoning of a model off, in the words of different servers."""

from __future__ import annotations

from toolrelay.core.json import Json
from toolrelay.core.messages import Message, plain_text
from toolrelay.core.request import Request

_OFF = (False, "none", "disabled", "off", 0)
# Fields of servers: vLLM and SGLang, llama.cpp, Ollama, DashScope, z.ai, OpenRouter.
_SWITCHES = ("enable_thinking", "thinking", "think", "reasoning", "thinking_budget", "reasoning_budget", "reasoning_effort")
_MEMBERS = ("type", "enabled", "effort")
_SOFT_SWITCH = "/no_think"  # in the system text or the last message


def turns_thinking_off(request: Request) -> bool:
    if request.reasoning is not None and request.reasoning.effort in _OFF:
        return True
    extra = request.extra or {}
    kwargs = extra.get("chat_template_kwargs")
    if _has_switch_off(extra) or (isinstance(kwargs, dict) and _has_switch_off(kwargs)):
        return True
    return _SOFT_SWITCH in (request.instructions or "") or any(
        _SOFT_SWITCH in plain_text(item.content)
        for item in (*request.items[:1], *request.items[-1:])
        if isinstance(item, Message) and item.role != "assistant"
    )


def continues_text(request: Request) -> bool:
    """Return whether the model goes on with a message that the client began, so that the template opens no reasoning."""
    last = request.items[-1] if request.items else None
    return isinstance(last, Message) and last.role == "assistant"


def _has_switch_off(fields: dict[str, Json]) -> bool:
    for name in _SWITCHES:
        value = fields.get(name)
        values = [value.get(member) for member in _MEMBERS] if isinstance(value, dict) else [value]
        if any(each in _OFF for each in values if isinstance(each, str | int)):
            return True
    return False
