"""What it costs to find calls in a model's text, per delta of four characters, events included.

  bench/dialects.py                            every scenario, for a few dialects
  bench/dialects.py --only plain,string        some scenarios
  bench/dialects.py --dialects glm45,react     other dialects
  bench/dialects.py --sglang                   also SGLang's detectors on the same text, in a virtual environment of their own

The figure is the best of several runs in CPU time: on a busy machine the others are other processes' cost. In brackets is what
a delta costs in a text four times as long, in relation: 1 is linear.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._scanner import Scanner
from toolrelay.dialects.base import Dialect, discover

_SIZE = 60_000
_RUNS = 5
_DIALECTS = ("hermes", "qwen3_coder", "olmo3", "deepseek_v31", "harmony", "llama3_json", "react")
_TOOL = Tool(
    name="write",
    parameters={"type": "object", "properties": {"text": {"type": "string"}, "rows": {"type": "array"}}},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`text` makes about so many characters. `target` is nanoseconds per delta, from issue 3."""

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


def _opener(dialect: Dialect) -> str:
    return dialect.openers[0].text


SCENARIOS = (
    Scenario(name="plain", target=400, text=lambda _, size: _repeated("Lorem ipsum dolor sit amet, consectetur. ", size)),
    Scenario(
        name="prose", target=400, text=lambda _, size: _repeated("# So\n\n- if `a < b`, [see](x) {y}\n- else *not*.\n", size)
    ),
    Scenario(name="string", target=1000, text=lambda dialect, size: _call(dialect, _text("words in a row, ", size))),
    Scenario(name="escapes", target=1000, text=lambda dialect, size: _call(dialect, _text("a line\\n<b>", size))),
    Scenario(name="structure", target=1000, text=lambda dialect, size: _call(dialect, _rows('{"k": 12, "v": "x"}, ', size))),
    Scenario(name="calls", target=10_000, text=lambda dialect, size: _repeated(_call(dialect, "{}") + "\n", size)),
    Scenario(name="prefixes", target=10_000, text=lambda dialect, size: _repeated(_opener(dialect)[:-1] or "x", size)),
    Scenario(name="openers", target=10_000, text=lambda dialect, size: _repeated(_opener(dialect), size)),
    Scenario(name="junk", target=10_000, text=lambda dialect, size: _repeated(_opener(dialect) + "x\n", size)),
    Scenario(name="half calls", target=10_000, text=lambda dialect, size: _repeated(_opener(dialect) + '{"name":"', size)),
    Scenario(name="no name", target=10_000, text=lambda dialect, size: _repeated(_opener(dialect) + '{"a":{"b":"', size)),
    Scenario(name="long name", target=10_000, text=lambda dialect, size: _opener(dialect) + '{"name":"' + "x" * size),
    Scenario(name="blanks", target=10_000, text=lambda dialect, size: _call(dialect, "{}") + " " * size),
    Scenario(name="open blanks", target=10_000, text=lambda dialect, size: _opener(dialect) + " " * size),
    Scenario(name="backticks", target=10_000, text=lambda _, size: "`" * size),
    Scenario(name="fences", target=10_000, text=lambda _, size: _repeated("```\n", size)),
    Scenario(name="cut call", target=10_000, text=lambda dialect, size: _repeated(_call(dialect, '{"text": "x"}')[:-5], size)),
)


def cost(dialect: Dialect, text: str) -> float:
    """Nanoseconds per delta."""
    deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
    best = float("inf")
    for _ in range(_RUNS):
        scanner = Scanner(dialect, {_TOOL.name: _TOOL})
        began = time.process_time_ns()
        for delta in deltas:
            scanner.feed(delta)
        scanner.flush()
        best = min(best, time.process_time_ns() - began)
    return best / len(deltas)


def whole_megabyte(dialect: Dialect) -> float:
    """Seconds for a call with a megabyte of arguments."""
    text = _call(dialect, _text("words in a row, ", 1_000_000))
    return cost(dialect, text) * (len(text) / 4) / 1e9


_DETECTORS = {
    "hermes": ("qwen25_detector", "Qwen25Detector"),
    "qwen3_coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "deepseek_v31": ("deepseekv31_detector", "DeepSeekV31Detector"),
    "llama3_json": ("llama32_detector", "Llama32Detector"),
}
_THEIR_SIZES = (2_000, 8_000)
_THEIR_PARTS = ("sglang", "msgspec", "numpy", "orjson", "partial-json-parser", "pydantic")


def compare_with_sglang() -> None:
    """Their texts are short: what some of them do for each delta grows with all that came before."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "toolrelay-bench" / "sglang"
    python = cache / "bin" / "python"
    if not python.exists():
        print(f"installing SGLang's Python code into {cache}", file=sys.stderr)
        venv.create(cache, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_THEIR_PARTS[1:]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", _THEIR_PARTS[0]], check=True)
    known = discover()
    program = Path(__file__).with_name("sglang_detectors.py")
    print(f"\n{'ns per delta':<14}{'characters':>12}{'dialect':>16}{'SGLang':>14}{'ours':>10}")
    with subprocess.Popen([python, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for scenario in SCENARIOS:
            for name, (module, kind) in _DETECTORS.items() if scenario.name in ("plain", "string", "structure") else ():
                for size in _THEIR_SIZES:
                    text = scenario.text(known[name], size)
                    asked = {"module": module, "class": kind, "tool": _TOOL.name, "parameters": _TOOL.parameters, "text": text}
                    print(json.dumps(asked), file=process.stdin, flush=True)
                    theirs = float(process.stdout.readline() if process.stdout else "nan")
                    print(
                        f"{scenario.name:<14}{size:>12,}{name:>16}{theirs:>14,.0f}{cost(known[name], text):>10,.0f}", flush=True
                    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME,…", help=", ".join(scenario.name for scenario in SCENARIOS))
    parser.add_argument("--dialects", default=",".join(_DIALECTS), metavar="NAME,…", help="or all")
    parser.add_argument("--sglang", action="store_true", help="compare with SGLang's detectors; installs what they need")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    known = discover()
    names = sorted(known) if arguments.dialects == "all" else arguments.dialects.split(",")
    wanted = set(arguments.only.split(",")) if arguments.only else {scenario.name for scenario in SCENARIOS}
    print(f"{'ns per delta':<14}{'target':>8}" + "".join(f"{name:>18}" for name in names) + "   (growth)")
    for scenario in SCENARIOS:
        if scenario.name not in wanted:
            continue
        cells = []
        for name in names:
            short, long = (cost(known[name], scenario.text(known[name], size)) for size in (_SIZE, 4 * _SIZE))
            mark = "!" if short > scenario.target else " "
            cells.append(f"{short:>10,.0f}{mark}({long / short:.1f})".rjust(18))
        print(f"{scenario.name:<14}{scenario.target:>8,}" + "".join(cells), flush=True)
    if not arguments.only:
        print(f"{'1 MB, s':<14}{1:>8}" + "".join(f"{whole_megabyte(known[name]):>18.2f}" for name in names))
    if arguments.sglang:
        compare_with_sglang()


if __name__ == "__main__":
    main()
