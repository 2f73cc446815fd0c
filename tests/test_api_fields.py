"""The tables of docs/compatibility.md against the types of the vendors' SDKs: a new field or event must get its row."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses import ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.responses_client_event_param import ResponseCreate
from openai.types.responses.responses_server_event import ResponsesServerEvent

# Older fields that clients still send, and the SDKs' types do not have any more.
_RETIRED = {"anthropic_messages": {"temperature", "top_k", "top_p"}}
_PARAMS: dict[str, tuple[type, ...]] = {
    "openai_chat": (CompletionCreateParamsStreaming,),
    "openai_responses": (ResponseCreateParamsStreaming,),
    "anthropic_messages": (MessageCreateParamsBase,),
}


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    path = Path(__file__).parent.parent / "docs" / "make_tables.py"
    spec = importlib.util.spec_from_file_location("make_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _event_types(union: Any) -> set[str]:
    """Return the values of `type` of the members of an annotated union."""
    [members, *_] = get_args(union)
    return {name for member in get_args(members) for name in get_args(member.model_fields["type"].annotation)}


@pytest.mark.parametrize("door", _PARAMS)
def test_every_field_of_the_sdk_has_a_row(tables: ModuleType, door: str) -> None:
    known = {name for params in _PARAMS[door] for name in params.__annotations__}
    assert set(tables.REQUEST_FIELDS[door]) - _RETIRED.get(door, set()) == (known | {"stream"}) - _RETIRED.get(door, set())


def test_every_member_of_a_websocket_message_has_a_row(tables: ModuleType) -> None:
    assert set(tables.WEBSOCKET_FIELDS) == set(ResponseCreate.__annotations__) - set(
        ResponseCreateParamsStreaming.__annotations__
    )


def test_every_event_of_responses_is_sent_or_has_a_reason(tables: ModuleType) -> None:
    sent = tables.sent_events("openai_responses")
    known = _event_types(ResponseStreamEvent)
    assert sent <= known
    for name in (known | _event_types(ResponsesServerEvent)) - sent:
        assert any(name.startswith(prefix) for prefix in tables.NOT_SENT), name
    for prefix in tables.NOT_SENT:
        assert any(name.startswith(prefix) for name in known | _event_types(ResponsesServerEvent)), prefix


def test_every_event_of_messages_is_sent(tables: ModuleType) -> None:
    assert tables.sent_events("anthropic_messages") >= _event_types(RawMessageStreamEvent)
