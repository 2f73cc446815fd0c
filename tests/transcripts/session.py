"""Exchanges over HTTP with a real gateway, as transcripts in which ids, times, tags and ports have fixed names."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from tests.gateway import TIMEOUT_SECONDS, Gateway, running
from tests.raw_client import RawClient, Reply
from tests.transcripts.requests import request
from tests.transcripts.scenarios import Combination, Scenario, Subject
from tests.transcripts.scripted_upstream import ScriptedUpstream

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
_ID = re.compile(r"(?<![A-Za-z0-9])(call|chatcmpl|resp|msg|fc|rs|req|ctc)([_-])[0-9A-Za-z]{20,}")
_TIME = re.compile(r'"(created|created_at|completed_at)":\d+')
_TAG = re.compile(r"(tool_call:)[0-9a-f]{12}")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_MARK = " [exchange {}]"
_MARKED = re.compile(r" \[exchange \d+\]")
_CODEX_MEMBERS = ("model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls", "text")
_NOT_RECORDED = frozenset({"timestamp", "turn", "model", "key", "ms", "first_ms"})


class Exchange(Struct, frozen=True, kw_only=True):
    """The upstream requests, the response to the client, and the log lines."""

    requests: tuple[str, ...]
    response: str
    log: str


class _RawExchange(Struct, frozen=True, kw_only=True):
    """An exchange before its log lines are read and its ids are replaced."""

    model: str
    tag: str
    received: list[tuple[str, bytes]]
    reply: Reply

    @property
    def token(self) -> str:
        return self.reply.headers["x-request-id"].removeprefix("req_")


class Session:
    """A gateway in front of a scripted upstream. One exchange runs at a time. `marks`: each prompt contains a unique mark."""

    def __init__(self, gateway: Gateway, upstream: ScriptedUpstream, *, marks: bool) -> None:
        self.gateway = gateway
        self._upstream = upstream
        self._marks = marks
        self._count = 0
        self._log_offset = 0

    def play(self, subject: Subject, only: Container[Combination] | None = None) -> dict[Combination, Exchange]:
        """Play all exchanges of the model, or only the given ones."""
        raw: dict[Combination, _RawExchange] = {}
        with RawClient(self.gateway.port) as client:
            self._log_lines(client)
            for scenario, combination in subject.combinations():
                if only is None or combination in only:
                    raw[combination] = self._exchange(client, scenario, combination, subject.model(combination))
            lines = _by_turn(self._log_lines(client))
        return {combination: _normalize(found, lines[found.token]) for combination, found in raw.items()}

    def _exchange(self, client: RawClient, scenario: Scenario, combination: Combination, model: str) -> _RawExchange:
        self._count += 1
        mark = _MARK.format(self._count) if self._marks else ""
        self._upstream.play(scenario.script, mark)
        body = request(combination, scenario, model, f"How is Paris?{mark}")
        reply = client.post(PATHS[combination.wire], body).reply()
        received = self._upstream.received[: self._max_requests(scenario, combination)]
        return _RawExchange(model=model, tag=self._upstream.tag, received=received, reply=reply)

    def _max_requests(self, scenario: Scenario, combination: Combination) -> int | None:
        """Codex may or may not send another request after a call that it refuses, before it is stopped."""
        if not self._marks:
            return None
        return 1 if combination.policy in ("pass", "fail") else len(scenario.script)

    def _log_lines(self, client: RawClient) -> list[Any]:
        """Return the lines since the last call. A thread writes the log, so wait for the line of another request."""
        refused = client.post(PATHS["chat"], {}).reply()
        last = refused.headers["x-request-id"].removeprefix("req_").encode()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            with self.gateway._log_path.open("rb") as log:
                log.seek(self._log_offset)
                text = log.read()
            if last in text and text.endswith(b"\n"):
                break
            assert time.monotonic() < deadline, f"no line of the request {last!r} in the log"
        self._log_offset += len(text)
        return [json.loads(line) for line in text.splitlines() if last not in line]


@contextlib.contextmanager
def open_session(subjects: Sequence[Subject]) -> Iterator[Session]:
    with ScriptedUpstream() as upstream:
        config = "".join(subject.tables(upstream.url) for subject in subjects)
        with running(config, environ={"TOOLRELAY_LOG": "json"}) as gateway:
            yield Session(gateway, upstream, marks=any(subject.is_codex for subject in subjects))


def _by_turn(lines: Iterable[Any]) -> dict[str, list[Any]]:
    """Group lines by turn. Lines without a turn belong to the one that ends next."""
    turns: dict[str, list[Any]] = {}
    unnamed: list[Any] = []
    for line in lines:
        if line["event"].startswith("codex_"):  # about its processes, not a turn
            continue
        token = line.get("turn")
        if token is None:
            unnamed.append(line)
            continue
        turns.setdefault(token, []).append(line)
        if line["event"] == "turn":
            turns[token][:0] = unnamed
            unnamed = []
    return turns


class _IdReplacer:
    """Replaces each id by its kind and a number in the order of appearance."""

    def __init__(self, raw: _RawExchange) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._tag = raw.tag
        self._model = f'"model":"{raw.model}"'

    def replace(self, text: str) -> str:
        text = _TIME.sub(r'"\1":0', _ID.sub(self._name, text)).replace(self._model, '"model":"MODEL"')
        return _ADDRESS.sub("127.0.0.1:PORT", _TAG.sub(r"\1TAG", text.replace(self._tag, "TAG")))

    def _name(self, found: re.Match[str]) -> str:
        name = self._known.get(found[0])
        if name is None:
            kind = found[1] + found[2]
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            name = self._known[found[0]] = f"{kind}{number}"
        return name


def _normalize(raw: _RawExchange, lines: list[Any]) -> Exchange:
    ids = _IdReplacer(raw)
    requests = tuple(ids.replace(_format_request(path, body)) for path, body in raw.received)
    reply = raw.reply
    head = [f"{reply.status} {reply.headers.get('content-type')}"]
    head += [f"{name}: {reply.headers[name]}" for name in ("retry-after",) if name in reply.headers]
    response = "\n".join([*head, ids.replace(reply.body.decode())])
    log = ids.replace("\n".join(_format_line(line) for line in lines))
    return Exchange(requests=requests, response=response, log=log)


@lru_cache(1024)  # many exchanges begin with the same request
def _format_request(path: str, body: bytes) -> str:
    """Format one line per member, or per element of a list."""
    lines = [path]
    asked = json.loads(_MARKED.sub("", body.decode()))
    if "client_metadata" in asked:  # Codex adds more members, which are full of ids
        asked = {name: asked[name] for name in _CODEX_MEMBERS if name in asked}
        asked["input"] = [{name: value for name, value in item.items() if name != "id"} for item in asked["input"]]
    for name, value in asked.items():
        values = value if isinstance(value, list) and value else [value]
        lines += [f"{name} {json.dumps(one, ensure_ascii=False, separators=(',', ':'))}" for one in values]
    return "\n".join(lines)


def _format_line(line: dict[str, Any]) -> str:
    fields = [f"{name}={value}" for name, value in line.items() if name not in _NOT_RECORDED and name not in ("level", "event")]
    return " ".join([line["level"], line["event"], *fields])
