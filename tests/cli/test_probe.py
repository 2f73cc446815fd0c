"""`toolrelay probe`: which way of calling tools a model follows best (issue 14)."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.cli.commands import PROGRAM, Result, Run, configure
from tests.model_server import ModelServer, call, delta, end, error, frame
from tests.upstream import LAST_CHUNK, Gate, Player, ReceivedRequest, Script, chunk, stream_head
from toolrelay.cli.probe.measuring import TaskOutcome, WayOutcome, choose_ways, find_best, may_cost
from toolrelay.cli.probe.report import advice, suggestion
from toolrelay.core.messages import Call
from toolrelay.dialects.base import discover
from toolrelay.settings import ModelSettings

KEY = "sk-secret-1234"
EVENT = {"title": 'Smørrebrød "deluxe"', "minutes": 45, "guests": [{"name": "Zoë", "vip": True}, {"name": "José", "vip": False}]}
# What a good model answers, by a part of the question: a call, or a text.
ANSWERS: dict[str, tuple[str, dict[str, Any]] | str] = {
    "weather in Paris": ("get_weather", {"city": "Paris"}),
    "time is it in Tokyo": ("get_time", {"city": "Tokyo"}),
    "the single word hello": "Hello!",
    "Smørrebrød": ("create_event", EVENT),
    "How warm": "It is 17 degrees there.",
}


def streamed(*frames: bytes) -> bytes:
    return stream_head() + chunk(b"".join(frames)) + LAST_CHUNK


def says(text: str) -> bytes:
    return streamed(delta(text), end())


def find_answer(request: ReceivedRequest) -> tuple[str, dict[str, Any]] | str:
    asked = json.dumps(json.loads(request.body)["messages"], ensure_ascii=False)
    return next(answer for question, answer in ANSWERS.items() if question in asked)


def native(request: ReceivedRequest) -> Script:
    """Answer as a model with native calls does."""
    answer = find_answer(request)
    if "tools" not in json.loads(request.body):
        return (says(answer if isinstance(answer, str) else "I cannot."),)
    if isinstance(answer, str):
        return (says(answer),)
    return (streamed(call(answer[0], json.dumps(answer[1])), end("tool_calls")),)


def printing(dialect: str) -> Player:
    """Answer as a model that prints calls in one form only, whatever it is told, on a server that refuses tools."""

    def play(request: ReceivedRequest) -> Script:
        answer = find_answer(request)
        if "tools" in json.loads(request.body):
            return (error(400, "this model does not support tools"),)
        if isinstance(answer, str):
            return (says(answer),)
        made = Call(id="call_1", name=answer[0], arguments=json.dumps(answer[1], ensure_ascii=False))
        return (says(discover()[dialect].render_calls([made])),)

    return play


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


def configured(server: ModelServer, settings: str = "") -> None:
    configure(f'[models.home]\nprovider = "compatible"\nbase_url = "{server.url}/v1"\napi_key = "{KEY}"\n{settings}\n')


def probe(run: Run, server: ModelServer, player: Player, *arguments: str, settings: str = "") -> tuple[Result, int]:
    """Return the result, and how many requests were made."""
    first = server.enqueue(player)
    configured(server, settings)
    result = run("probe", "home", *arguments)
    assert KEY not in result.out + result.err
    return result, len(server.requests) - first


def row(out: str, way: str) -> list[str]:
    line = next(line for line in out.splitlines() if line.startswith(way))
    return line.removeprefix(way).replace("*", " ").split()[:5]


@pytest.mark.parametrize("dialect", ["hermes", "pythonic", "mistral"])
def test_dialect_that_the_model_follows_is_suggested(run: Run, server: ModelServer, dialect: str) -> None:
    result, requests = probe(run, server, printing(dialect), "--dialects", f"native,sealed,{dialect}")
    assert (result.code, requests) == (0, 11)  # native was refused at once
    assert "3 ways, 15 requests at most" in result.err
    assert row(result.out, dialect) == ["yes"] * 5
    assert row(result.out, "native") == ["error", "-", "-", "-", "-"]
    assert row(result.out, "sealed") == ["no", "no", "yes", "no", "yes"]
    advice = f'Best: {dialect}, 5 of 5. Write into the configuration:\n\n[models.home]\ntool_calling = "{dialect}"\n'
    assert result.out.endswith(advice)


def test_native_model_needs_no_change(run: Run, server: ModelServer) -> None:
    result, requests = probe(run, server, native, "--dialects", "native,hermes")
    assert (result.code, requests) == (0, 10)
    assert (row(result.out, "native"), row(result.out, "hermes")) == (["yes"] * 5, ["no", "no", "yes", "no", "yes"])
    assert result.out.endswith('Best: native, 5 of 5. Nothing to change: tool_calling = "auto" uses it.\n')


def test_default_ways_contain_the_familys_own(run: Run, server: ModelServer) -> None:
    result, _ = probe(run, server, printing("glm45"), "--json", settings='model = "GLM-4.5-Air"')
    report = json.loads(result.out)
    assert [way["tool_calling"] for way in report["ways"]] == [
        "native",
        "glm45",
        "sealed",
        "hermes",
        "llama3_json",
        "qwen3_coder",
    ]
    assert (report["model"], report["best"], report["suggestion"]) == ("home", "glm45", 'tool_calling = "glm45"')
    assert report["interrupted"] is False
    assert [task["passed"] for task in report["ways"][1]["tasks"]] == [True] * 5
    assert report["ways"][0]["tasks"][0] == {
        "task": "call",
        "passed": False,
        "problem": "this model does not support tools",
        "answered": False,
        "seconds": report["ways"][0]["tasks"][0]["seconds"],
    }


def test_demo_model_makes_calls(run: Run) -> None:
    result = run("probe", "demo", "--dialects", "native")
    assert (result.code, row(result.out, "native")[:3]) == (0, ["yes", "yes", "yes"])


def test_model_that_never_calls_exits_with_3(run: Run, server: ModelServer) -> None:
    result, _ = probe(run, server, lambda _: (says("No."),), "--dialects", "native,hermes")
    assert result.code == 3
    assert "made no call in any of these ways" in result.out


def test_model_that_does_not_answer_is_given_up(run: Run, server: ModelServer) -> None:
    result, requests = probe(run, server, lambda _: (error(500, "out of memory"),))
    assert (result.code, requests) == (2, 2)
    assert "native, call: out of memory" in result.out
    assert "The model does not answer" in result.out


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_hostile_output_is_escaped(run: Run, server: ModelServer, arguments: tuple[str, ...]) -> None:
    hostile = "\x1b[2J\u202eevil\x07"
    made = streamed(frame({"tool_calls": [{"index": 0, "id": "a", "function": {"name": hostile, "arguments": "{}"}}]}), end())
    answers = iter([made, *[says(hostile)] * 4])
    result, _ = probe(run, server, lambda _: (next(answers),), "--dialects", "native", *arguments)
    assert not {"\x1b", "\u202e", "\x07"} & set(result.out + result.err)
    assert "evil" in result.out


def test_ctrl_c_shows_what_was_measured(server: ModelServer) -> None:
    gate = Gate()
    answers: list[Script] = []

    def play(request: ReceivedRequest) -> Script:
        answers.append(())
        return native(request) if len(answers) <= 2 else (stream_head(), gate)

    server.enqueue(play)
    configured(server)
    arguments = [*PROGRAM, "probe", "home", "--dialects", "native,hermes"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        gate.reached.result(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    gate.open()
    assert process.returncode == 130, err
    assert "interrupted after 2 of 10 requests" in err
    assert "Traceback" not in err
    assert row(out, "native") == ["yes", "yes", "-", "-", "-"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("hme",), "there is no model hme; did you mean home?"),
        (("home", "--dialects", "hermse"), "there is no dialect hermse; did you mean hermes?"),
        (("home", "--dialects", " ,"), "--dialects needs at least one name"),
        (("home", "--dialects", "hermes", "--all"), "leave one of them out"),
        (("home", "--timeout", "0"), "--timeout"),
    ],
)
def test_misuse_exits_with_2(run: Run, server: ModelServer, arguments: tuple[str, ...], problem: str) -> None:
    configured(server)
    code, out, err = run("probe", *arguments)
    assert (code, out) == (2, "")
    assert problem in err


def test_wrong_configuration_exits_with_1(run: Run) -> None:
    configure('[models.home]\nprovider = "openai"\nkeep_alive = "1h"\n')
    code, _, err = run("probe", "home")
    assert (code, "models.home.keep_alive" in err) == (1, True)


def test_all_means_every_dialect() -> None:
    model = ModelSettings(name="m", provider="compatible", tool_calling="react")
    assert set(choose_ways(model, everything=True)) == {"native", *discover()}
    assert choose_ways(model)[:3] == ("native", "react", "sealed")


def test_choice_of_a_local_model_is_tried_first_and_needs_no_change() -> None:
    small = ModelSettings(name="local", provider="local", model="smollm2")
    assert choose_ways(small)[:3] == ("auto", "native", "sealed")
    assert "auto" not in choose_ways(ModelSettings(name="m", provider="local", model="qwen3-4b.gguf"))
    assert advice(small, [outcome("auto", *[""] * 5)]).endswith('Nothing to change: tool_calling = "auto" uses it.')


def test_native_is_suggested_where_auto_is_not_native() -> None:
    ways = [outcome("native", *[""] * 5)]
    assert suggestion(ModelSettings(name="m", provider="local", model="qwen3-4b.gguf"), ways) == 'tool_calling = "native"'
    assert not suggestion(ModelSettings(name="m", provider="compatible"), ways)


@pytest.mark.parametrize(("provider", "costs"), [("demo", False), ("local", False), ("openai", True)])
def test_only_models_of_others_may_cost_money(provider: str, costs: bool) -> None:  # noqa: FBT001 -- a parameter
    assert may_cost(ModelSettings(name="m", provider=provider)) == costs


def outcome(way: str, *problems: str) -> WayOutcome:
    names: Sequence[str] = ("call", "choice", "no call", "arguments", "result")
    return WayOutcome(
        tool_calling=way, outcomes=tuple(TaskOutcome(task=name, problem=each) for name, each in zip(names, problems, strict=True))
    )


def test_best_way_passes_most_and_the_first_of_equals_counts() -> None:
    worse, first, second = (
        outcome("native", "", "no", "no", "no", "no"),
        outcome("sealed", "", "", "", "no", ""),
        outcome("hermes", "", "", "", "", "no"),
    )
    silent = outcome("react", "no", "", "", "", "")
    assert find_best([worse, silent, first, second]) is first
    assert find_best([silent]) is None


def test_shell_completes_models_and_dialects(server: ModelServer) -> None:
    configured(server)
    for words, expected in (("toolrelay probe ho", "home"), ("toolrelay probe home --dialects native,herm", "native,hermes")):
        last = words.rpartition(" ")[2]
        environ = {"_TOOLRELAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "PATH": "/"}
        done = subprocess.run(PROGRAM, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert expected in done.stdout.split(), (last, done)
