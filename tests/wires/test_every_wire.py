"""What holds for every wire. A new one is found by itself and held to all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.exchange import check_one_end, decode_all, envelope, fold, gist
from tests.golden.transcripts import EXCHANGES, FRONTS, recorded
from tests.strategies import answers, cut_bytes, json_values
from tests.wires.strategies import altered_stream, altered_value
from toolrelay.core.assembly import Answer
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Message
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request, Sampling
from toolrelay.errors import BackendError, ClientError, InternalError, PolicyError, ToolrelayError
from toolrelay.wires.base import KEEP_ALIVE, Wire, discover

WIRES = discover()
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)

# What every wire can say: words, thoughts, calls of functions. The rest is for the wire's own tests.
ANSWERS = answers(refusals=False)
CUT_ANSWERS = answers(refusals=False, truncated=True)

# Whole answers take long to make up, and each of these tests runs for every wire.
some = settings(max_examples=15)


def encoded(wire: Wire, events: list[StreamEvent]) -> bytes:
    return wire.encoder(envelope(asked(wire))).encode(events)


def asked(wire: Wire) -> Request:
    said = Message(role="user", content="Hi")
    return Request(wire=wire.name, model="fast", items=(said,), stream=True, include_usage=True)


SPOKEN: list[StreamEvent] = [
    AnswerStarted(model="m"),
    ReasoningDelta("Hm, 漢"),
    *(TextDelta(text) for text in ("Grüß", " Gott", " 👋\n\n")),
    *(CallStarted(index, name, f"call_{index}") for index, name in enumerate(("f", "g"))),
    *(ArgumentsDelta(index, piece) for piece in ('{"a":', '"é\\n"}') for index in (0, 1)),
    *(CallFinished(index) for index in (0, 1)),
    AnswerFinished(finish="calls", usage=Usage(input=7, output=3, total=10)),
]


def streams(wire: Wire) -> list[bytes]:
    """As the wire's providers send them, and one in our own hand."""
    return [*recorded(wire), encoded(wire, SPOKEN)]


def said(events: list[StreamEvent]) -> list[object]:
    """Errors compare by what they say."""
    return [(event.error.message, event.error.code) if isinstance(event, AnswerFailed) else event for event in events]


# How the bytes arrive


@every_wire
@some
@given(st.data())
def test_it_never_matters_how_a_stream_is_cut(wire: Wire, data: st.DataObject) -> None:  # bug 1, 2, 3, 24
    stream = encoded(wire, data.draw(CUT_ANSWERS))
    if data.draw(st.booleans()):
        stream = stream.replace(b"\n", b"\r\n")
    assert said(decode_all(wire, *data.draw(cut_bytes(stream)))) == said(decode_all(wire, stream))


@every_wire
def test_it_never_matters_how_a_providers_stream_is_cut(wire: Wire) -> None:  # bug 1, 2, 3, 24
    for stream in streams(wire):
        whole = said(decode_all(wire, stream))
        assert said(decode_all(wire, *(stream[place : place + 1] for place in range(len(stream))))) == whole
        assert said(decode_all(wire, *_pieces(stream.replace(b"\n", b"\r\n"), 3))) == whole
        assert said(decode_all(wire, *_pieces(stream.replace(b"\n", b"\r"), 2))) == whole


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@every_wire
@some
@given(st.data())
def test_it_never_matters_how_events_are_gathered(wire: Wire, data: st.DataObject) -> None:  # bug 1, 3
    events = data.draw(CUT_ANSWERS)
    encoder = wire.encoder(envelope(asked(wire)))
    assert b"".join(encoder.encode([event]) for event in events) == encoded(wire, events)


@every_wire
def test_comments_between_frames_say_nothing(wire: Wire) -> None:  # bug 46
    for stream in streams(wire):
        assert said(decode_all(wire, stream.replace(b"\n\n", b"\n\n" + KEEP_ALIVE))) == said(decode_all(wire, stream))


# Whatever the bytes


@every_wire
@given(st.data())
@settings(max_examples=40)
def test_reading_never_raises_and_always_comes_to_one_end(wire: Wire, data: st.DataObject) -> None:  # bug 18, 38
    broken = altered_stream(data.draw(st.sampled_from(streams(wire))), data)
    check_one_end(decode_all(wire, broken))
    check_one_end(wire.decode_answer(broken))


@every_wire
@given(st.binary(max_size=100))
@settings(max_examples=40)
def test_bytes_without_sense_are_a_failure(wire: Wire, noise: bytes) -> None:  # bug 18, 39
    for raw in (noise, b"data: " + noise + b"\n\n", b'data: {"model":"' + noise + b'"}\n\n', b'data: {"' + noise):
        check_one_end(decode_all(wire, raw))
    check_one_end(wire.decode_answer(noise))
    error = wire.decode_error(500, noise)
    assert (error.status, bool(error.message)) == (500, True)


@every_wire
def test_nothing_comes_after_the_end(wire: Wire) -> None:  # bug 38
    for stream in streams(wire):
        decoder = wire.decoder()
        check_one_end(decoder.feed(stream) + decoder.flush())
        assert decoder.feed(stream) == []
        assert decoder.flush() == []


# Streams that break off


@every_wire
@some
@given(st.data())
def test_a_stream_that_breaks_off_is_one_failure_or_complete(wire: Wire, data: st.DataObject) -> None:  # bug 5, 38
    stream = encoded(wire, data.draw(ANSWERS))
    place = data.draw(st.integers(0, len(stream)))
    check_cut(decode_all(wire, stream[:place]), fold(decode_all(wire, stream)))


@every_wire
def test_a_providers_stream_that_breaks_off_is_one_failure_or_complete(wire: Wire) -> None:  # bug 5, 38
    """At every byte near the end, where it matters most, and at some before."""
    for stream in streams(wire):
        whole = fold(decode_all(wire, stream))
        for place in [*range(0, len(stream), 97), *range(len(stream) - 80, len(stream))]:
            check_cut(decode_all(wire, stream[:place]), whole)


def check_cut(events: list[StreamEvent], whole: Answer) -> None:
    answer = fold(events)
    if isinstance(check_one_end(events), AnswerFailed):
        assert _calls(answer) <= _calls(whole)
    else:
        assert replace(gist(answer), usage=None) == replace(gist(whole), usage=None)


def _calls(answer: Answer) -> set[tuple[str, str]]:
    return {(call.name, call.arguments) for each in (answer, *answer.others) for call in each.calls}


# Each half reads the other


@every_wire
@some
@given(ANSWERS)
def test_what_is_written_is_read_again(wire: Wire, events: list[StreamEvent]) -> None:  # bug 7, 8, 9, 12, 14, 40
    assert gist(fold(decode_all(wire, encoded(wire, events)))) == gist(fold(events))


@every_wire
@some
@given(ANSWERS)
def test_a_whole_answer_says_what_its_stream_says(wire: Wire, events: list[StreamEvent]) -> None:  # bug 4
    whole = wire.encode_answer(fold(events), envelope(asked(wire)))
    assert gist(fold(wire.decode_answer(whole))) == gist(fold(decode_all(wire, encoded(wire, events))))


@every_wire
@some
@given(CUT_ANSWERS)
def test_a_call_without_its_end_is_never_read_as_one(wire: Wire, events: list[StreamEvent]) -> None:  # bug 5
    again = fold(decode_all(wire, encoded(wire, events)))
    assert gist(again) == gist(fold(events))
    whole = wire.encode_answer(fold(events), envelope(asked(wire)))
    assert gist(fold(wire.decode_answer(whole))) == gist(fold(events))


@every_wire
@some
@given(ANSWERS, st.text(min_size=1, max_size=20))
def test_a_failure_in_the_midst_is_read_as_one(wire: Wire, events: list[StreamEvent], why: str) -> None:  # bug 38
    stream = encoded(wire, [*events[:-1], AnswerFailed(BackendError(why, code="upstream_cut"))])
    last = check_one_end(decode_all(wire, stream))
    assert isinstance(last, AnswerFailed)
    assert last.error.message == why


# What clients trip over


@every_wire
def test_a_calls_name_goes_out_once_and_its_arguments_in_increments(wire: Wire) -> None:  # bug 1, 9
    """Clients put together what they get: a name sent twice doubles, arguments sent again corrupt."""
    encoder = wire.encoder(envelope(asked(wire)))
    encoder.encode([AnswerStarted(model="m")])
    started = encoder.encode([CallStarted(0, "the_name", "call_1")])
    assert started.count(b"the_name") == 1
    for piece in ("first", "second", "third"):
        grown = encoder.encode([ArgumentsDelta(0, piece)])
        assert [grown.count(each) for each in (b"first", b"second", b"third", b"the_name")] == [
            *(each == piece for each in ("first", "second", "third")),
            0,
        ]


@every_wire
def test_each_call_keeps_its_own_id(wire: Wire) -> None:  # bug 29
    events: list[StreamEvent] = [AnswerStarted(model="m")]
    for index in range(3):
        events += [CallStarted(index, "f", f"call_number_{index}"), ArgumentsDelta(index, "{}"), CallFinished(index)]
    events.append(AnswerFinished(finish="calls"))
    whole = wire.encode_answer(fold(events), envelope(asked(wire))).decode()
    stream = encoded(wire, events).decode()
    for text in (whole, stream):
        places = [text.index(f"call_number_{index}") for index in range(3)]
        assert places == sorted(places)


@every_wire
def test_words_leave_as_they_come(wire: Wire) -> None:  # bug 14
    encoder = wire.encoder(envelope(asked(wire)))
    encoder.encode([AnswerStarted(model="m")])
    for word in ("one", "two", "three"):
        assert word.encode() in encoder.encode([TextDelta(word)])


# Errors


@every_wire
@pytest.mark.parametrize(
    "error",
    [
        ClientError("No such thing.", param="tools[0]", code="unknown_tool"),
        ClientError("Later.", status=429, type="rate_limit_error", code="rate_limit_exceeded", retry_after=3.0),
        BackendError("It broke."),
        PolicyError("Not you."),
        InternalError('Our "fault": \n 😀'),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_says_what_is_wrong_in_an_error_object(wire: Wire, error: ToolrelayError) -> None:  # bug 39
    members = json.loads(wire.encode_error(error))["error"]
    assert members["message"] == error.message
    assert members["type"] == error.type
    if wire.name.startswith("openai_"):
        assert members == {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


@every_wire
def test_an_error_is_read_as_it_was_written(wire: Wire) -> None:  # bug 39
    error = ClientError("Too long.", param="messages", code="context_length_exceeded")
    read = wire.decode_error(400, wire.encode_error(error))
    assert (read.status, read.message, read.type, read.code) == (400, error.message, error.type, error.code)


# Requests


REQUESTS = sorted(EXCHANGES.glob("*/request.*.json"))
any_request = pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[1]}")


def read(path: Path) -> Request:
    """Without its settings, which may be such as a wire refuses."""
    return replace(FRONTS[path.name.split(".")[1]].decode_request(path.read_bytes()), sampling=Sampling())


def bodies(wire: Wire) -> list[bytes]:
    """As the wire's clients write them, and in our own hand."""
    own = [path.read_bytes() for path in REQUESTS if FRONTS[path.name.split(".")[1]] is wire]
    return own + [wire.encode_request(read(path), Profile()).body for path in REQUESTS]


@every_wire
@any_request
@pytest.mark.parametrize("profile", [Profile(), Profile(developer_role=True, call_ids="nine", stream_usage=False)])
def test_the_same_request_gives_the_same_bytes(wire: Wire, path: Path, profile: Profile) -> None:
    """Providers cache by the prompt's bytes."""
    first = wire.encode_request(read(path), profile)
    assert isinstance(json.loads(first.body), dict)
    assert first == wire.encode_request(read(path), profile)


@every_wire
def test_a_stream_is_asked_for_only_if_the_client_asked(wire: Wire) -> None:
    streamed, whole = (wire.encode_request(replace(asked(wire), stream=stream), Profile()) for stream in (True, False))
    assert b"stream" in streamed.body + streamed.path.encode()
    assert b"stream" not in whole.body + whole.path.encode()


@every_wire
@given(st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), json_values()))
@settings(max_examples=30)
def test_a_request_without_sense_is_the_clients_mistake(wire: Wire, body: bytes) -> None:  # bug 18
    with pytest.raises(ClientError) as refused:
        wire.decode_request(body)
    assert refused.value.status == 400


@every_wire
@given(st.data())
@settings(max_examples=30)
def test_a_request_with_odd_members_is_understood_or_refused(wire: Wire, data: st.DataObject) -> None:  # bug 18
    body = altered_value(json.loads(data.draw(st.sampled_from(bodies(wire)))), data)
    try:
        request = wire.decode_request(json.dumps(body).encode())
        wire.encode_request(request, Profile())
    except ClientError as refused:
        assert refused.message  # noqa: PT017 -- being understood is just as good
