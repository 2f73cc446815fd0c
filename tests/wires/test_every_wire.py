"""The contract of every wire. New wires are discovered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.exchange import Gist, check_one_end, decode_all, envelope, fold, gist
from tests.golden.transcripts import EXCHANGES, FRONTS, recorded
from tests.served_wires import FRONT_WIRES, SERVED_WIRES
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
from toolrelay.wires.base import KEEP_ALIVE, OutgoingRequest, Wire

every_wire = pytest.mark.parametrize("wire", SERVED_WIRES.values(), ids=SERVED_WIRES)
every_front = pytest.mark.parametrize("wire", FRONT_WIRES.values(), ids=FRONT_WIRES)

# What every wire supports: text, reasoning and function calls. The rest is for the wire's own tests.
ANSWERS = answers(refusals=False)
CUT_ANSWERS = answers(refusals=False, truncated=True)

# Whole answers are slow to generate, and each of these tests runs for every wire.
some = settings(max_examples=15)


def encoded(wire: Wire, events: list[StreamEvent]) -> bytes:
    return wire.encoder(envelope(request_for(wire))).encode(events)


def request_for(wire: Wire) -> Request:
    message = Message(role="user", content="Hi")
    return Request(wire=wire.name, model="fast", items=(message,), stream=True, include_usage=True)


ANSWER: list[StreamEvent] = [
    AnswerStarted(model="m"),
    ReasoningDelta("Hm, 漢"),
    *(TextDelta(text) for text in ("Grüß", " Gott", " 👋\n\n")),
    *(CallStarted(index, name, f"call_{index}") for index, name in enumerate(("f", "g"))),
    *(ArgumentsDelta(index, piece) for piece in ('{"a":', '"é\\n"}') for index in (0, 1)),
    *(CallFinished(index) for index in (0, 1)),
    AnswerFinished(finish="calls", usage=Usage(input=7, output=3, total=10)),
]


def streams(wire: Wire) -> list[bytes]:
    """Recorded streams of the wire, and one of our encoder."""
    return [*recorded(wire), encoded(wire, ANSWER)]


def carried(wire: Wire, events: list[StreamEvent]) -> Gist:
    """Return what a wire can say of an answer: Ollama's has two finishes, and only sums of tokens."""
    given = gist(fold(events))
    if wire.name != "ollama":
        return given
    tokens = (given.usage or (0, 0))[:2]
    usage = (*tokens, sum(tokens), 0, 0) if any(tokens) else None
    return replace(given, finish="stop" if given.finish == "content_filter" else given.finish, usage=usage)


def comparable(events: list[StreamEvent]) -> list[object]:
    """The events with errors as their message and code, so that they compare."""
    return [(event.error.message, event.error.code) if isinstance(event, AnswerFailed) else event for event in events]


# Chunking


@every_wire
@some
@given(st.data())
def test_chunking_of_a_stream_does_not_change_events(wire: Wire, data: st.DataObject) -> None:  # bug 1, 2, 3, 24
    stream = encoded(wire, data.draw(CUT_ANSWERS))
    if data.draw(st.booleans()):
        stream = stream.replace(b"\n", b"\r\n")
    assert comparable(decode_all(wire, *data.draw(cut_bytes(stream)))) == comparable(decode_all(wire, stream))


@every_wire
def test_chunking_of_a_recorded_stream_does_not_change_events(wire: Wire) -> None:  # bug 1, 2, 3, 24
    for stream in streams(wire):
        whole = comparable(decode_all(wire, stream))
        assert comparable(decode_all(wire, *(stream[place : place + 1] for place in range(len(stream))))) == whole
        assert comparable(decode_all(wire, *_pieces(stream.replace(b"\n", b"\r\n"), 3))) == whole
        if wire.stream_type == "text/event-stream":
            assert comparable(decode_all(wire, *_pieces(stream.replace(b"\n", b"\r"), 2))) == whole


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@every_front
@some
@given(st.data())
def test_batching_of_events_does_not_change_frames(wire: Wire, data: st.DataObject) -> None:  # bug 1, 3
    events = data.draw(CUT_ANSWERS)
    encoder = wire.encoder(envelope(request_for(wire)))
    assert b"".join(encoder.encode([event]) for event in events) == encoded(wire, events)


@pytest.mark.parametrize("wire", [wire for wire in SERVED_WIRES.values() if wire.stream_type == "text/event-stream"])
def test_comments_between_frames_are_ignored(wire: Wire) -> None:  # bug 46
    for stream in streams(wire):
        assert comparable(decode_all(wire, stream.replace(b"\n\n", b"\n\n" + KEEP_ALIVE))) == comparable(decode_all(wire, stream))


# Malformed input


@every_wire
@given(st.data())
@settings(max_examples=40)
def test_malformed_stream_never_raises_and_ends_once(wire: Wire, data: st.DataObject) -> None:  # bug 18, 38
    broken = altered_stream(data.draw(st.sampled_from(streams(wire))), data)
    check_one_end(decode_all(wire, broken))
    check_one_end(wire.decode_answer(broken))


@every_wire
@given(st.binary(max_size=100))
@settings(max_examples=40)
def test_random_bytes_are_a_failure(wire: Wire, noise: bytes) -> None:  # bug 18, 39
    for raw in (noise, b"data: " + noise + b"\n\n", b'data: {"model":"' + noise + b'"}\n\n', b'data: {"' + noise):
        check_one_end(decode_all(wire, raw))
    check_one_end(wire.decode_answer(noise))
    error = wire.decode_error(500, noise)
    assert (error.status, bool(error.message)) == (500, True)


@every_wire
def test_input_after_the_end_is_ignored(wire: Wire) -> None:  # bug 38
    for stream in streams(wire):
        decoder = wire.decoder()
        check_one_end(decoder.feed(stream) + decoder.flush())
        assert decoder.feed(stream) == []
        assert decoder.flush() == []


# Truncated streams


@every_wire
@some
@given(st.data())
def test_truncated_stream_is_one_failure_or_complete(wire: Wire, data: st.DataObject) -> None:  # bug 5, 38
    stream = encoded(wire, data.draw(ANSWERS))
    place = data.draw(st.integers(0, len(stream)))
    check_truncated(decode_all(wire, stream[:place]), fold(decode_all(wire, stream)))


@every_wire
def test_truncated_recorded_stream_is_one_failure_or_complete(wire: Wire) -> None:  # bug 5, 38
    """At every byte near the end, where it matters most, and at some before."""
    for stream in streams(wire):
        whole = fold(decode_all(wire, stream))
        for place in [*range(0, len(stream), 97), *range(len(stream) - 80, len(stream))]:
            check_truncated(decode_all(wire, stream[:place]), whole)


def check_truncated(events: list[StreamEvent], whole: Answer) -> None:
    answer = fold(events)
    if isinstance(check_one_end(events), AnswerFailed):
        assert _calls(answer) <= _calls(whole)
    else:
        assert replace(gist(answer), usage=None) == replace(gist(whole), usage=None)


def _calls(answer: Answer) -> set[tuple[str, str]]:
    return {(call.name, call.arguments) for each in (answer, *answer.others) for call in each.calls}


# The decoder against the encoder


@every_wire
@some
@given(ANSWERS)
def test_decoder_reads_what_the_encoder_writes(wire: Wire, events: list[StreamEvent]) -> None:  # bug 7, 8, 9, 12, 14, 40
    assert gist(fold(decode_all(wire, encoded(wire, events)))) == carried(wire, events)


@every_wire
@some
@given(ANSWERS)
def test_whole_answer_equals_its_folded_stream(wire: Wire, events: list[StreamEvent]) -> None:  # bug 4
    whole = wire.encode_answer(fold(events), envelope(request_for(wire)))
    assert gist(fold(wire.decode_answer(whole))) == gist(fold(decode_all(wire, encoded(wire, events))))


@every_wire
@some
@given(CUT_ANSWERS)
def test_unfinished_call_is_never_decoded_as_a_call(wire: Wire, events: list[StreamEvent]) -> None:  # bug 5
    again = fold(decode_all(wire, encoded(wire, events)))
    assert gist(again) == carried(wire, events)
    whole = wire.encode_answer(fold(events), envelope(request_for(wire)))
    assert gist(fold(wire.decode_answer(whole))) == carried(wire, events)


@every_wire
@some
@given(ANSWERS, st.text(min_size=1, max_size=20))
def test_failure_in_mid_stream_is_decoded_as_failure(wire: Wire, events: list[StreamEvent], why: str) -> None:  # bug 38
    stream = encoded(wire, [*events[:-1], AnswerFailed(BackendError(why, code="upstream_cut"))])
    last = check_one_end(decode_all(wire, stream))
    assert isinstance(last, AnswerFailed)
    assert last.error.message == why


# What clients depend on


@every_front
def test_call_name_is_sent_once_and_arguments_as_increments(wire: Wire) -> None:  # bug 1, 9
    """Clients concatenate deltas: a repeated name would double, repeated arguments would corrupt."""
    encoder = wire.encoder(envelope(request_for(wire)))
    encoder.encode([AnswerStarted(model="m")])
    started = encoder.encode([CallStarted(0, "the_name", "call_1")])
    assert started.count(b"the_name") == 1
    for piece in ("first", "second", "third"):
        grown = encoder.encode([ArgumentsDelta(0, piece)])
        assert [grown.count(each) for each in (b"first", b"second", b"third", b"the_name")] == [
            *(each == piece for each in ("first", "second", "third")),
            0,
        ]


@every_front
def test_calls_keep_their_ids_and_order(wire: Wire) -> None:  # bug 29
    events: list[StreamEvent] = [AnswerStarted(model="m")]
    for index in range(3):
        events += [CallStarted(index, "f", f"call_number_{index}"), ArgumentsDelta(index, "{}"), CallFinished(index)]
    events.append(AnswerFinished(finish="calls"))
    whole = wire.encode_answer(fold(events), envelope(request_for(wire))).decode()
    stream = encoded(wire, events).decode()
    for text in (whole, stream):
        places = [text.index(f"call_number_{index}") for index in range(3)]
        assert places == sorted(places)


@every_front
def test_each_text_delta_is_sent_at_once(wire: Wire) -> None:  # bug 14
    encoder = wire.encoder(envelope(request_for(wire)))
    encoder.encode([AnswerStarted(model="m")])
    for word in ("one", "two", "three"):
        assert word.encode() in encoder.encode([TextDelta(word)])


# Errors


@every_front
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
def test_error_body_has_message_and_type(wire: Wire, error: ToolrelayError) -> None:  # bug 39
    members = json.loads(wire.encode_error(error))["error"]
    assert members["message"] == error.message
    assert members["type"].endswith("_error")
    if wire.name.startswith("openai_"):
        assert members == {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


@every_front
def test_encoded_error_decodes_to_the_same_error(wire: Wire) -> None:  # bug 39
    error = ClientError("Too long.", param="messages", code="context_length_exceeded")
    read = wire.decode_error(400, wire.encode_error(error))
    assert (read.status, read.message, read.type, read.code) == (400, error.message, error.type, error.code)


# Requests


REQUESTS = sorted(EXCHANGES.glob("*/request.*.json"))
any_request = pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[1]}")


def read(path: Path) -> Request:
    """The request without its sampling settings, which a wire may refuse."""
    return replace(FRONTS[path.name.split(".")[1]].decode_request(path.read_bytes()), sampling=Sampling())


def sent(wire: Wire, path: Path, profile: Profile) -> OutgoingRequest | None:
    """The request to a provider, or None if the wire cannot express it and refuses it."""
    try:
        return wire.encode_request(read(path), profile)
    except ClientError as refused:
        assert refused.code == "unsupported_by_upstream"  # noqa: PT017 -- one of two good outcomes
        assert path.parent.name == "custom-grammar-tool" or wire.unsupported.keys() & {"tool_choice", "images by URL"}
        return None


def bodies(wire: Wire) -> list[bytes]:
    """Recorded requests of the wire, and those of our encoder."""
    own = [path.read_bytes() for path in REQUESTS if FRONTS[path.name.split(".")[1]] is wire]
    return own + [outgoing.body for path in REQUESTS if (outgoing := sent(wire, path, Profile())) is not None]


@every_wire
@any_request
@pytest.mark.parametrize("profile", [Profile(), Profile(developer_role=True, call_ids="nine", stream_usage=False)])
def test_same_request_encodes_to_the_same_bytes(wire: Wire, path: Path, profile: Profile) -> None:
    """Providers cache by the prompt's bytes."""
    first = sent(wire, path, profile)
    assert first is None or isinstance(json.loads(first.body), dict)
    assert first == sent(wire, path, profile)


@every_wire
def test_upstream_stream_is_requested_only_if_the_client_streams(wire: Wire) -> None:
    streamed, whole = (wire.encode_request(replace(request_for(wire), stream=stream), Profile()) for stream in (True, False))
    assert b"stream" in streamed.body + streamed.path.encode()
    assert b"stream" not in whole.body.replace(b'"stream":false', b"") + whole.path.encode()


@every_front
@given(st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), json_values()))
@settings(max_examples=30)
def test_malformed_request_is_a_client_error(wire: Wire, body: bytes) -> None:  # bug 18
    with pytest.raises(ClientError) as refused:
        wire.decode_request(body)
    assert refused.value.status == 400


@every_front
@given(st.data())
@settings(max_examples=30)
def test_request_with_odd_members_is_decoded_or_refused(wire: Wire, data: st.DataObject) -> None:  # bug 18
    body = altered_value(json.loads(data.draw(st.sampled_from(bodies(wire)))), data)
    try:
        request = wire.decode_request(json.dumps(body).encode())
        wire.encode_request(request, Profile())
    except ClientError as refused:
        assert refused.message  # noqa: PT017 -- being understood is just as good
