"""Digests by which a Chat request is recognised as the continuation of a recorded conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from toolrelay.core.gateway_calls import STATUS
from toolrelay.core.messages import Call, Item, Message, Result, plain_text


class _History:
    """A digest of a history. The parts of an answer are collected until it ends: a Chat message has one text, then calls."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._texts: list[str] = []
        self._calls: list[str] = []

    @property
    def has_answer(self) -> bool:
        return bool(self._texts or self._calls)

    def add(self, item: Item) -> None:
        match item:
            case Message(role="assistant", content=content):
                self._texts.append(plain_text(content))
            case Call(id=call_id):
                self._calls.append(call_id)
            case Message(role="user", content=content):
                self._update("user", plain_text(content))
            case Result(call_id=call_id):
                self._update("tool", call_id)
            case _:
                pass

    def end_answer(self) -> str:
        text = STATUS.sub("", "".join(self._texts))
        self._update("assistant", "".join(text.split()), *self._calls)
        self._texts, self._calls = [], []
        return self._digest.hexdigest()

    def _update(self, *parts: str) -> None:
        for part in parts:
            data = part.encode(errors="surrogatepass")
            self._digest.update(b"%d:%b" % (len(data), data))


def conversation_heads(items: Sequence[Item]) -> list[tuple[str, int]]:
    """Return the digest of each part of the history that ends with an answer, and the number of its items.

    System messages do not count: applications put the date and the like into them. Of answers only the text and the ids of calls
    count, which is what every client sends back; without blanks, and without what the gateway has added to say which tool runs.
    """
    history = _History()
    heads: list[tuple[str, int]] = []
    for number, item in enumerate(items):
        is_answer = isinstance(item, Call) or (isinstance(item, Message) and item.role == "assistant")
        if history.has_answer and not is_answer:
            heads.append((history.end_answer(), number))
        history.add(item)
    if history.has_answer:
        heads.append((history.end_answer(), len(items)))
    return heads


def head_after(items: Sequence[Item], history: Iterable[Item], handed_over: Iterable[str]) -> str | None:
    """Return the digest of a conversation after a turn: its request, its texts, and the calls that the client was given."""
    given = frozenset(handed_over)
    shown = [item for item in history if isinstance(item, Message) or (isinstance(item, Call) and item.id in given)]
    return conversation_heads([*items, *shown])[-1][0] if shown else None
