"""Requests to Gemini. Every body is checked with the types of Google's SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.golden.transcripts import EXCHANGES, FRONTS
from tests.strategies import chat_bodies
from tests.wires.gemini.oracle import WIRE, check_body, sent
from tests.wires.strategies import responses_bodies
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.messages import Audio, Call, File, Image, Item, Message, Reasoning, Result, Text
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import discover
from toolrelay.wires.sealed_reasoning import seal

Json = dict[str, Any]

HI = Message(role="user", content="Hi")
WEATHER = Tool(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
TIME = Tool(name="get_time", description="The time.")
PNG = "data:image/png;base64,iVBORw0KGgo="
OLD, NEW = "gemini-2.5-flash", "gemini-3-flash-preview"


def request(*items: Item, model: str = NEW, **members: Any) -> Request:
    return Request(wire="openai_chat", model=model, items=items or (HI,), **members)


def contents(*items: Item, model: str = NEW) -> list[Json]:
    found: list[Json] = sent(request(*items, model=model))[0]["contents"]
    return found


def parts(*items: Item, model: str = NEW) -> list[Json]:
    """Return the parts of all contents."""
    return [part for content in contents(*items, model=model) for part in content["parts"]]


def config(**members: Any) -> Json:
    found: Json = sent(request(**members))[0].get("generationConfig", {})
    return found


@pytest.mark.parametrize("path", sorted(EXCHANGES.glob("*/request.*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_requests_of_every_wire_match_the_sdk_types(path: Any) -> None:
    asked = FRONTS[path.name.split(".")[1]].decode_request(path.read_bytes())
    try:
        outgoing = WIRE.encode_request(asked, PROVIDERS["gemini"].profile)
    except ClientError as refused:
        assert path.parent.name in ("custom-grammar-tool", "several-choices"), refused  # noqa: PT017 -- one of two outcomes
        return
    check_body(json.loads(outgoing.body))


@settings(max_examples=60)
@given(st.tuples(st.just("openai_chat"), chat_bodies()) | st.tuples(st.just("openai_responses"), responses_bodies()))
def test_any_conversation_matches_the_sdk_types_or_is_refused(asked: tuple[str, Json]) -> None:
    front, body = asked
    try:
        outgoing = WIRE.encode_request(replace(discover()[front].decode_request(json.dumps(body).encode()), model=NEW), Profile())
    except ClientError as refused:
        assert refused.code == "unsupported_by_upstream"  # noqa: PT017 -- one of two good outcomes
        return
    encoded = json.loads(outgoing.body)
    check_body({"contents": encoded["contents"], "systemInstruction": encoded.get("systemInstruction")})


# The address


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        (NEW, True, f"/models/{NEW}:streamGenerateContent?alt=sse"),
        (NEW, False, f"/models/{NEW}:generateContent"),
        (f"models/{OLD}", False, f"/models/{OLD}:generateContent"),
        ("tunedModels/mine", True, "/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("odd?alt=json#x%20", False, "/models/odd%3Falt=json%23x%2520:generateContent"),
    ],
)
def test_model_and_streaming_are_in_the_path(model: str, path: str, *, stream: bool) -> None:
    assert sent(request(model=model, stream=stream))[1].path == path


# The conversation


def test_system_and_developer_messages_become_the_system_instruction() -> None:
    late = Message(role="developer", content="Third.")
    body, _ = sent(request(Message(role="system", content="Second."), HI, late, instructions="First."))
    assert body["systemInstruction"] == {"parts": [{"text": "First."}, {"text": "Second."}, {"text": "Third."}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_system_text_alone_is_sent_as_the_users() -> None:
    body, _ = sent(request(Message(role="system", content="Say hello."), instructions="Be kind."))
    assert body == {"contents": [{"role": "user", "parts": [{"text": "Be kind."}, {"text": "Say hello."}]}]}


def test_history_alternates_between_user_and_model() -> None:
    answer = Message(role="assistant", content=(Text(text="Yes."), Text(text="")))
    found = contents(HI, HI, answer, Message(role="user", content=""), HI)
    assert [(content["role"], [part["text"] for part in content["parts"]]) for content in found] == [
        ("user", ["Hi", "Hi"]),
        ("model", ["Yes."]),
        ("user", ["Hi"]),
    ]


def test_parallel_results_are_one_content_in_the_order_of_their_calls() -> None:
    calls = [Call(id=f"call_{name}", name=name, arguments='{"n": 1.50}') for name in "abc"]
    results = [Result(call_id=f"call_{name}", output=f"of {name}") for name in "cab"]
    _, asked, answered, after = contents(HI, *calls, *results, HI)
    assert [part["functionCall"] for part in asked["parts"]] == [
        {"id": f"call_{name}", "name": name, "args": {"n": 1.5}} for name in "abc"
    ]
    assert answered["role"] == "user"
    assert [part["functionResponse"] for part in answered["parts"]] == [
        {"id": f"call_{name}", "name": name, "response": {"output": f"of {name}"}} for name in "abc"
    ]
    assert after == {"role": "user", "parts": [{"text": "Hi"}]}


def test_late_result_is_put_after_its_call() -> None:
    first, second = (Call(id=f"call_{number}", name="f", arguments="{}") for number in (1, 2))
    results = [Result(call_id=call.id, output=call.id) for call in (second, first)]
    found = contents(HI, first, HI, second, *results)
    assert [next(iter(content["parts"][0])) for content in found] == [
        "text",
        "functionCall",
        "functionResponse",
        "text",
        "functionCall",
        "functionResponse",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("", {}), ("  ", {}), ('{"a": "é"}', {"a": "é"}), ("[1]", {"invalid_arguments": "[1]"}), ("{", {"invalid_arguments": "{"})],
)
def test_arguments_that_are_no_object_are_wrapped(arguments: str, expected: Json) -> None:
    made = Call(id="call_1", name="f", arguments=arguments)
    assert parts(HI, made)[1]["functionCall"]["args"] == expected


def test_failed_result_of_an_anthropic_client_is_an_error() -> None:
    made = Call(id="call_1", name="f", arguments="{}")
    failed = Result(call_id="call_1", output="No such file.", extra={"is_error": True})
    body, outgoing = sent(request(HI, made, failed))
    assert body["contents"][2]["parts"][0]["functionResponse"]["response"] == {"error": "No such file."}
    assert outgoing.dropped == ()


def test_images_in_results_are_inside_for_gemini_3_and_beside_before() -> None:
    made = Call(id="call_1", name="f", arguments="{}")
    shown = Result(call_id="call_1", output=(Text(text="A chart"), Image(url=PNG), Text(text="of sales")))
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    response: Json = {"id": "call_1", "name": "f", "response": {"output": "A chart\nof sales"}}
    assert parts(HI, made, shown)[2:] == [{"functionResponse": {**response, "parts": [image]}}]
    assert parts(HI, made, shown, model=OLD)[2:] == [{"functionResponse": response}, image]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Image(url=PNG), {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}),
        (
            Image(url="https://a.example/b.webp?c=d.png"),
            {"fileData": {"mimeType": "image/webp", "fileUri": "https://a.example/b.webp?c=d.png"}},
        ),
        (Image(url="https://a.example/b"), {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://a.example/b"}}),
        (File(data="data:text/csv;base64,YQ=="), {"inlineData": {"mimeType": "text/csv", "data": "YQ=="}}),
        (File(data="JVBERg=="), {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}}),
        (File(data="YQ==", filename="a.TXT"), {"inlineData": {"mimeType": "text/plain", "data": "YQ=="}}),
        (
            File(url="https://a.example/b.pdf"),
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/b.pdf"}},
        ),
        (Audio(data="UklGRg==", format="wav"), {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}),
    ],
)
def test_media_is_sent_as_data_or_by_its_address(part: Any, expected: Json) -> None:
    assert parts(Message(role="user", content=(part,))) == [expected]


@pytest.mark.parametrize("part", [Image(file_id="file-1"), File(file_id="file-1")])
def test_files_of_another_server_are_refused_by_name(part: Any) -> None:
    with pytest.raises(ClientError, match=r"Gemini API, which cannot say: .* by (?:file )?id") as refused:
        sent(request(Message(role="user", content=(part,))))
    assert refused.value.param == "messages"


# Thought signatures


def signed(kind: str, signature: str = "c2ln", **members: Any) -> Reasoning:
    return Reasoning(encrypted=seal("gemini", f"{kind}:{signature}"), **members)


def made(number: int, **members: Any) -> Call:
    return Call(id=f"call_{number}", name="f", arguments="{}", **members)


def signatures(*items: Item, model: str = NEW) -> list[str | None]:
    return [part.get("thoughtSignature") for part in parts(HI, *items, model=model)[1:]]


def test_signature_before_a_call_goes_back_with_the_call() -> None:
    items = (signed("call", summary=("I must look.",)), made(1), made(2), signed("call", "c2ln2A=="), made(3))
    assert signatures(*items) == ["c2ln", None, "c2ln2A=="]
    assert signatures(*items, model=OLD) == ["c2ln", None, "c2ln2A=="]


@pytest.mark.parametrize("kept", ["a2VwdA==", "toolrelay:gemini:call:a2VwdA=="])
def test_signature_that_a_chat_client_kept_goes_back_with_its_call(kept: str) -> None:
    """Sealed by the gateway, or as Google's Chat Completions gave it."""
    body, outgoing = sent(request(HI, made(1, extra={"extra_content": {"google": {"thought_signature": kept}}})))
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == "a2VwdA=="
    assert outgoing.dropped == ()


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
def test_signature_is_not_sent_to_models_of_other_wires(wire: str) -> None:
    """Strict servers answer 400: https://github.com/NousResearch/hermes-agent/pull/38543."""
    sealed: Json = {"extra_content": {"google": {"thought_signature": "toolrelay:gemini:call:a2VwdA=="}}, "other": 1}
    asked = replace(request(HI, made(1, extra=sealed)), wire=wire)
    outgoing = discover()[wire].encode_request(asked, PROVIDERS["openai"].profile)
    assert b"extra_content" not in outgoing.body
    assert b'"other":1' in outgoing.body
    assert outgoing.dropped == ("extra_content",)
    of_google: Json = {"extra_content": {"google": {"thought_signature": "a2VwdA=="}}}
    asked = replace(request(HI, made(1, extra=of_google)), wire=wire)
    assert b"extra_content" in discover()[wire].encode_request(asked, PROVIDERS["openai"].profile).body


def test_first_call_without_a_signature_is_marked_for_models_that_require_one() -> None:
    foreign = Reasoning(text=("Hm.",), encrypted=seal("anthropic_messages", "thinking:x"))
    for model in (NEW, "gemini-3.1-pro-preview", "gemini-4-argon", "gemini-flash-latest"):
        assert signatures(foreign, made(1), made(2), model=model) == ["skip_thought_signature_validator", None]
    for model in (OLD, "gemini-2.0-flash", "gemma-4-31b", "m"):
        assert signatures(foreign, made(1), made(2), model=model) == [None, None]


def test_signature_of_a_text_goes_back_with_the_text() -> None:
    answer = Message(role="assistant", content="Hello")
    assert parts(HI, answer, signed("text"), HI)[1] == {"text": "Hello", "thoughtSignature": "c2ln"}
    again = parts(HI, answer, signed("text"), signed("text", "bW9yZQ=="), HI)
    assert again[1:3] == [{"text": "Hello", "thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "bW9yZQ=="}]


def test_signature_of_a_thought_goes_back_with_the_thought() -> None:
    assert parts(HI, signed("thought", summary=("I see.",)), made(1))[1] == {
        "text": "I see.",
        "thought": True,
        "thoughtSignature": "c2ln",
    }


def test_signature_without_its_call_is_not_given_to_a_later_one() -> None:
    found = parts(HI, signed("call"), Message(role="user", content="Stop"), made(1), model=OLD)
    assert [part.get("thoughtSignature") for part in found] == [None, None, None]


def test_reasoning_without_content_is_no_loss() -> None:
    assert sent(request(HI, Reasoning(id="rs_1"), made(1)))[1].dropped == ()


# Tools


def test_functions_are_declared_with_json_schemas() -> None:
    body, outgoing = sent(request(tools=(WEATHER, TIME)))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "get_weather", "description": "get_weather", "parametersJsonSchema": WEATHER.parameters},
                {"name": "get_time", "description": "The time."},
            ]
        }
    ]
    assert "toolConfig" not in body
    assert outgoing.dropped == ()


@pytest.mark.parametrize(
    ("choice", "expected", "declared"),
    [
        (ToolChoice(), {"mode": "AUTO"}, ["get_weather", "get_time"]),
        (ToolChoice(mode="none"), {"mode": "NONE"}, ["get_weather", "get_time"]),
        (ToolChoice(mode="required"), {"mode": "ANY"}, ["get_weather", "get_time"]),
        (
            ToolChoice(mode="named", names=(("function", "get_time"),)),
            {"mode": "ANY", "allowedFunctionNames": ["get_time"]},
            ["get_weather", "get_time"],
        ),
        (
            ToolChoice(mode="required", names=(("function", "get_time"), ("function", "get_weather"))),
            {"mode": "ANY", "allowedFunctionNames": ["get_time", "get_weather"]},
            ["get_weather", "get_time"],
        ),
        (ToolChoice(names=(("function", "get_time"),)), {"mode": "AUTO"}, ["get_time"]),
    ],
)
def test_tool_choice_becomes_a_mode_and_allowed_names(choice: ToolChoice, expected: Json, declared: list[str]) -> None:
    body, outgoing = sent(request(tools=(WEATHER, TIME), tool_choice=choice, parallel_tool_calls=False))
    assert body["toolConfig"] == {"functionCallingConfig": expected}
    assert [tool["name"] for tool in body["tools"][0]["functionDeclarations"]] == declared
    assert outgoing.dropped == ()


def test_tool_choice_without_tools_is_left_out() -> None:
    assert "toolConfig" not in sent(request(tool_choice=ToolChoice(mode="none")))[0]


# Settings


def test_sampling_is_translated() -> None:
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        stop=("a", "b"),
        seed=7,
        presence_penalty=0.1,
        frequency_penalty=-0.2,
    )
    assert config(sampling=sampling) == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 100,
        "stopSequences": ["a", "b"],
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": -0.2,
    }
    assert config(sampling=Sampling(stop="x")) == {"stopSequences": ["x"]}


def test_output_formats_are_translated() -> None:
    schema: Json = {"$ref": "#/$defs/person", "$defs": {"person": {"type": "object", "properties": {"age": {"type": "integer"}}}}}
    assert config(output=OutputFormat()) == {}
    assert config(output=OutputFormat(type="json_object")) == {"responseMimeType": "application/json"}
    assert config(output=OutputFormat(type="json_schema", schema=schema)) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {"age": {"type": "integer"}}},
    }


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        (NEW, "none", {"thinkingLevel": "MINIMAL"}),
        (NEW, "minimal", {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
        (NEW, "low", {"thinkingLevel": "LOW", "includeThoughts": True}),
        (NEW, "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        (NEW, "xhigh", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "none", {"thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", "minimal", {"thinkingLevel": "LOW", "includeThoughts": True}),
        (OLD, "none", {"thinkingBudget": 0}),
        (OLD, "low", {"thinkingBudget": 1024, "includeThoughts": True}),
        (OLD, "high", {"thinkingBudget": 24576, "includeThoughts": True}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.0-flash", "high", None),
    ],
)
def test_effort_becomes_a_level_or_a_budget(model: str, effort: str, expected: Json | None) -> None:
    assert config(model=model, reasoning=ReasoningOptions(effort=effort)).get("thinkingConfig") == expected


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        (OLD, {"type": "enabled", "budget_tokens": 5000}, {"thinkingBudget": 5000, "includeThoughts": True}),
        (OLD, {"type": "enabled", "budget_tokens": 10**9}, {"thinkingBudget": 24576, "includeThoughts": True}),
        (NEW, {"type": "enabled", "budget_tokens": 5000}, {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        (NEW, {"type": "adaptive"}, {"includeThoughts": True}),
        (OLD, {"type": "disabled"}, {"thinkingBudget": 0}),
        ("gemini-2.0-flash", {"type": "adaptive"}, None),
    ],
)
def test_thinking_of_anthropics_clients_is_translated(model: str, thinking: Json, expected: Json | None) -> None:
    asked = {"model": "a", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "thinking": thinking}
    decoded = discover()["anthropic_messages"].decode_request(json.dumps(asked).encode())
    body, outgoing = sent(replace(decoded, model=model))
    assert body["generationConfig"].get("thinkingConfig") == expected
    assert outgoing.dropped == ()


def test_summaries_are_asked_for_if_the_client_wants_them() -> None:
    asked = ReasoningOptions(summary="auto")
    assert config(reasoning=asked) == {"thinkingConfig": {"includeThoughts": True}}
    assert config(reasoning=asked, model="gemini-1.5-pro") == {}


@pytest.mark.parametrize(
    ("tier", "expected"), [("auto", None), ("default", "standard"), ("flex", "flex"), ("priority", "priority")]
)
def test_service_tier_is_translated(tier: str, expected: str | None) -> None:
    assert sent(request(service_tier=tier))[0].get("serviceTier") == expected


def test_several_answers_are_refused() -> None:
    with pytest.raises(ClientError, match="n = 2") as refused:
        sent(request(sampling=Sampling(n=2)))
    assert (refused.value.param, refused.value.code) == ("n", "unsupported_by_upstream")
