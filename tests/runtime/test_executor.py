"""The executor: what a model gets from a call, whatever the tool does; the log and the metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.runtime import toolsets
from tests.runtime.toolsets import ENVIRONMENT, Play, context, executing, failure, once, run, settings_for
from toolrelay import ToolContext, ToolError, log, tool
from toolrelay.core.messages import Image, Text
from toolrelay.core.steps import ToolRunFinished
from toolrelay.runtime import executor as executor_module
from toolrelay.runtime import gateway_tools
from toolrelay.runtime.executor import Executor
from toolrelay.runtime.telemetry import Metrics
from toolrelay.toolsets.base import ToolsetKind
from toolrelay.toolsets.python import PythonSettings, PythonToolset
from toolrelay.toolsets.python.function import read_function

# pytest finds fixtures by the names of the module.
play = toolsets.play

CANARY = "canary-7f3a"


def samples(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        (sample.name, sample.labels.get("tool", ""), sample.labels.get("outcome", "")): sample.value
        for family in families
        for sample in family.samples
        if "tool" in sample.labels
    }


# Results


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("text", "text"),
        ("", ""),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
        (None, "null"),
        (float("nan"), "null"),
        ((1, 2), "[1,2]"),
        ((), "[]"),
        (2**70, str(2**70)),
        ("half \ud83d", "half \ufffd"),
        ({"name": "\udc80"}, '{"name": "\\udc80"}'),
    ],
)
def test_text_is_the_result_as_it_is_and_other_values_as_json(play: Play, value: Any, output: str) -> None:
    @tool
    def give() -> Any:
        return value

    assert once(play, give) == ToolRunFinished(call_id="call_1", output=output)


def test_parts_are_the_result_as_they_are(play: Play) -> None:  # bug 34
    parts = (Text(text="a"), Image(url="data:image/png;base64,"))

    @tool
    def give() -> Any:
        return parts

    assert once(play, give).output == parts


@pytest.mark.parametrize("kind", ["object", "generator", "cycle"])
def test_value_that_is_not_json_is_an_error(play: Play, kind: str) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    values = {"object": object(), "generator": (each for each in "ab"), "cycle": cycle}

    @tool(idempotent=True)
    def give() -> Any:
        return values[kind]

    finished = once(play, give)
    assert finished.failed
    name = "list" if kind == "cycle" else kind
    assert str(finished.output).startswith(f"Error: the tool returned a value of type {name} that is not JSON: ")


def test_result_of_50_mb_is_truncated_with_a_mark(play: Play) -> None:
    @tool
    def give() -> Any:
        return "x" * 50_000_000

    finished = once(play, give, max_result_bytes=1000)
    assert finished.output == "x" * 1000 + "\n[cut here by the gateway: at most 1000 of 50000000 bytes are shown]"
    assert not finished.failed


def test_tool_that_prints_gives_its_result(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def give() -> str:
        print("noise")  # noqa: T201 -- on purpose
        return "result"

    assert once(play, give).output == "result"


# Arguments


@tool
def add(a: int, b: int = 0) -> int:
    return a + b


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "they are not valid JSON"),
        ("[1]", "they are not a JSON object"),
        ("null", "they are not a JSON object"),
        ("", '"a" is a required property'),
        ('{"a": "1"}', 'a: "1" is not of type "integer"'),
        ('{"a": 1, "c": 2}', "Additional properties are not allowed ('c' was unexpected)"),
        ('{"a": 1, "' + "x" * 5000 + '": 2}', "Additional properties"),
        ("[" * 100_000, "they are not valid JSON"),
    ],
)
def test_arguments_that_break_the_schema_do_not_reach_the_tool(play: Play, arguments: str, problem: str) -> None:
    called = []

    @tool(name="add", idempotent=True)
    def counted(a: int, b: int = 0) -> int:
        called.append((a, b))
        return a + b

    finished = once(play, replace_name(counted, "add"), arguments)
    assert finished.failed
    assert str(finished.output).startswith("Error: invalid arguments for add: ")
    assert problem in str(finished.output)
    assert str(finished.output).endswith("Send a JSON object that matches the tool's schema.")
    assert len(finished.output) < 600
    assert called == []


def replace_name(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function


def test_empty_arguments_are_no_arguments(play: Play) -> None:  # bug 22
    @tool
    def now() -> str:
        return "noon"

    assert once(play, now, "").output == once(play, now, " ").output == "noon"


def test_unknown_tool_is_an_error_result(play: Play) -> None:  # bug 28
    async def story(executor: Executor) -> list[ToolRunFinished]:
        return [
            await run(executor, "subtract"),
            await run(executor, "add", '{"a": 1}', context=context(model="other")),
            await run(executor, "add", '{"a": 1}', context=context(key="stranger")),
            await run(executor, "x" * 5000),
        ]

    metrics = Metrics()
    assert play(story, add, metrics=metrics) == [
        failure("Unknown tool: subtract"),
        failure("Unknown tool: add"),
        failure("Unknown tool: add"),
        failure("Unknown tool: " + "x" * 100),
    ]
    assert samples(metrics)["toolrelay_tool_runs_total", "", "unknown_tool"] == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc") | st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.text() | JSON.map(json.dumps) | st.dictionaries(st.sampled_from("abc"), st.integers()).map(json.dumps))
def test_any_arguments_give_a_result(arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kind = ToolsetKind(
            name="python", settings=PythonSettings, open=lambda *_: PythonToolset([read_function(add)], max_concurrent=1)
        )
        patch.setattr(gateway_tools, "discover", lambda: {"python": kind})

        async def main() -> ToolRunFinished:
            async with executing(settings_for("m", ENVIRONMENT)) as executor:
                return await run(executor, "add", arguments)

        finished = asyncio.run(main())
    try:
        values = json.loads(arguments)
        expected = None if finished.failed else json.dumps(int(values["a"]) + int(values.get("b", 0)))
    except ValueError:
        expected = None
    assert finished.failed or finished.output == expected


# Failures


class Unprintable(Exception):  # noqa: N818 -- its name is in the result
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such city"), "Error: ValueError: no such city"),
        (KeyError(), "Error: KeyError"),
        (Unprintable(), "Error: Unprintable"),
        (ValueError("x" * 5000), f"Error: ValueError: {'x' * 981}…"),
        (ToolError("no such city"), "Error: no such city"),
        (SystemExit(1), "Error: SystemExit: 1"),
        (KeyboardInterrupt(), "Error: KeyboardInterrupt"),
        (asyncio.CancelledError(), "Error: CancelledError"),
        (TimeoutError("its own"), "Error: TimeoutError: its own"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
def test_exception_is_an_error_result_without_traceback(
    play: Play, error: BaseException, message: str, *, is_async: bool
) -> None:
    @tool
    def fail() -> str:
        raise error

    @tool(name="fail")
    async def fail_later() -> str:
        raise error

    with log.captured() as lines:
        assert once(play, replace_name(fail_later, "fail") if is_async else fail) == failure(message)
    logged = [line["exception"] for line in lines if line["event"] == "tool_error"]
    assert len(logged) == (0 if isinstance(error, ToolError) else 1)
    assert all(type(error).__name__ in each and "test_executor.py" in each for each in logged)


def test_tool_is_retried_only_if_it_is_idempotent(play: Play) -> None:  # bug 45
    tries: list[str] = []
    pauses: list[float] = []

    @tool(idempotent=True)
    def flaky(context: ToolContext) -> str:
        tries.append(context.idempotency_key)
        if len(tries) < 3:
            raise OSError("busy")
        return "done"

    @tool
    def once_only() -> str:
        tries.append("once_only")
        raise OSError("busy")

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    assert once(play, flaky, pause=pause, jitter=lambda: 0.5).output == "done"
    assert tries == ["call_1"] * 3
    assert pauses == [0.2, 0.4]
    assert once(play, once_only, pause=pause) == failure("Error: OSError: busy")
    assert tries[3:] == ["once_only"]


@pytest.mark.parametrize("error", [ToolError("final"), OSError("busy")], ids=["ToolError", "OSError"])
def test_retries_end(play: Play, error: Exception) -> None:
    tries = []

    @tool(idempotent=True)
    def fail() -> str:
        tries.append(1)
        raise error

    async def pause(seconds: float) -> None:
        pass

    assert once(play, fail, pause=pause).failed
    assert len(tries) == (1 if isinstance(error, ToolError) else executor_module.MAX_TRIES)


# Log and metrics


@tool
def quote(text: str) -> str:
    if text.startswith("fail"):
        raise ValueError(text)
    return f"you said {text}"


@pytest.mark.parametrize("log_content", [False, True])
def test_run_is_one_log_line_and_content_is_in_it_only_if_allowed(play: Play, *, log_content: bool) -> None:
    async def story(executor: Executor) -> None:
        await run(executor, "quote", json.dumps({"text": CANARY}), context=context(call_id="call_9"))
        await run(executor, "quote", json.dumps({"text": f"fail {CANARY}"}))

    metrics = Metrics()
    with log.captured() as lines:
        play(story, quote, metrics=metrics, log_content=log_content)
    runs = [line for line in lines if line["event"] == "tool_run"]
    assert len(runs) == 2
    assert {
        key: runs[0][key] for key in ("tool", "toolset", "call_id", "model", "key", "outcome", "failed", "tries", "bytes")
    } == {
        "tool": "quote",
        "toolset": "mine",
        "call_id": "call_1",
        "model": "fast",
        "key": None,
        "outcome": "ok",
        "failed": False,
        "tries": 1,
        "bytes": len(f"you said {CANARY}"),
    }
    assert runs[0]["ms"] >= 0
    assert (runs[1]["outcome"], runs[1]["failed"]) == ("error", True)
    assert (CANARY in str(lines)) is log_content
    assert ("arguments" in runs[0]) is log_content
    counted = samples(metrics)
    assert counted["toolrelay_tool_runs_total", "quote", "ok"] == 1
    assert counted["toolrelay_tool_runs_total", "quote", "error"] == 1
    assert counted["toolrelay_tool_run_seconds_count", "quote", ""] == 2
