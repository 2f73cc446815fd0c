"""Cost of scanning a model's text for calls, per delta of four characters. Part of `make bench`.

  bench/dialects.py                            every scenario for every dialect, one to two minutes
  bench/dialects.py --only "long string"       some scenarios, separated by commas
  bench/dialects.py --dialects glm45,react     some dialects, each in a column of its own
  bench/dialects.py --peers                    also SGLang's and vLLM's parsers, each in a virtual environment of its own

Targets: text 1 µs, inside a call 6 µs, adversarial text 20 µs, on a machine that appends to a list in 20 ns (the yardstick).
A figure is the minimum of several rounds; one above its target is measured again before it counts as missed.
Growth is the cost of a delta in a text four times as long, divided by that in the shorter text: 1 is linear.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import report
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, discover
from toolrelay.parsing.scanner import Scanner

_SIZE = 6_000
_LONGER = 4
_ROUNDS = 6
_RETRIES = 30
_PAUSE_S = 1
_WARMUPS = 4  # the first run after a pause finds cold caches
_MEGABYTE_LIMIT_S = 1.0
_GROWTH_LIMIT = 2.5
_MEGABYTE_DIALECTS = ("hermes", "qwen3_coder", "olmo3", "gemma4", "harmony", "llama3_json")
_TOOL = Tool(
    name="write",
    parameters={"type": "object", "properties": {"text": {"type": "string"}, "rows": {"type": "array"}}},
)
_SEEDS = itertools.count()
_PROSE = """\
## What changed

The **parser** now reads `config.toml` first; if the file is missing, the defaults apply (see [the manual](https://example.org/x)):

1. Values are checked: `0 < n <= 10`, and a name may not be empty.
2. Unknown keys are reported, e.g. "colour" instead of "color".

That is all - no further steps are needed.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanScenario:
    """`text` returns about that many characters. `target`: nanoseconds per delta."""

    name: str
    target: int
    text: Callable[[Dialect, int], str]


def _call(dialect: Dialect, arguments: str) -> str:
    return dialect.render_calls([Call(id="call_1", name="write", arguments=arguments)])


def _repeated(unit: str, size: int) -> str:
    return unit * (size // len(unit) + 1)


def _text(unit: str, size: int) -> str:
    return '{"text": "' + _repeated(unit, size) + '"}'


def _rows(unit: str, size: int) -> str:
    return '{"rows": [' + _repeated(unit, size) + "0]}"


def _varied(size: int) -> str:
    """Return JSON whose deltas are all different."""
    chance = random.Random(next(_SEEDS))
    rows = []
    for _ in range(size // 60 + 1):
        word = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
        row = {word: chance.randint(0, 10**6), "name": word[::-1], "at": [chance.random(), chance.random() < 0.5, None]}
        rows.append(json.dumps(row))
    return '{"rows": [' + ", ".join(rows) + "]}"


def _marker(dialect: Dialect) -> str:
    return dialect.start_markers[0].text


SCENARIOS = (
    ScanScenario(
        name="text without markers",
        target=1_000,
        text=lambda _, size: _repeated("Lorem ipsum dolor sit amet, consectetur. ", size),
    ),
    ScanScenario(name="text in Markdown", target=1_000, text=lambda _, size: _repeated(_PROSE, size)),
    ScanScenario(
        name="text in a fence",
        target=1_000,
        text=lambda _, size: "```python\n" + _repeated("for n in range(9):\n    print(n, '<b>')\n", size),
    ),
    ScanScenario(name="text in Chinese", target=1_000, text=lambda _, size: _repeated("今天的天气很好我们去公园散步。", size)),
    ScanScenario(name="long string", target=6_000, text=lambda dialect, size: _call(dialect, _text("words in a row, ", size))),
    ScanScenario(
        name="long string in Chinese", target=6_000, text=lambda dialect, size: _call(dialect, _text("今天的天气很好", size))
    ),
    ScanScenario(
        name="long string with escapes", target=6_000, text=lambda dialect, size: _call(dialect, _text("a line\\n<b>", size))
    ),
    ScanScenario(
        name="repeated structure", target=6_000, text=lambda dialect, size: _call(dialect, _rows('{"k": 12, "v": "x"}, ', size))
    ),
    ScanScenario(name="varied structure", target=6_000, text=lambda dialect, size: _call(dialect, _varied(size))),
    ScanScenario(
        name="short Markdown lines",
        target=20_000,
        text=lambda _, size: _repeated("# So\n\n- if `a < b`, [see](x) {y}\n- else *not*.\n", size),
    ),
    ScanScenario(
        name="calls without arguments", target=20_000, text=lambda dialect, size: _repeated(_call(dialect, "{}") + "\n", size)
    ),
    ScanScenario(
        name="incomplete start markers", target=20_000, text=lambda dialect, size: _repeated(_marker(dialect)[:-1] or "x", size)
    ),
    ScanScenario(name="repeated start markers", target=20_000, text=lambda dialect, size: _repeated(_marker(dialect), size)),
    ScanScenario(
        name="start markers and junk", target=20_000, text=lambda dialect, size: _repeated(_marker(dialect) + "x\n", size)
    ),
    ScanScenario(
        name="calls cut in the name", target=20_000, text=lambda dialect, size: _repeated(_marker(dialect) + '{"name":"', size)
    ),
    ScanScenario(
        name="calls without a name", target=20_000, text=lambda dialect, size: _repeated(_marker(dialect) + '{"a":{"b":"', size)
    ),
    ScanScenario(name="endless name", target=20_000, text=lambda dialect, size: _marker(dialect) + '{"name":"' + "x" * size),
    ScanScenario(name="blanks after a call", target=20_000, text=lambda dialect, size: _call(dialect, "{}") + " " * size),
    ScanScenario(name="blanks after a marker", target=20_000, text=lambda dialect, size: _marker(dialect) + " " * size),
    ScanScenario(
        name="lone surrogates", target=20_000, text=lambda dialect, size: _call(dialect, _text("\\ud83d\\ude00\\ud83d", size))
    ),
    ScanScenario(name="backticks", target=20_000, text=lambda _, size: "`" * size),
    ScanScenario(name="fences", target=20_000, text=lambda _, size: _repeated("```\n", size)),
    ScanScenario(
        name="calls cut at the end",
        target=20_000,
        text=lambda dialect, size: _repeated(_call(dialect, '{"text": "x"}')[:-5], size),
    ),
)


def cost(dialect: Dialect, text: str) -> float:
    """Return nanoseconds per delta."""
    deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
    scanner = Scanner(dialect, {_TOOL.name: _TOOL})
    began = time.process_time_ns()
    for delta in deltas:
        scanner.feed(delta)
    scanner.flush()
    return (time.process_time_ns() - began) / len(deltas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCosts:
    """The figures of a scenario for each dialect: the minimum of all rounds, and the growth."""

    scenario: ScanScenario
    costs: dict[str, float]
    growth: dict[str, float]

    @property
    def slowest(self) -> str:
        return max(self.costs, key=self.costs.__getitem__)

    @property
    def verdict(self) -> str:
        reached = self.costs[self.slowest] <= self.scenario.target and max(self.growth.values()) <= _GROWTH_LIMIT
        return "ok" if reached else "MISSED"

    @property
    def missed(self) -> str:
        return " ".join(sorted(name for name, figure in self.costs.items() if figure > self.scenario.target))


def measure(
    dialects: dict[str, Dialect], scenarios: list[ScanScenario], *, size: int, rounds: int, retries: int = 0
) -> list[ScenarioCosts]:
    """Measure in rounds over all scenarios and dialects, so that a busy moment of the machine spoils only one round.

    `retries`: further rounds for figures above their target, a second apart.
    """
    least: dict[tuple[str, str, int], float] = {}
    cells = [(scenario, name) for scenario in scenarios for name in dialects]
    for round_ in range(rounds + retries):
        if round_ >= rounds:
            cells = [(scenario, name) for scenario, name in cells if least[scenario.name, name, size] > scenario.target]
            time.sleep(_PAUSE_S if cells else 0)
        for scenario, name in cells * (1 if round_ < rounds else _WARMUPS):
            for length in (size, size * _LONGER) if round_ % 2 == 0 else (size,):
                key = (scenario.name, name, length)
                least[key] = min(cost(dialects[name], scenario.text(dialects[name], length)), least.get(key, float("inf")))
    return [
        ScenarioCosts(
            scenario=scenario,
            costs={name: least[scenario.name, name, size] for name in dialects},
            growth={name: least[scenario.name, name, size * _LONGER] / least[scenario.name, name, size] for name in dialects},
        )
        for scenario in scenarios
    ]


def yardstick() -> float:
    """Return nanoseconds for appending a delta to a list, as a measure of the machine's current speed."""
    text = SCENARIOS[0].text(discover()["hermes"], _SIZE)
    deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
    least = float("inf")
    for _ in range(200):
        out: list[str] = []
        began = time.process_time_ns()
        for delta in deltas:
            out.append(delta)  # noqa: PERF402 -- what is measured
        least = min(least, (time.process_time_ns() - began) / len(deltas))
    return least


def whole_megabyte(dialect: Dialect) -> float:
    """Return seconds for a call with a megabyte of arguments."""
    text = _call(dialect, _text("words in a row, ", 1_000_000))
    return min(cost(dialect, text) for _ in range(2)) * (len(text) / 4) / 1e9


def megabyte_at_once(dialect: Dialect) -> float:
    """Return seconds for a call with a megabyte of brackets, in one delta."""
    scanner = Scanner(dialect, {_TOOL.name: _TOOL})
    text = _call(dialect, _rows("[], ", 1_000_000))
    began = time.process_time_ns()
    scanner.feed(text)
    scanner.flush()
    return (time.process_time_ns() - began) / 1e9


def table(lines: list[ScenarioCosts]) -> Iterator[str]:
    """Yield a line for each scenario."""
    yield f"{'ns per delta':<26}{'target':>8}{'least':>8}{'median':>8}{'most':>8}  {'':16}{'growth':>7}"
    for line in lines:
        costs = line.costs.values()
        yield (
            f"{line.scenario.name:<26}{line.scenario.target:>8,}{min(costs):>8,.0f}{statistics.median(costs):>8,.0f}{max(costs):>8,.0f}"
            f"  {line.slowest:<16}{statistics.median(line.growth.values()):>7.1f}  {line.verdict} {line.missed}"
        ).rstrip()


def columns(lines: list[ScenarioCosts]) -> Iterator[str]:
    """Yield a line for each scenario, with a column for each dialect."""
    yield f"{'ns per delta':<26}{'target':>8}" + "".join(f"{name:>18}" for name in lines[0].costs) + "   (growth)"
    for line in lines:
        cells = (
            f"{figure:,.0f}{'!' if figure > line.scenario.target else ' '}({line.growth[name]:.1f})".rjust(18)
            for name, figure in line.costs.items()
        )
        yield f"{line.scenario.name:<26}{line.scenario.target:>8,}{''.join(cells)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A figure of another project and ours, for the same text."""

    of: str
    scenario: str
    dialect: str
    size: int
    theirs: float
    ours: float


def save(lines: list[ScenarioCosts], megabytes: dict[str, float], facts: dict[str, str], peers: list[Peer]) -> None:
    rows = [
        f"| {line.scenario.name} | {line.scenario.target:,} | {min(line.costs.values()):,.0f} "
        f"| {statistics.median(line.costs.values()):,.0f} | {max(line.costs.values()):,.0f} | {line.slowest} "
        f"| {statistics.median(line.growth.values()):.1f} | {'ok' if line.verdict == 'ok' else f'**MISSED** {line.missed}'} |"
        for line in lines
    ]
    text = [
        "# Benchmark results: dialects",
        "Written by `make bench`; docs/benchmarks.md says how to read them.",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
        "\n".join(
            ("| ns per delta | target | least | median | most | of | growth | |", "|---|--:|--:|--:|--:|---|--:|---|", *rows)
        ),
        f"A megabyte of arguments, s (target {_MEGABYTE_LIMIT_S:.0f}): "
        + ", ".join(f"{name} {seconds:.2f}" for name, seconds in megabytes.items()),
    ]
    if peers:
        rows = [
            f"| {one.scenario} | {one.dialect} | {one.size:,} | {one.of} | {one.theirs:,.0f} | {one.ours:,.0f} |" for one in peers
        ]
        head = ("| ns per delta | dialect | characters | of | theirs | ours |", "|---|---|--:|---|--:|--:|")
        text.append("\n".join((*head, *rows)))
    report.RESULTS.mkdir(exist_ok=True)
    (report.RESULTS / "dialects.md").write_text("\n\n".join(text) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Parsers of another project. `parts`: packages to install, the first one without its dependencies."""

    program: str
    parsers: dict[str, tuple[str, str]]
    parts: tuple[str, ...]


_PEERS = {
    "SGLang": Project(
        program="sglang_detectors.py",
        parsers={
            "hermes": ("qwen25_detector", "Qwen25Detector"),
            "qwen3_coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
            "deepseek_v31": ("deepseekv31_detector", "DeepSeekV31Detector"),
            "llama3_json": ("llama32_detector", "Llama32Detector"),
        },
        parts=("sglang", "msgspec", "numpy", "orjson", "partial-json-parser", "pydantic"),
    ),
    "vLLM": Project(
        program="vllm_parsers.py",
        parsers={"hermes": ("hermes_tool_parser", "Hermes2ProToolParser")},
        parts=("vllm", "openai", "partial-json-parser"),
    ),
}
_COMPARED = ("text without markers", "long string", "repeated structure")
_THEIR_SIZES = (2_000, 8_000)


def compare_with(peer: str) -> Iterator[Peer]:
    """Compare on short texts, because the cost per delta of some parsers grows with the text."""
    known, project = discover(), _PEERS[peer]
    command = [_installed(peer.lower(), project.parts), Path(__file__).with_name(project.program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for scenario in SCENARIOS:
            for name, (module, kind) in project.parsers.items() if scenario.name in _COMPARED else ():
                for size in _THEIR_SIZES:
                    text = scenario.text(known[name], size)
                    request = {"module": module, "class": kind, "tool": _TOOL.name, "parameters": _TOOL.parameters, "text": text}
                    print(json.dumps(request), file=process.stdin, flush=True)
                    theirs = float(process.stdout.readline() if process.stdout else "nan")
                    ours = min(cost(known[name], text) for _ in range(_ROUNDS))
                    yield Peer(of=peer, scenario=scenario.name, dialect=name, size=size, theirs=theirs, ours=ours)


def _installed(name: str, parts: tuple[str, ...]) -> Path:
    """Return a Python that has the project's code, without what needs a GPU."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "toolrelay-bench" / name
    python = cache / "bin" / "python"
    if not (cache / "ready").exists():
        print(f"installing the Python code of {parts[0]} into {cache}", file=sys.stderr)
        venv.create(cache, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *parts[1:]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", parts[0]], check=True)
        (cache / "ready").touch()
    return python


def print_peers(peers: Iterable[Peer]) -> list[Peer]:
    """Print the figures as they arrive."""
    shown = []
    print(f"\n{'ns per delta':<26}{'characters':>12}{'dialect':>16}{'of':>8}{'theirs':>14}{'ours':>10}")
    for peer in peers:
        row = f"{peer.scenario:<26}{peer.size:>12,}{peer.dialect:>16}{peer.of:>8}{peer.theirs:>14,.0f}{peer.ours:>10,.0f}"
        print(row, flush=True)
        shown.append(peer)
    return shown


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME,…", help=", ".join(scenario.name for scenario in SCENARIOS))
    parser.add_argument("--dialects", default="", metavar="NAME,…", help="default: all")
    parser.add_argument("--size", type=int, default=_SIZE, help=f"characters; default {_SIZE:,}")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"default {_ROUNDS}")
    parser.add_argument("--peers", action="store_true", help="compare with SGLang's and vLLM's parsers; installs what they need")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    began, load = time.monotonic(), os.getloadavg()
    known = discover()
    chosen = {name: known[name] for name in arguments.dialects.split(",")} if arguments.dialects else known
    wanted = arguments.only.split(",") if arguments.only else [scenario.name for scenario in SCENARIOS]
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in wanted]
    measured = f"appending to a list takes {yardstick():.0f} ns"
    lines = measure(
        chosen, scenarios, size=arguments.size, rounds=arguments.rounds, retries=_RETRIES if arguments.rounds > 1 else 0
    )
    print("\n".join(columns(lines) if arguments.dialects else table(lines)))
    print(measured)
    print(f"{sum(line.verdict == 'ok' for line in lines)} of {len(lines)} targets reached")
    peers = print_peers(peer for name in _PEERS for peer in compare_with(name)) if arguments.peers else []
    if not (arguments.only or arguments.dialects) and (arguments.size, arguments.rounds) == (_SIZE, _ROUNDS):
        megabytes = {name: whole_megabyte(known[name]) for name in _MEGABYTE_DIALECTS}
        megabytes |= {f"{name}, in one delta": megabyte_at_once(known[name]) for name in _MEGABYTE_DIALECTS}
        print(f"a megabyte of arguments: at most {max(megabytes.values()):.2f} s  [≤ {_MEGABYTE_LIMIT_S:.0f} s]")
        facts = report.machine([], time.monotonic() - began, load)
        save(lines, megabytes, facts | {"command": "bench/dialects.py", "yardstick": measured}, peers)


if __name__ == "__main__":
    main()
