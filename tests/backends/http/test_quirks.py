"""Every quirk of every preset has its effect on what is sent to the provider's server, or read from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolrelay.backends.http import HttpSettings
from toolrelay.backends.http.backend import profile_of
from toolrelay.backends.providers import PROVIDERS, Quirk
from toolrelay.core.messages import Call, Message, Reasoning, Result
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.runtime.models import tool_calling_mode
from toolrelay.toolcalls.flattening import FlatTools, needs_flattening
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.wires.base import discover
from toolrelay.wires.sealed_reasoning import seal

Json = dict[str, Any]
# A header needs a server: see test_providers.
QUIRKS = [(name, quirk) for name, preset in PROVIDERS.items() for quirk in preset.quirks if quirk.field != "key_header"]
WIRES = {wire.config_name: wire for wire in discover().values()}
CALL = "call_0123456789abcdefABCDEF01"
DETAIL: Json = {"type": "reasoning.encrypted", "data": "AAAA"}
TOOLS = (Tool(name="notes.search", parameters={"type": "object", "properties": {}}), Tool(name="get_time"))
FIELDS: Json = {"logprobs": True, "top_logprobs": 2, "presence_penalty": 0.5, "frequency_penalty": 0.5, "stop": "END", "seed": 7}
REQUEST = Request(
    wire="openai_chat",
    model="m",
    instructions="Be brief.",
    items=(
        Message(role="user", content="Hi", name="ann"),
        Reasoning(text=("Hm.",)),
        Call(id=CALL, name="get_time", arguments="{}"),
        Result(call_id=CALL, output="noon"),
        Reasoning(text=("Aha.",), encrypted=seal("openai_chat", json.dumps([DETAIL]))),
        Message(role="assistant", content="Noon.", extra={"refusal": "no", "reasoning_details": [DETAIL]}),
        Message(role="user", content="Thanks"),
    ),
    tools=TOOLS,
    sampling=Sampling(max_output_tokens=9, logit_bias={"1": 1.0}, verbosity="low", **FIELDS),
    stream=True,
    store=True,
    user="u",
    service_tier="auto",
    prompt_cache_key="k",
    safety_identifier="s",
)


def settings_of(provider: str, **members: Any) -> HttpSettings:
    base_url = PROVIDERS[provider].base_url or "http://127.0.0.1:1/v1"
    values: Json = {"name": "m", "provider": provider, "base_url": base_url, "wire": PROVIDERS[provider].wire, **members}
    return HttpSettings(**values)


def options_of(provider: str, **members: Any) -> ToolCallOptions:
    settings = settings_of(provider, **members)
    return tool_calling_mode(settings, profile_of(settings, PROVIDERS[provider].profile), bytes).options


def sent(provider: str, request: Request = REQUEST, wire: str = "chat", **members: Any) -> Json:
    """Return the body that the provider's server gets, behind the tool-calling layer."""
    options = options_of(provider, **members)
    flat = FlatTools(request, options).request if needs_flattening(request, options) else request
    given = ToolCallSession(flat, options).request
    body: Json = json.loads(WIRES[wire].encode_request(given, PROVIDERS[provider].profile).body)
    return body


def changed(**members: Any) -> Request:
    return Request(**{name: getattr(REQUEST, name) for name in REQUEST.__struct_fields__} | members)


def _required() -> Request:
    return changed(tool_choice=ToolChoice(mode="required"))


def _developer_role(provider: str, _: Quirk) -> bool:
    return bool(sent(provider)["messages"][0]["role"] == "developer")


def _max_tokens_field(provider: str, quirk: Quirk) -> bool:
    return {"max_tokens", "max_completion_tokens"} & sent(provider).keys() == {quirk.value}


def _tool_names(provider: str, _: Quirk) -> bool:
    return [tool["function"]["name"] for tool in sent(provider)["tools"]] == ["notes_search", "get_time"]


def _constrains_output(provider: str, _: Quirk) -> bool:
    return bool(sent(provider, _required(), tool_calling="hermes")["response_format"]["type"] == "json_schema")


def _enforces_tool_choice(provider: str, _: Quirk) -> bool:
    return not {"tools", "tool_choice"} & sent(provider, _required()).keys()


def _encrypts_reasoning(provider: str, _: Quirk) -> bool:
    request = changed(sampling=Sampling(), reasoning=ReasoningOptions(effort="low"))
    return "reasoning.encrypted_content" in sent(provider, request, wire="responses")["include"]


def _separates_reasoning(provider: str, _: Quirk) -> bool:
    plain = options_of("compatible", model="qwq-32b")
    return plain.scan.begins_in_reasoning and not options_of(provider, model="qwq-32b").scan.begins_in_reasoning


def _reasoning_details(provider: str, _: Quirk) -> bool:
    messages = sent(provider, changed(wire="openai_responses"))["messages"]
    return bool(messages[-2]["reasoning_details"] == [DETAIL])


def _reasoning_fields(provider: str, quirk: Quirk) -> bool:
    called = next(message for message in sent(provider)["messages"] if "tool_calls" in message)
    return [called[name] for name in quirk.value] == ["Hm."] * len(quirk.value)


def _takes_null_content(provider: str, _: Quirk) -> bool:
    return all(message["content"] is not None for message in sent(provider)["messages"])


def _takes_allowed_tools(provider: str, _: Quirk) -> bool:
    body = sent(provider, changed(tool_choice=ToolChoice(names=(("function", "get_time"),))))
    return len(body["tools"]) == 1 and isinstance(body.get("tool_choice", "auto"), str)


def _takes_custom_tools(provider: str, _: Quirk) -> bool:
    body = sent(provider, changed(tools=(Tool(name="shell", kind="custom"),)))
    return [tool["type"] for tool in body["tools"]] == ["function"]


def _output_formats(provider: str, quirk: Quirk) -> bool:
    asked = [OutputFormat(type="json_object"), OutputFormat(type="json_schema", name="n", schema={"type": "object"})]
    return all(sent(provider, changed(output=each))["response_format"]["type"] in quirk.value for each in asked)


def _needs_text_format(provider: str, _: Quirk) -> bool:
    return "format" in sent(provider, changed(sampling=Sampling(verbosity="low")), wire="responses")["text"]


def _call_ids(provider: str, _: Quirk) -> bool:
    messages = sent(provider)["messages"]
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    ids += [message["tool_call_id"] for message in messages if "tool_call_id" in message]
    return len(set(ids)) == 1 and len(ids[0]) == 9 and ids[0].isalnum()


def _stream_usage(provider: str, _: Quirk) -> bool:
    return "stream_options" not in sent(provider)


def _takes_stop_sequences(provider: str, _: Quirk) -> bool:
    return "stop" not in sent(provider)


def _refused_fields(provider: str, quirk: Quirk) -> bool:
    assert set(quirk.value) - {"stream_options"} <= sent("compatible").keys()
    return not set(quirk.value) & sent(provider).keys()


def _refused_message_fields(provider: str, quirk: Quirk) -> bool:
    def names(provider: str) -> set[str]:
        return {name for message in sent(provider)["messages"] for name in message}

    assert set(quirk.value) <= names("compatible")
    return not set(quirk.value) & names(provider)


def _renamed_fields(provider: str, quirk: Quirk) -> bool:
    body = sent(provider)
    return all(new in body and old not in body for old, new in quirk.value)


EFFECTS: dict[str, Callable[[str, Quirk], bool]] = {
    check.__name__.removeprefix("_"): check
    for check in (
        _developer_role,
        _max_tokens_field,
        _tool_names,
        _constrains_output,
        _enforces_tool_choice,
        _encrypts_reasoning,
        _separates_reasoning,
        _reasoning_details,
        _reasoning_fields,
        _takes_null_content,
        _takes_allowed_tools,
        _takes_custom_tools,
        _output_formats,
        _needs_text_format,
        _call_ids,
        _stream_usage,
        _takes_stop_sequences,
        _refused_fields,
        _refused_message_fields,
        _renamed_fields,
    )
}


@pytest.mark.parametrize(("provider", "quirk"), QUIRKS, ids=[f"{name}-{quirk.field}" for name, quirk in QUIRKS])
def test_quirk_has_its_effect(provider: str, quirk: Quirk) -> None:
    assert EFFECTS[quirk.field](provider, quirk)


@pytest.mark.parametrize("field", sorted({quirk.field for _, quirk in QUIRKS}))
def test_plain_server_shows_no_such_effect(field: str) -> None:
    """Otherwise the test above would prove nothing."""
    some = next(quirk for _, quirk in QUIRKS if quirk.field == field)
    try:
        assert not EFFECTS[field]("compatible", some)
    except KeyError:
        return  # what the effect looks for is not there
