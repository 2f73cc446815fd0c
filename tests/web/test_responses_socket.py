"""Responses over a WebSocket: turns, continuations, lanes, refusals and ends, with a plain WebSocket client."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, MODEL, REST, STREAMED, ModelServer, call, configuration, delta, end, error
from tests.upstream import CLOSE, Gate, chunk, stream, stream_head

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
Json = dict[str, Any]


def headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


class Socket:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, **members: Any) -> None:
        self.connection.send(json.dumps({"type": "response.create", "model": MODEL, "input": "Hi", "store": False, **members}))

    def event(self) -> Json:
        event: Json = json.loads(self.connection.recv(timeout=60))
        return event

    def events(self) -> list[Json]:
        """Return the events of a response."""
        found = [self.event()]
        while found[-1]["type"] not in TERMINAL:
            found.append(self.event())
        return found

    def ask(self, **members: Any) -> Json:
        """Return the last event of a response."""
        self.send(**members)
        return self.events()[-1]

    def refusal(self, **members: Any) -> tuple[int, str]:
        event = self.ask(**members)
        assert event["type"] == "error", event
        return event["status"], event["error"]["code"]

    def wait_for_close(self) -> int:
        """Return the code of the server's close frame. What comes before it is dropped."""
        try:
            while True:
                self.connection.recv(timeout=60)
        except ConnectionClosed as closed:
            return 0 if closed.rcvd is None else closed.rcvd.code


@contextmanager
def open_socket(gateway: Gateway, path: str = "/v1/responses", **options: Any) -> Iterator[Socket]:
    url = f"ws://127.0.0.1:{gateway.port}{path}"
    with connect(url, open_timeout=60, close_timeout=60, max_size=None, **options) as connection:
        yield Socket(connection)


@pytest.fixture(scope="module")
def keyed(model_server: ModelServer) -> Iterator[Gateway]:
    """A gateway with the keys `mine`, `other`, and `slow`, which may send two requests per minute."""
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\nrequests_per_minute = {limit}\n'
        for name, limit in (("mine", 0), ("other", 0), ("slow", 2))
    )
    before = f"[server]\nmax_body_bytes = 100000\nkeepalive_seconds = 0.05\n{keys}"
    with running(configuration(model_server, before=before)) as started:
        yield started


# Turns


@pytest.mark.parametrize("path", ["/v1/responses", "/responses", "//v1//responses/"])
def test_events_are_those_of_a_stream(gateway: Gateway, model_server: ModelServer, path: str) -> None:
    model_server.enqueue(STREAMED, STREAMED)
    body = {"model": MODEL, "input": "Hi", "store": False, "stream": True}
    streamed = [json.loads(line[6:]) for line in gateway.post("/v1/responses", body).text.splitlines() if line[:7] == "data: {"]
    with open_socket(gateway, path) as socket:
        socket.send()
        received = socket.events()
    assert [event["type"] for event in received] == [event["type"] for event in streamed]
    assert [event["sequence_number"] for event in received] == list(range(len(received)))
    assert [event.keys() for event in received] == [event.keys() for event in streamed]
    assert received[-1]["response"]["output"][0]["content"][0]["text"] == "Hello there"


def test_many_turns_use_one_connection_and_each_is_logged(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        [open_now] = [line for line in gateway.get("/metrics").text.splitlines() if line.startswith("toolrelay_websockets_open")]
        ids = {socket.ask()["response"]["id"] for _ in range(5)}
    assert (len(ids), open_now) == (5, "toolrelay_websockets_open 1.0")
    lines = list(map(json.loads, gateway.log().splitlines()))
    assert {f"resp_{line['turn']}" for line in lines if line["event"] == "turn"} >= ids
    assert [(line["responses"], line["code"]) for line in lines if line["event"] == "websocket"][-1] == (5, 1000)


def test_failure_in_a_stream_is_one_event_and_the_next_turn_works(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue((BEGUN, CLOSE), error(400, "too hot", code="bad_temperature"), STREAMED)
    with open_socket(gateway) as socket:
        socket.send()
        failed = socket.events()
        refused = socket.ask()
        completed = socket.ask()
    assert failed[-1]["type"] == "response.failed"
    assert "error" not in [event["type"] for event in failed]
    assert (refused["type"], refused["status"]) == ("error", 400)
    assert refused["error"] == {"message": "too hot", "type": "invalid_request_error", "param": None, "code": "bad_temperature"}
    assert completed["type"] == "response.completed"


def test_keep_alive_is_an_event(keyed: Gateway, model_server: ModelServer) -> None:
    gate = Gate()
    model_server.enqueue((stream_head(), gate, chunk(delta("Hello") + end()), REST))
    with open_socket(keyed, additional_headers=headers("mine")) as socket:
        socket.send()
        started = [socket.event()["type"] for _ in range(4)]
        gate.open()
        assert socket.events()[-1]["type"] == "response.completed"
    assert started == ["response.created", *["response.in_progress"] * 3]


# Continuations


def test_response_that_is_not_stored_is_continued_on_its_connection_only(gateway: Gateway, model_server: ModelServer) -> None:
    first = model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        one = socket.ask(input="One")["response"]
        two = socket.ask(input=[{"role": "user", "content": "Two"}], previous_response_id=one["id"])["response"]
        three = socket.ask(input="Three", previous_response_id=two["id"])["response"]
        # Only the latest is kept.
        assert socket.refusal(previous_response_id=one["id"]) == (400, "previous_response_not_found")
        assert socket.ask(previous_response_id=three["id"])["type"] == "response.completed"
    with open_socket(gateway) as socket:
        assert socket.refusal(previous_response_id=three["id"]) == (400, "previous_response_not_found")
        assert socket.ask()["type"] == "response.completed"
    said = [(message["role"], _text(message)) for message in model_server.request_body(first + 2)["messages"]]
    hello = ("assistant", "Hello there")
    assert said == [("user", "One"), hello, ("user", "Two"), hello, ("user", "Three")]
    assert (two["previous_response_id"], three["previous_response_id"]) == (one["id"], two["id"])


def _text(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]


def test_tool_loop_sends_only_what_is_new(gateway: Gateway, model_server: ModelServer) -> None:
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
    first = model_server.enqueue(stream(call("get_weather", '{"city":"Paris"}') + end("tool_calls")), STREAMED)
    with open_socket(gateway) as socket:
        asked = socket.ask(input="Weather?", tools=[tool])["response"]
        called = asked["output"][0]
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "18 degrees"}
        done = socket.ask(input=[result], previous_response_id=asked["id"], tools=[tool])
    assert done["type"] == "response.completed"
    roles = [message["role"] for message in model_server.request_body(first + 1)["messages"]]
    assert roles == ["user", "assistant", "tool"]


def test_stored_response_is_continued_from_everywhere(gateway: Gateway, model_server: ModelServer) -> None:
    first = model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        stored = socket.ask(input="One", store=True)["response"]["id"]
        assert socket.ask(previous_response_id=stored)["type"] == "response.completed"
    with open_socket(gateway) as socket:
        continued = socket.ask(input="Two", previous_response_id=stored)["response"]
        assert socket.ask(input="Three", previous_response_id=continued["id"])["type"] == "response.completed"
    said = [_text(message) for message in model_server.request_body(first + 3)["messages"]]
    assert said == ["One", "Hello there", "Two", "Hello there", "Three"]
    assert gateway.get(f"/v1/responses/{stored}").json()["status"] == "completed"


def test_response_of_another_key_is_not_continued(keyed: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(keyed, additional_headers=headers("mine")) as socket:
        ids = [socket.ask(store=store)["response"]["id"] for store in (True, False)]
        with open_socket(keyed, additional_headers=headers("other")) as other:
            for response_id in ids:
                assert other.refusal(previous_response_id=response_id) == (400, "previous_response_not_found")
            assert other.ask()["type"] == "response.completed"


def test_prepared_response_asks_no_model_and_can_be_continued(gateway: Gateway, model_server: ModelServer) -> None:
    first = model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        for way in ({"generate": False}, {"prompt_cache_options": {"prewarm": True}}):
            prepared = socket.ask(input="One", store=True, **way)
            assert (prepared["type"], prepared["response"]["output"]) == ("response.completed", [])
            assert len(model_server.requests) == first
        empty = socket.ask(input=[], generate=False, stream_id="empty")["response"]["id"]
        assert socket.refusal(generate=False, model="unknown") == (404, "model_not_found")
        done = socket.ask(input=[], previous_response_id=prepared["response"]["id"])
        socket.ask(input="Alone", previous_response_id=empty, stream_id="empty")
    assert done["type"] == "response.completed"
    assert [_text(message) for message in model_server.request_body(first)["messages"]] == ["One"]
    assert [_text(message) for message in model_server.request_body(first + 1)["messages"]] == ["Alone"]


def test_continuation_that_grows_too_large_is_refused(keyed: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(keyed, additional_headers=headers("mine")) as socket:
        large = socket.ask(input="x" * 60_000)["response"]["id"]
        assert socket.refusal(input="x" * 60_000, previous_response_id=large) == (413, "request_too_large")
        assert socket.ask(previous_response_id=large)["type"] == "response.completed"


# Lanes


def test_lanes_run_side_by_side_and_each_in_order(gateway: Gateway, model_server: ModelServer) -> None:
    gate = Gate()
    first = model_server.enqueue((BEGUN, gate, REST), STREAMED)
    with open_socket(gateway) as socket:
        socket.send(stream_id="slow", input="1")
        gate.reached.result(60)
        socket.send(stream_id="slow", input="2")
        socket.send(stream_id="fast", input="3")
        while (event := socket.event())["type"] != "response.completed":
            pass
        assert event["stream_id"] == "fast"
        gate.open()
        rest = [*socket.events(), *socket.events()]
        fork = socket.ask(stream_id="third", input="4", previous_response_id=event["response"]["id"])
    assert {event["stream_id"] for event in rest} == {"slow"}
    inputs = [_text(model_server.request_body(first + number)["messages"][-1]) for number in range(3)]
    assert inputs == ["1", "3", "2"]
    assert (fork["type"], fork["stream_id"]) == ("response.completed", "third")
    assert [_text(message) for message in model_server.request_body(first + 3)["messages"]] == ["3", "Hello there", "4"]


def test_number_of_lanes_and_of_responses_is_limited(gateway: Gateway, model_server: ModelServer) -> None:
    gate = Gate()
    model_server.enqueue(*[(BEGUN, gate, REST)] * 16, STREAMED)
    with open_socket(gateway) as socket:
        for number in range(17):
            socket.send(stream_id=f"lane-{number}")
        while (event := socket.event())["type"] != "error":
            pass
        assert (event["status"], event["error"]["code"]) == (429, "websocket_response_limit_reached")
        gate.open()
        done = 0
        while done < 16:
            done += socket.event()["type"] == "response.completed"
        codes = [socket.ask(stream_id=f"more-{number}")["type"] for number in range(16)]
        assert codes == ["response.completed"] * 16
        assert socket.refusal(stream_id="one.more") == (400, "websocket_stream_limit_reached")
        assert socket.ask(stream_id="lane-1")["type"] == "response.completed"
        assert socket.ask()["type"] == "response.completed"


# Refusals

_REFUSED: dict[str, tuple[Json, int, str]] = {
    "no model": ({"model": "unknown"}, 404, "model_not_found"),
    "background": ({"background": True}, 400, "unsupported_parameter"),
    "input": ({"input": 7}, 400, "invalid_type"),
    "input of a continuation": ({"input": {}, "generate": False}, 400, "invalid_type"),
    "no input": ({"input": []}, 400, "empty_array"),
    "type": ({"type": "response.destroy"}, 400, "unknown_message_type"),
    "no type": ({"type": None}, 400, "unknown_message_type"),
    "stream_id": ({"stream_id": "a lane"}, 400, "invalid_stream_id"),
    "long stream_id": ({"stream_id": "x" * 257}, 400, "invalid_stream_id"),
    "stream_id that is no text": ({"stream_id": 7}, 400, "invalid_type"),
    "stream_id null": ({"stream_id": None}, 400, "invalid_type"),
    "previous_response_id": ({"previous_response_id": 7}, 400, "invalid_type"),
    "unknown response to prepare": ({"previous_response_id": "resp_1", "generate": False}, 400, "previous_response_not_found"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_message_that_is_refused_leaves_the_connection_open(gateway: Gateway, model_server: ModelServer, name: str) -> None:
    members, status, code = _REFUSED[name]
    model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        assert socket.refusal(**members) == (status, code)
        assert socket.ask()["type"] == "response.completed"


_STEER = '{"type":"response.steer","input":%s}'
_INVALID = ["", "{", "[]", "null", '"response.create"', "[" * 10_000, '{"type":"\\ud800"}']
_INVALID_STEERS = [_STEER % ("[" * 300 + "]" * 300), _STEER % "1e999"]


@pytest.mark.parametrize("text", [*_INVALID, *_INVALID_STEERS])
def test_message_that_is_no_json_object_is_refused(gateway: Gateway, model_server: ModelServer, text: str) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        socket.connection.send(text)
        assert socket.event()["status"] == 400
        assert socket.ask()["type"] == "response.completed"


def test_lone_surrogates_are_repaired(gateway: Gateway, model_server: ModelServer) -> None:
    first = model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        one = socket.ask(input="\ud83d")["response"]["id"]
        assert socket.ask(previous_response_id=one)["type"] == "response.completed"
    assert _text(model_server.request_body(first + 1)["messages"][0]) == "\ufffd"


def test_steering_is_refused_and_the_input_comes_back(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(gateway) as socket:
        socket.connection.send(json.dumps({"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop"}))
        failed = socket.event()
        assert socket.ask()["type"] == "response.completed"
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "steering_not_supported")
    assert failed["steer"] == {"input": "Stop", "previous_response_id": "resp_1"}


def test_requests_per_minute_count_each_response(keyed: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(keyed, additional_headers=headers("slow")) as socket:
        assert [socket.ask()["type"] for _ in range(2)] == ["response.completed"] * 2
        refused = socket.ask()
    assert (refused["status"], refused["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused["headers"]["retry-after"]) > 0
    assert refused["error"]["headers"]["x-ratelimit-limit-requests"] == "2"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"additional_headers": headers("wrong")}, 401),
        ({}, 401),
        ({"additional_headers": {**headers("mine"), "sec-fetch-site": "cross-site"}, "origin": "https://evil.example"}, 403),
    ],
)
def test_handshake_is_checked_like_a_request(keyed: Gateway, options: Json, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, open_socket(keyed, **options):
        pass
    assert refused.value.response.status_code == status
    assert "error" in json.loads(refused.value.response.body or b"")


def test_page_of_another_site_gets_no_socket_without_keys(gateway: Gateway) -> None:
    with pytest.raises(InvalidStatus) as refused, open_socket(gateway, origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    with open_socket(gateway, origin="http://localhost:5173"):
        pass


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/realtime", "/"])
def test_other_paths_have_no_websocket(gateway: Gateway, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused, open_socket(gateway, path):
        pass
    assert refused.value.response.status_code == 426
    assert "/v1/responses" in json.loads(refused.value.response.body or b"")["error"]["message"]


def test_message_larger_than_a_body_may_be_closes_with_1009(keyed: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    with open_socket(keyed, additional_headers=headers("mine")) as socket:
        socket.connection.send("x" * 100_001)
        assert socket.wait_for_close() == CloseCode.MESSAGE_TOO_BIG
    with open_socket(keyed, additional_headers=headers("mine")) as socket:
        assert socket.ask()["type"] == "response.completed"


# Ends


@pytest.mark.parametrize("name", ["close", "shutdown"])
def test_client_that_leaves_cancels_its_turn(gateway: Gateway, model_server: ModelServer, name: str) -> None:
    asked = model_server.enqueue((BEGUN, Gate()))
    with open_socket(gateway) as socket:
        socket.send()
        turn = socket.event()["response"]["id"].removeprefix("resp_")
        if name == "close":
            socket.connection.close()
        else:
            socket.connection.socket.shutdown(2)
        model_server.closed(asked).result(60)
    gateway.await_no_turns()
    [line] = [line for line in map(json.loads, gateway.log().splitlines()) if line.get("turn") == turn]
    assert (line["event"], line["status"], line["code"]) == ("turn", 499, "client_gone")


def test_shutdown_waits_for_running_turns_and_closes_with_1001(model_server: ModelServer) -> None:
    gate = Gate()
    model_server.enqueue((BEGUN, gate, REST))
    with running(configuration(model_server)) as gateway, open_socket(gateway) as idle, open_socket(gateway) as busy:
        busy.send()
        gate.reached.result(60)
        gateway.process.send_signal(signal.SIGTERM)
        assert idle.wait_for_close() == CloseCode.GOING_AWAY
        gate.open()
        assert busy.events()[-1]["type"] == "response.completed"
        assert busy.wait_for_close() == CloseCode.GOING_AWAY
        assert gateway.process.wait(timeout=60) == 0


def test_client_that_leaves_in_a_shutdown_cancels_its_turn(model_server: ModelServer) -> None:
    gate = Gate()
    model_server.enqueue((BEGUN, gate, REST), (BEGUN, Gate()))
    with running(configuration(model_server)) as gateway, open_socket(gateway) as other:
        other.send()
        gate.reached.result(60)
        with open_socket(gateway) as leaving:
            leaving.send()
            turn = leaving.event()["response"]["id"].removeprefix("resp_")
            gateway.process.send_signal(signal.SIGTERM)
            while not gateway.refuses_connections():
                pass
            leaving.connection.close()
        gate.open()
        assert other.events()[-1]["type"] == "response.completed"
        assert other.wait_for_close() == CloseCode.GOING_AWAY
        assert gateway.process.wait(timeout=60) == 0
        [line] = [line for line in map(json.loads, gateway.log().splitlines()) if line.get("turn") == turn]
    assert (line["status"], line["code"]) == (499, "client_gone")


def test_forced_shutdown_fails_running_turns_and_drops_waiting_ones(model_server: ModelServer) -> None:
    gate = Gate()
    first = model_server.enqueue((BEGUN, gate, REST))
    with running(configuration(model_server)) as gateway, open_socket(gateway) as socket:
        socket.send()
        gate.reached.result(60)
        socket.send()
        gateway.process.send_signal(signal.SIGTERM)
        while not gateway.refuses_connections():
            pass
        gateway.process.send_signal(signal.SIGTERM)
        failed = socket.events()[-1]
        assert socket.wait_for_close() == CloseCode.GOING_AWAY
        assert gateway.process.wait(timeout=60) == 0
    assert (failed["type"], failed["response"]["error"]["message"]) == ("response.failed", "The gateway is shutting down.")
    assert len(model_server.requests) == first + 1
