"""Recognition of a request that continues a recorded conversation."""

from __future__ import annotations

from toolrelay.core.conversation import conversation_heads, head_after
from toolrelay.core.messages import Call, Item, Message, Result


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


QUESTION = user("What is the time?")
CLIENT_CALL, GATEWAY_CALL = Call(id="c1", name="f", arguments="{}"), Call(id="g1", name="g", arguments="{}")


def test_next_request_begins_with_the_head_of_the_turn() -> None:
    head = head_after([QUESTION], [assistant("It is noon.")], [])
    following: list[Item] = [QUESTION, assistant("It is noon."), user("Thanks")]
    assert conversation_heads(following) == [(head, 2)]


def test_hidden_gateway_calls_and_several_texts_do_not_matter() -> None:
    history: list[Item] = [assistant("Let me see. "), GATEWAY_CALL, Result(call_id="g1", output="noon"), assistant("It is noon.")]
    head = head_after([QUESTION], history, [])
    assert conversation_heads([QUESTION, assistant("Let me see. It is noon.\n"), user("Thanks")]) == [(head, 2)]


def test_calls_of_the_client_matter() -> None:
    history: list[Item] = [GATEWAY_CALL, CLIENT_CALL, Result(call_id="g1", output="x")]
    head = head_after([QUESTION], history, ["c1"])
    heads = conversation_heads([QUESTION, CLIENT_CALL, Result(call_id="c1", output="y")])
    assert heads == [(head, 2)]
    other = Call(id="c2", name="f", arguments="{}")
    assert conversation_heads([QUESTION, other, Result(call_id="c2", output="y")]) != heads


def test_system_messages_do_not_matter() -> None:
    system = Message(role="system", content="Today is Monday.")
    with_system = conversation_heads([system, QUESTION, assistant("a"), user("b")])
    assert [head for head, _ in with_system] == [head for head, _ in conversation_heads([QUESTION, assistant("a"), user("b")])]


def test_edited_history_is_another_conversation() -> None:
    head = head_after([QUESTION], [assistant("It is noon.")], [])
    for items in ([user("What?"), assistant("It is noon.")], [QUESTION, assistant("It is one.")]):
        assert head not in [each for each, _ in conversation_heads(items)]


def test_longer_histories_have_a_head_for_each_answer() -> None:
    items = [QUESTION, assistant("a"), user("b"), assistant("c"), user("d")]
    assert [count for _, count in conversation_heads(items)] == [2, 4]
    assert conversation_heads(items)[0] == conversation_heads(items[:3])[0]


def test_texts_cannot_be_moved_between_messages() -> None:
    assert conversation_heads([user("ab"), assistant("c")]) != conversation_heads([user("a"), assistant("bc")])


def test_turn_that_showed_nothing_has_no_head() -> None:
    assert head_after([QUESTION], [GATEWAY_CALL], []) is None
