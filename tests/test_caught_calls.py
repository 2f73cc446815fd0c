"""Native models that print `<use_tool>` blocks, through the whole gateway: Codex and a compatible server (E1, R1.6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.backends.codex.app_server import binary_path
from tests.backends.codex.upstream import says
from tests.gateway import Gateway, running
from tests.model_server import BEGUN, delta, end, whole
from tests.oracles.test_openai_python import ask_chat, ask_responses, calls_of
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS
from tests.raw_client import RawClient
from tests.upstream import LAST_CHUNK, Gate, Upstream, chunk, stream_head

BLOCK = "<use_tool>\n<name>get_weather</name>\n<city>Paris</city>\n</use_tool>"
PIECES = ("Let me see.\n", "<use_", "tool>\n<name>get_wea", "ther</name>\n<city>Paris</ci", "ty>\n</use_tool>", "\nIt is sunny.")
USER: list[Any] = [{"role": "user", "content": "How is Paris?"}]
CONFIG = """
[models.codex]
provider = "codex"
model = "scripted"
base_url = "{codex}/v1"
api_key = "key"
[models.catch]
provider = "compatible"
base_url = "{chat}/v1"
printed_calls = "catch"
[models.text]
provider = "compatible"
base_url = "{chat}/v1"
[models.codex_text]
provider = "codex"
model = "scripted"
base_url = "{codex}/v1"
api_key = "key"
printed_calls = "text"
"""


class Desk:
    def __init__(self, gateway: Gateway, codex: Upstream, chat: Upstream) -> None:
        self.gateway = gateway
        self.chat = chat
        self._codex = codex
        self.client = OpenAI(base_url=gateway.v1, api_key="none", max_retries=0)

    def script(self, model: str, *pieces: str, stream: bool = True) -> None:
        if model.startswith("codex"):
            self._codex.reset(says(*pieces))
        elif stream:
            self.chat.reset(stream_head() + b"".join(chunk(delta(piece)) for piece in pieces) + chunk(end()) + LAST_CHUNK)
        else:
            self.chat.reset(whole("".join(pieces)))


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with Upstream() as codex, Upstream() as chat:
        config = CONFIG.format(codex=codex.url, chat=chat.url)
        with running(config, environ={"TOOLRELAY_CODEX": binary_path()}) as gateway:
            yield Desk(gateway, codex, chat)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["codex", "catch"])
def test_chat_client_gets_a_call_and_no_markup(desk: Desk, model: str, *, stream: bool) -> None:
    desk.script(model, *PIECES, stream=stream)
    choice = ask_chat(desk.client, stream=stream, model=model, messages=USER, tools=CHAT_TOOLS).choices[0]
    [made] = choice.message.tool_calls or []
    assert made.type == "function"
    assert (made.function.name, json.loads(made.function.arguments)) == ("get_weather", {"city": "Paris"})
    assert (choice.finish_reason, (choice.message.content or "").strip()) == ("tool_calls", "Let me see.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["codex", "catch"])
def test_responses_client_gets_a_call_and_no_markup(desk: Desk, model: str, *, stream: bool) -> None:
    desk.script(model, *PIECES, stream=stream)
    response = ask_responses(desk.client, stream=stream, model=model, input=USER, tools=RESPONSES_TOOLS, store=False)
    assert [(call.name, json.loads(call.arguments)) for call in calls_of(response)] == [("get_weather", {"city": "Paris"})]
    assert response.output_text.strip() == "Let me see."


@pytest.mark.parametrize("model", ["text", "codex_text"])
def test_block_stays_text_where_it_is_not_caught(desk: Desk, model: str) -> None:
    desk.script(model, BLOCK)
    choice = ask_chat(desk.client, stream=True, model=model, messages=USER, tools=CHAT_TOOLS).choices[0]
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == (BLOCK, "stop", None)


@pytest.mark.parametrize("model", ["codex", "catch"])
def test_quoted_block_stays_text(desk: Desk, model: str) -> None:
    quoted = f"Write this:\n```\n{BLOCK}\n```\n"
    desk.script(model, quoted)
    choice = ask_chat(desk.client, stream=True, model=model, messages=USER, tools=CHAT_TOOLS).choices[0]
    assert ((choice.message.content or "").strip(), choice.finish_reason) == (quoted.strip(), "stop")


@pytest.mark.parametrize("model", ["codex", "catch"])
def test_xml_client_with_declared_tools_gets_the_block_unchanged(desk: Desk, model: str) -> None:
    printed = BLOCK.replace("Paris", "a & b <i>c</i>")
    desk.script(model, printed, "\nThen I will tell.")
    body = {"model": model, "messages": USER, "tools": CHAT_TOOLS, "stream": True}
    answer = desk.gateway.post("/v1/chat/completions", body, **{"x-toolrelay-client": "use_tool"})
    deltas = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    contents = [choice["delta"].get("content") for frame in deltas for choice in frame["choices"]]
    assert printed in contents
    assert "Then I will tell." in "".join(filter(None, contents))


def test_text_before_a_block_is_delivered_before_the_block_is_whole(desk: Desk) -> None:
    gate = Gate()
    rest = chunk(delta("</city>\n</use_tool>") + end()) + LAST_CHUNK
    desk.chat.reset((BEGUN + chunk(delta(f". {BLOCK[:50]}")), gate, rest))
    with RawClient(desk.gateway.port) as client:
        body = {"model": "catch", "messages": USER, "tools": CHAT_TOOLS, "stream": True}
        client.post("/v1/chat/completions", body)
        before = client.read_until(b'". "')
        gate.open()
        after = client.read_until(b"[DONE]")
    assert b"Hello" in before
    assert b"use_tool" not in before + after
    assert b'"finish_reason":"tool_calls"' in after
