"""Golden exchanges: the exact request to the provider and answer to the client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anthropic.types import RawMessageStreamEvent
from msgspec.structs import replace
from openai.types.chat import ChatCompletionChunk
from pydantic import TypeAdapter

from tests.exchange import Gist, decode_all, envelope, fold, gist, run_turn
from tests.golden.transcripts import BACKS, EXCHANGES, FRONTS, Way, ways
from tests.wires.responses.frames import validated

WAYS = list(ways())
OPENAI_RECORDINGS = sorted(
    path
    for path in EXCHANGES.glob("*/upstream.*.sse")
    if path.stem in ("upstream.chat", "upstream.responses")
    and path != EXCHANGES / "custom-grammar-tool" / "upstream.chat.sse"  # the SDK has no type for that
)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_exchange_matches_its_golden_transcript(way: Way) -> None:
    assert way.expected.exists(), "new: run `make golden` and review what it wrote"
    assert way.transcript() == way.expected.read_text(), "run `make golden` and review the difference"


def test_no_stale_transcripts() -> None:
    assert set(EXCHANGES.glob("*/expect/*")) == {way.expected for way in WAYS}, "run `make golden`"


def received(way: Way) -> tuple[Gist, bool]:
    """The answer as the client folds it, and whether it ends in an error."""
    front, request = FRONTS[way.front], replace(way.request(), include_usage=True)
    events, _ = run_turn(request, decode_all(BACKS[way.back].wire, way.answer()))
    answer = fold(decode_all(front, front.encoder(envelope(request)).encode(events)))
    return gist(answer), answer.error is not None


@pytest.mark.parametrize("folder", sorted(EXCHANGES.iterdir()), ids=lambda folder: folder.name)
def test_answer_is_the_same_over_every_route(folder: Path) -> None:  # bug 10, 40
    """Calls, text, usage and finish are the same for both fronts and all providers."""
    answers = {(way.front, way.back): received(way) for way in WAYS if way.folder == folder}
    first = next(iter(answers.values()))
    for way, answer in answers.items():
        assert _without_detail_counts(answer[0], way) == _without_detail_counts(first[0], way)
        assert answer[1] == first[1], way


def _without_detail_counts(said: Gist, way: tuple[str, str]) -> Gist:
    """Ollama and Mistral do not count cached and reasoning tokens."""
    if said.usage is None or way[1] not in ("ollama", "mistral"):
        return said
    return replace(said, usage=said.usage[:3])


@pytest.mark.parametrize("path", OPENAI_RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_openai_recordings_match_the_sdk_types(path: Path) -> None:
    """As far as the SDK's types, which are generated from OpenAI's API description, can tell."""
    frames = [line.removeprefix("data: ") for line in path.read_text().splitlines() if line.startswith("data: ")]
    values = [json.loads(frame) for frame in frames if frame != "[DONE]"]
    if path.stem == "upstream.responses":
        validated([{"name": "?", **value} if value["type"].endswith("arguments.done") else value for value in values])
    else:
        for value in values:
            if "error" not in value:
                ChatCompletionChunk.model_validate(value)


def check_anthropic_types(text: str) -> None:
    adapter: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
    for line in text.splitlines():
        if line.startswith("data: ") and json.loads(line[6:])["type"] not in ("ping", "error"):
            adapter.validate_json(line[6:])


@pytest.mark.parametrize("path", sorted(EXCHANGES.glob("*/upstream.anthropic.sse")), ids=lambda path: path.parent.name)
def test_anthropic_recordings_match_the_sdk_types(path: Path) -> None:
    check_anthropic_types(path.read_text())


@pytest.mark.parametrize("way", [way for way in WAYS if way.front == "anthropic"], ids=str)
def test_streams_for_anthropic_clients_match_the_sdk_types(way: Way) -> None:
    check_anthropic_types(way.transcript().partition("=== to the client, whole")[0])
