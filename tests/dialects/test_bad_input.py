"""Hostile answers: a result or a broken call, in linear time and without loss of text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dialects.scanning import DIALECTS, Text, call, calls_of, fold, scan_chunks, text_of, tool
from tests.dialects.test_every_dialect import TOOLS
from toolrelay.parsing.call_parser import CallParser
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.stream_reader import Reader

every_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))
# One of each kind of grammar: five megabytes take some seconds.
KINDS = ("hermes", "kimi_k2", "qwen3_coder", "glm45", "lfm2", "gemma4", "mistral_v13", "harmony")
every_kind = pytest.mark.parametrize("name", KINDS)
MARKED = sorted(set(DIALECTS) - {"llama3_json", "xlam", "pythonic"})  # the others accept a call as the whole answer only


class CountingReader(Reader):
    """Counts the characters that are copied on feeding: text that is kept and copied again costs time."""

    copied = 0

    def feed(self, text: str) -> None:
        super().feed(text)
        CountingReader.copied += len(self.text)


def work(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many characters were copied while the text was scanned in pieces."""
    monkeypatch.setattr("toolrelay.parsing.call_parser.Reader", CountingReader)
    CountingReader.copied = 0
    fold(scan_chunks(DIALECTS[name], [text[at : at + 512] for at in range(0, len(text), 512)], TOOLS))
    return CountingReader.copied


class CountingParser(CallParser):
    """Counts the characters that are scanned again after what turned out to be no call."""

    joined = 0

    def all_input(self) -> tuple[str, int]:
        text, at = super().all_input()
        CountingParser.joined += len(text)
        return text, at


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("deepseek_v4", "<｜DSML｜invoke name="),
        ("deepseek_v4", "<｜DSML｜tool_calls"),
        ("minimax_m2", "<invoke name="),
        ("hermes", "<tool_call> x"),
        ("kimi_k2", "<|tool_call_begin|>"),
    ],
)
def test_work_on_one_endless_line_of_openers_grows_with_the_line_only(
    name: str, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrelay.parsing.scanner.CallParser", CountingParser)
    counts = []
    for times in (100, 400):
        CountingParser.joined = 0
        fold(scan_chunks(DIALECTS[name], [unit] * times, TOOLS))
        counts.append(CountingParser.joined)
    assert counts[1] <= 4 * counts[0] + 1000


def almost_call(name: str) -> str:
    """Return a call with a wrong character in the middle of its arguments."""
    written = DIALECTS[name].render_calls([call("search", {"query": "QQ"})])
    return written.replace('"QQ"', '"QQ" <').replace("'QQ'", "'QQ' <") + "\n"


@pytest.mark.parametrize(("name", "size"), [("hermes", 5_000_000), *((name, 100_000) for name in KINDS[1:])])
def test_megabytes_of_almost_calls_are_scanned(name: str, size: int) -> None:
    unit = almost_call(name)
    text = unit * (size // len(unit))
    scanner = Scanner(DIALECTS[name], {one.name: one for one in TOOLS})
    for at in range(0, len(text), 65536):
        scanner.feed(text[at : at + 65536])
    scanner.flush()


UNITS: dict[str, Callable[[str], str]] = {
    "openers": lambda name: DIALECTS[name].start_markers[0].text,
    "almost calls": almost_call,
    "calls without an end": lambda name: DIALECTS[name].render_calls([call("search", {"query": "QQ"})]).partition("QQ")[0],
    "quotes": lambda name: DIALECTS[name].render_calls([call("search", {"query": "QQ"})]).partition("QQ")[0] + " \"a\" 'b' ",
    "end marks": lambda name: "".join(DIALECTS[name].end_markers) + "\n",
}


@every_kind
@pytest.mark.parametrize("unit", UNITS)
def test_work_grows_with_the_text_only(name: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of openers and the like, outside and inside of a call."""
    repeated = UNITS[unit](name)
    before = DIALECTS[name].render_calls([call("search", {"query": "QQ"})]).partition("QQ")[0]
    for start in ("", before):
        once = work(name, start + repeated * 100, monkeypatch)
        assert work(name, start + repeated * 400, monkeypatch) <= 6 * once + 500_000


@pytest.mark.parametrize("name", MARKED)
def test_thousand_openers_without_an_end_lose_no_text(name: str) -> None:
    text = "a " + f"{DIALECTS[name].start_markers[0].text} b\n" * 1000
    found = fold(scan_chunks(DIALECTS[name], [text], TOOLS))
    assert calls_of(found) == []
    if name not in ("harmony", "kimi_k3", "cohere", "inkling"):  # they remove marks around text
        assert text_of(found) + "".join(one.text for one in found if not isinstance(one, Text) and hasattr(one, "text")) == text


@every_dialect
def test_tool_named_like_a_mark_is_harmless(name: str) -> None:
    dialect = DIALECTS[name]
    marks = [*(marker.text for marker in dialect.start_markers), *dialect.end_markers]
    tools = [tool(mark, {mark: {"type": "string"}}) for mark in marks]
    for mark in marks:
        text = dialect.render_calls([call(mark, {mark: mark}), call("now")])
        chunks = list(text)
        assert fold(scan_chunks(dialect, chunks, tools)) == fold(scan_chunks(dialect, [text], tools))


JSON_FORMS = (
    "hermes",
    "kimi_k2",
    "deepseek_v3",
    "deepseek_v31",
    "harmony",
    "nemotron",
    "apertus",
    "mistral",
    "sealed",
    "olmo3",
    "lfm2",
)


@pytest.mark.parametrize("name", JSON_FORMS)
def test_value_that_quotes_every_mark_of_its_dialect_is_unchanged(name: str) -> None:
    dialect = DIALECTS[name]
    marks = "\n".join(
        [*(marker.text for marker in dialect.start_markers), *dialect.end_markers, dialect.render_calls([call("now")])]
    )
    found = fold(scan_chunks(dialect, [dialect.render_calls([call("search", {"query": f"see {marks} there"})])], TOOLS))
    assert calls_of(found) == [("search", {"query": f"see {marks} there"})]
