"""The size limit of results in the text of clients that declare no tools (E7, R1.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway import running
from tests.model_server import CLIENT_APIS, ModelServer, configuration, whole
from toolrelay.clients.xml.result_limits import truncate_printed_results
from toolrelay.core.messages import Image, Item, Message, Text

LIMIT = 100
NOTE = "\n[cut here by the gateway: at most 100 of {} bytes are shown]"
BLOCK = "<use_tool>\n<name>{}</name>\n<query>x</query>\n</use_tool>"


def truncated(reply: Any, *called: str) -> Any:
    """Return the content of the user's message after an answer that called these tools."""
    items: list[Item] = [Message(role="user", content="Hi")]
    if called:
        items.append(Message(role="assistant", content="Let me see.\n" + "\n".join(map(BLOCK.format, called))))
    last = truncate_printed_results([*items, Message(role="user", content=reply)], LIMIT)[-1]
    assert isinstance(last, Message)
    return last.content


def test_long_result_is_truncated_with_a_note_e7() -> None:
    reply = f"Tool 'webSearch' result: {'é' * 100}"
    assert truncated(reply, "webSearch") == f"Tool 'webSearch' result: {'é' * 50}" + NOTE.format(200)


def test_each_result_has_its_own_limit() -> None:
    reply = f"Tool 'a' result: {'x' * 150}\n\nTool 'b' result: short\n\nTool 'a' result: {'y' * 101}"
    first, last = "x" * 100 + NOTE.format(150), "y" * 100 + NOTE.format(101)
    expected = f"Tool 'a' result: {first}\n\nTool 'b' result: short\n\nTool 'a' result: {last}"
    assert truncated(reply, "a", "b", "a") == expected


@pytest.mark.parametrize("called", [(), ("a",), ("b",)], ids=["no block", "one block", "another tool's block"])
def test_output_that_looks_like_more_results_is_limited_as_a_whole(called: tuple[str, ...]) -> None:
    output = f"{'x' * 60}\n\nTool 'a' result: {'y' * 60}"
    found = truncated(f"Tool 'a' result: {output}", *called)
    assert found == f"Tool 'a' result: {output[:100]}" + NOTE.format(len(output))


def test_text_before_the_first_result_is_kept() -> None:
    question = "q" * 500
    found = truncated(f"{question}\n\nTool 'a' result: {'x' * 101}", "a")
    assert found == f"{question}\n\nTool 'a' result: {'x' * 100}{NOTE.format(101)}"


@pytest.mark.parametrize("text", ["x" * 500, f"He wrote: Tool 'a' result: {'x' * 500}"])
def test_other_text_of_the_user_is_not_limited(text: str) -> None:
    assert truncated(text, "a") == text


def test_results_in_parts_of_a_message_are_limited() -> None:
    image = Image(url="data:image/png;base64,AAAA")
    parts = (image, Text(text=f"Tool 'a' result: {'x' * 101}"))
    assert truncated(parts, "a") == (image, Text(text=f"Tool 'a' result: {'x' * 100}{NOTE.format(101)}"))


@given(st.lists(st.sampled_from(["Tool 'a' result: ", "\n\n", "é" * 40, "x" * 70, "Tool 'b' result:", " "]), max_size=12))
def test_every_result_fits_and_small_messages_are_unchanged(pieces: list[str]) -> None:
    reply = "".join(pieces)
    found = truncated(reply, "a", "a")
    if len(reply.encode()) <= LIMIT:
        assert found == reply
    if "bytes are shown]" not in found:
        assert found == reply


@pytest.mark.parametrize("wire", sorted(CLIENT_APIS))
def test_model_gets_the_truncated_result(wire: str) -> None:
    api = CLIENT_APIS[wire]
    with ModelServer() as server:
        asked = server.enqueue(whole())
        settings = f'client_style = "use_tool"\nmax_tool_result_bytes = {LIMIT}'
        with running(configuration(server, model=settings)) as gateway:
            body = api.request_body("Search")
            body[api.items] += [
                {"role": "assistant", "content": BLOCK.format("webSearch")},
                {"role": "user", "content": f"Tool 'webSearch' result: {'x' * 500}"},
            ]
            assert gateway.post(api.path, body).status_code == 200
        sent = json.dumps(server.request_body(asked)["messages"][-1])
    assert "at most 100 of 500 bytes are shown" in sent
    assert "x" * 101 not in sent
