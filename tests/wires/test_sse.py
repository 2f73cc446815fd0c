"""Splitting of server-sent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import cut_bytes
from toolrelay.wires import sse
from toolrelay.wires.sse import FrameTooLargeError, SseSplitter


def split(*pieces: bytes) -> list[bytes]:
    splitter = SseSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.flush()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\n\r\ndata: b\r\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"data: a\nevent: x\n\n", [b"a"]),
        (b"data: a\ndata: b\ndata:c\n\n", [b"a\nb\nc"]),
        (b": comment\n\ndata: a\n\n:\n\n", [b"a"]),
        (b": comment\ndata: a\n: another\n\n", [b"a"]),
        (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"event: ping\n\ndata: a\n\n", [b"a"]),
        (b"data\n\ndata: a\n\n", [b"a"]),
        (b"data: \n\ndata:\n\ndata: a\n\n", [b"a"]),  # the standard: an event without data is ignored
        (b"data: \n\n", []),
        (b"data:\n\n", []),
        (b"datax: a\n\nxdata: b\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: last", [b"a", b"last"]),
        (b"data: a\n\ndata: last\n", [b"a", b"last"]),
        (b"data: a\n\ndata: last\r\n", [b"a", b"last"]),
        (b"data: a\n\ndata: last\r", [b"a", b"last"]),
        (b"data: a\n\ndata: la\ndata: st", [b"a", b"la\nst"]),
        (b"data: \xf0\x9f\x98\x80\n\n", ["😀".encode()]),
        (b"data: a\xe2\x80\xa8b\xc2\x85c\n\n", ["a\u2028b\x85c".encode()]),
        (b"event: x\ndata: a\n\nevent: y\ndata: b\n\n", [b"a", b"b"]),
        (b"event: x\ndata: a\n\nevent: y\ndata: b\n\ndata: [DONE]\n\n", [b"a", b"b", b"[DONE]"]),
        (b"event: x\ndata: a\n\nevent: y\ndata: [DONE]\n\n", [b"a", b"[DONE]"]),
        (b"event: x\ndata: a\ndata: [DONE]\n\n", [b"a\n[DONE]"]),
        (b"event: x\ndata: a\n\nxdata: [DONE]\n\n", [b"a"]),
        (b"event: x\ndata: a\n\nevent: y\ndata: b\ndata: c\n\n", [b"a", b"b\nc"]),
        (b"event: x\ndata: a\n\ndata: b\ndata: c\n\n", [b"a", b"b\nc"]),
        (b"event: data: x\ndata: a\n\n", [b"a"]),
        (b"event: x\n\ndata: a\n\n", [b"a"]),
        (b"event: x\ndata: \n\n", []),
        (b"data:a\ndata: b\n\n", [b"a\nb"]),
        (b"data: [DONE]\n\n", [b"[DONE]"]),
        (b"", []),
        (b": nothing but a comment", []),
    ],
)
def test_events_are_split_into_their_data(stream: bytes, events: list[bytes]) -> None:
    assert split(stream) == events
    assert split(*(stream[place : place + 1] for place in range(len(stream)))) == events


_LINES = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data: ",
        b"data",
        b": c",
        b"event: x",
        b"data: [DONE]",
        b"id",
        b"",
        "data: 😀".encode(),
        b"\xef\xbb\xbfdata: y",
        b"z",
    ]
)


@given(st.data(), st.lists(st.tuples(_LINES, st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"])), max_size=12))
def test_chunking_does_not_change_events(draw: st.DataObject, lines: list[tuple[bytes, bytes]]) -> None:
    stream = b"".join(line + end for line, end in lines)
    assert split(*draw.draw(cut_bytes(stream))) == split(stream)


_EVENTS = st.sampled_from([b"data: a\n\n", b"event: x\ndata: b\n\n", b"data: [DONE]\n\n", b": c\n\n", b"data: d\ndata: e\n\n"])


@given(st.lists(_EVENTS, max_size=6))
def test_other_fields_and_comments_are_skipped(events: list[bytes]) -> None:
    assert split(b"".join(events)) == split(*events)


def test_event_larger_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_FRAME", 1000)
    splitter = SseSplitter()
    for _ in range(10):
        splitter.feed(b"x" * 100)
    with pytest.raises(FrameTooLargeError):
        splitter.feed(b"x")


def test_limit_applies_to_single_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_FRAME", 1000)
    splitter = SseSplitter()
    for _ in range(50):
        assert splitter.feed(b"data: " + b"x" * 100) == []
        assert splitter.feed(b"\n\n") == [b"x" * 100]


def test_large_event_in_small_chunks_is_joined_once() -> None:  # bug 25
    splitter = SseSplitter()
    splitter.feed(b"data: ")
    for _ in range(100_000):
        assert splitter.feed(b"x" * 10) == []
    assert [len(event) for event in splitter.feed(b"\n\n")] == [1_000_000]
