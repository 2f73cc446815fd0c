"""The golden exchanges: what goes to the provider and what comes back to the client, to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from openai.types.chat import ChatCompletionChunk

from tests.exchange import Gist, decode_all, envelope, fold, gist, run_turn
from tests.golden.transcripts import BACKS, EXCHANGES, FRONTS, Way, ways
from tests.wires.responses.frames import judged

WAYS = list(ways())
OPENAIS_OWN = sorted(
    path
    for path in EXCHANGES.glob("*/upstream.*.sse")
    if path.stem in ("upstream.chat", "upstream.responses")
    and path != EXCHANGES / "custom-grammar-tool" / "upstream.chat.sse"  # the SDK has no type for that
)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_exchange_is_relayed_as_it_was(way: Way) -> None:
    assert way.expected.exists(), "new: run `make golden` and look at what it wrote"
    assert way.transcript() == way.expected.read_text(), "run `make golden` and look at the difference"


def test_no_transcript_is_left_over() -> None:
    assert set(EXCHANGES.glob("*/expect/*")) == {way.expected for way in WAYS}, "run `make golden`"


def told(way: Way) -> tuple[Gist, bool]:
    """What the client makes of the frames, and whether they end in an error."""
    front, request = FRONTS[way.front], replace(way.request(), include_usage=True)
    events, _ = run_turn(request, decode_all(BACKS[way.back].wire, way.answer()))
    answer = fold(decode_all(front, front.encoder(envelope(request)).encode(events)))
    return gist(answer), answer.error is not None


@pytest.mark.parametrize("folder", sorted(EXCHANGES.iterdir()), ids=lambda folder: folder.name)
def test_whichever_way_it_takes_an_answer_is_the_same(folder: Path) -> None:  # bug 10, 40
    """The same calls, text, usage and finish for both fronts and whatever provider's spelling of it."""
    answers = {(way.front, way.back): told(way) for way in WAYS if way.folder == folder}
    first = next(iter(answers.values()))
    for way, answer in answers.items():
        assert _without_what_is_not_counted(answer[0], way) == _without_what_is_not_counted(first[0], way)
        assert answer[1] == first[1], way


def _without_what_is_not_counted(said: Gist, way: tuple[str, str]) -> Gist:
    """Ollama and Mistral do not say how many tokens were cached or thought."""
    if said.usage is None or way[1] not in ("ollama", "mistral"):
        return said
    return replace(said, usage=said.usage[:3])


@pytest.mark.parametrize("path", OPENAIS_OWN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_stands_for_openai_has_the_shape_of_openai(path: Path) -> None:
    """As far as the SDK's types, which are made from the API's own description, can tell."""
    frames = [line.removeprefix("data: ") for line in path.read_text().splitlines() if line.startswith("data: ")]
    values = [json.loads(frame) for frame in frames if frame != "[DONE]"]
    if path.stem == "upstream.responses":
        judged([{"name": "?", **value} if value["type"].endswith("arguments.done") else value for value in values])
    else:
        for value in values:
            if "error" not in value:
                ChatCompletionChunk.model_validate(value)
