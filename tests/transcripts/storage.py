"""Files of recorded transcripts. Text that occurs more than once is stored once, under a label made from its content.

Sections:

== table chat two_calls     a row per choice, a column per policy; cells are labels of transcripts
== transcripts              label: the labels of the requests, the response and the log lines
== text 1f3a5c7e            a request, a response, or log lines
== lines                    label and text of long lines, which other texts contain as `@label`

In a response `» … «` is an ordinary chunk of Chat Completions, reduced to its delta.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from tests.transcripts.scenarios import Combination
from tests.transcripts.session import Exchange

FOLDER = Path(__file__).with_name("recorded")
_MIN_SHARED_LENGTH = 60
_CHUNK = (
    'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":0,"model":"MODEL","usage":null,'
    '"choices":[{"index":0,"delta":'
)
_CHUNK_END = ',"logprobs":null,"finish_reason":null}]}\n\n'


def path_of(subject: str) -> Path:
    return FOLDER / f"{subject}.txt"


def _label(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def _compact(response: str) -> str:
    """Shorten chunks of Chat Completions, and put the members that Responses echo on a line of their own."""
    return response.replace(_CHUNK, "» ").replace(_CHUNK_END, " «\n").replace(',"service_tier":', '\n,"service_tier":')


class Labels:
    """The labels of transcripts and their texts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.transcripts: dict[str, tuple[str, ...]] = {}
        self._known: dict[str, str] = {}

    def add(self, exchange: Exchange) -> str:
        parts = (*map(self._text, exchange.requests), "->", self._text(_compact(exchange.response)), self._text(exchange.log))
        label = _label(" ".join(parts))
        self.transcripts[label] = parts
        return label

    def _text(self, text: str) -> str:
        label = self._known.get(text)
        if label is None:
            label = self._known[text] = _label(text)
            assert self.texts.setdefault(label, text) == text, "two texts have the same label"
        return label

    def format(self, transcript: str) -> list[str]:
        """Return the whole transcript as lines."""
        lines: list[str] = []
        for part in self.transcripts[transcript]:
            lines += ["------", *self.texts[part].split("\n")] if part != "->" else ["====== the client gets, and the log says:"]
        return lines


def write(subject: str, exchanges: dict[Combination, Exchange]) -> None:
    labels = Labels()
    cells = {combination: labels.add(exchange) for combination, exchange in exchanges.items()}
    text = "\n".join([*_tables(cells), *_transcripts(labels), *_texts(labels)])
    FOLDER.mkdir(exist_ok=True)
    path_of(subject).write_text(text + "\n")


def _row(combination: Combination) -> str:
    parallel, stream = "parallel" if combination.parallel else "single", "streamed" if combination.stream else "whole"
    return f"{combination.choice:<9}{parallel:<9}{stream:<9}"


def _tables(cells: dict[Combination, str]) -> Iterator[str]:
    policies = list(dict.fromkeys(combination.policy for combination in cells))
    table, row = "", ""
    for combination, label in cells.items():
        name = f"== table {combination.wire} {combination.scenario}"
        if name != table:
            if row:
                yield row
            yield from (name, (" " * 27 + " ".join(f"{policy:<8}" for policy in policies)).rstrip())
            table, row = name, ""
        start = _row(combination)
        if row and not row.startswith(start):
            yield row
            row = ""
        row = f"{row} {label}" if row else start + label
    yield row


def _transcripts(labels: Labels) -> Iterator[str]:
    yield "== transcripts"
    for label, parts in labels.transcripts.items():
        yield f"{label}: {' '.join(parts)}"


def _texts(labels: Labels) -> Iterator[str]:
    counts = Counter(line for text in labels.texts.values() for line in text.split("\n") if len(line) >= _MIN_SHARED_LENGTH)
    shared = {line: f"@{_label(line)}" for line, count in counts.items() if count > 1}
    for label, text in labels.texts.items():
        yield f"== text {label}"
        yield from (shared.get(line, line) for line in text.split("\n"))
    yield "== lines"
    yield from (f"{label} {line}" for line, label in shared.items())


class RecordedTranscripts:
    """The recorded transcripts of one model."""

    def __init__(self, subject: str) -> None:
        self.labels = Labels()
        self.cells: dict[str, str] = {}
        lines: dict[str, str] = {}
        texts: dict[str, list[str]] = {}
        for title, body in _sections(path_of(subject).read_text()[:-1].split("\n")):
            match title.split(" "):
                case ["table", wire, scenario]:
                    self._read_table(f"{wire} {scenario}", body)
                case ["transcripts"]:
                    read = (line.split(": ") for line in body)
                    self.labels.transcripts = {label: tuple(parts.split(" ")) for label, parts in read}
                case ["text", label]:
                    texts[label] = body
                case _:
                    lines = dict(line.split(" ", 1) for line in body)
        self.labels.texts = {label: "\n".join(lines.get(line, line) for line in body) for label, body in texts.items()}

    def _read_table(self, name: str, body: list[str]) -> None:
        policies = body[0].split()
        for line in body[1:]:
            choice, parallel, stream, *labels = line.split()
            for policy, label in zip(policies, labels, strict=True):
                self.cells[f"{name} {choice} {parallel} {stream} {policy}"] = label

    def differences(self, exchanges: dict[Combination, Exchange]) -> dict[Combination, str]:
        """Return the combinations that differ from the record, each with its diff."""
        labels = Labels()
        found: dict[Combination, str] = {}
        for combination, exchange in exchanges.items():
            label, recorded = labels.add(exchange), self.cells.get(str(combination))
            if recorded is None:
                found[combination] = "not recorded"
            elif recorded != label:
                before, after = self.labels.format(recorded), labels.format(label)
                found[combination] = "\n".join(difflib.unified_diff(before, after, "recorded", "now", lineterm="", n=2))
        return found


def _sections(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    title, body = "", list[str]()
    for line in lines:
        if line.startswith("== "):
            if title:
                yield title, body
            title, body = line.removeprefix("== "), []
        else:
            body.append(line)
    yield title, body
