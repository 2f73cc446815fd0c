"""Fifty known classes of bugs in tool calling. Each one has a test that names its number.

The number stands beside the test's `def`, or on the line above: `# bug 17`, or `# bug 17, 24`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

BUG_CLASSES = {
    # Parsing and streaming
    1: "arguments emptied when one chunk holds several tokens",
    2: "an opening marker split over chunks loses the call",
    3: "the whole answer in two chunks drops calls or names",
    4: "streaming and not streaming give different results",
    5: "truncation leaks markup, or yields an incomplete call that looks complete",
    6: "coercion to the schema at the end cuts arguments",
    7: "index always 0, or absent",
    8: "interleaved deltas of parallel calls merged",
    9: "the name sent again with each delta, so that clients double it",
    10: "finish_reason stop although there are calls",
    11: "raw markup leaks into the content",
    12: "text before the call lost, or it breaks the parsing",
    13: "text after the call dropped",
    14: "held-back text never flushed: an empty answer",
    15: "prose or a code fence executed as a call",
    16: "calls inside reasoning lost, or made up",
    17: "a closing tag inside a string argument truncates it",
    18: "malformed JSON gives a 500",
    19: "repair corrupts JSON that was valid",
    20: "arguments sent as an object",
    21: "values encoded twice",
    22: "an empty string as arguments",
    23: "$ref, anyOf and oneOf defeat coercion",
    24: "a UTF-8 sequence or a surrogate pair split over chunks is broken",
    25: "quadratic re-parsing",
    # Control and identity
    26: "tool_choice ignored",
    27: "parallel_tool_calls: false ignored",
    28: "an unknown tool gives a 500",
    29: "ids repeat within a turn or between turns",
    30: "orphaned tool results, or an order that the provider refuses",
    31: "reasoning items lost between turns",
    32: "dotted names, names over 64 characters, collisions after cleaning",
    33: "custom tools dropped, or returned as function calls",
    34: "arrays or images in tool outputs turned into strings",
    # Responses
    35: "sequence_number missing, or with gaps",
    36: "output_index collides, item ids are unstable",
    37: "the output of response.completed is empty",
    38: "a failure in mid-stream without a terminal event",
    39: "an error before the stream wrapped as a 200",
    40: "usage missing",
    41: "previous_response_id silently ignored",
    42: "state not shared between replicas",
    43: "one tenant reads another's response",
    # Execution
    44: "the client's disconnect does not cancel the upstream",
    45: "a retry runs a tool twice",
    46: "an idle stream is cut while a tool runs",
    47: "endless identical calls",
    48: "approval ignored",
    49: "approval lost on a restart",
    50: "the arguments that ran are not the ones approved",
}

_BUG_COMMENT = re.compile(r"#\s*bugs?\s+(\d+(?:\s*,\s*\d+)*)")


def _tests() -> Iterator[tuple[str, set[int]]]:
    """Yield every test with the numbers that it names."""
    for path in sorted(TESTS.rglob("test_*.py")):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                head = [lines[first - 2], *lines[node.lineno - 1 : node.body[0].lineno - 1], lines[node.lineno - 2]]
                found = {int(number) for line in head for numbers in _BUG_COMMENT.findall(line) for number in numbers.split(",")}
                yield f"{path.relative_to(TESTS)}::{node.name}", found


@pytest.fixture(scope="module")
def named() -> dict[str, set[int]]:
    return dict(_tests())


@pytest.mark.parametrize("number", BUG_CLASSES, ids=lambda number: f"{number}: {BUG_CLASSES[number]}")
def test_every_bug_class_has_a_test_that_names_it(number: int, named: dict[str, set[int]]) -> None:
    guards = [name for name, numbers in named.items() if number in numbers]
    assert guards, f"no test says `# bug {number}` beside its def: {BUG_CLASSES[number]}"


def test_no_test_names_a_bug_class_that_does_not_exist(named: dict[str, set[int]]) -> None:
    assert not [name for name, numbers in named.items() if numbers - set(BUG_CLASSES)]
