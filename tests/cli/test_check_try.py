"""`toolrelay check --try`: one real turn with a tool (E10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.commands import Result, Run, configure
from tests.model_server import ModelServer, call, delta, end, error
from tests.upstream import LAST_CHUNK, Step, chunk, stream_head
from toolrelay.cli.trials import find_printed_dialects
from toolrelay.core.messages import Call
from toolrelay.dialects.base import discover

ARGUMENTS = '{"city": "Paris"}'
HERMES = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
BLOCK = "<use_tool>\n<name>get_weather</name>\n<city>Paris</city>\n</use_tool>"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def says(text: str) -> bytes:
    return stream_head() + chunk(delta(text) + end()) + LAST_CHUNK


def makes(name: str, arguments: str) -> bytes:
    return stream_head() + chunk(call(name, arguments) + end("tool_calls")) + LAST_CHUNK


def try_model(run: Run, server: ModelServer, settings: str, *answers: Step) -> tuple[int, list[str]]:
    """Return the exit code and the cells of the model's row."""
    server.enqueue(*answers)
    configure(f'[models.fast]\nprovider = "compatible"\nbase_url = "{server.url}/v1"\napi_key = "sk-secret-1234"\n{settings}\n')
    result: Result = run("check", "--try", "fast")
    assert "sk-secret" not in result.out + result.err
    header, row = result.out.splitlines()
    assert header.split("  ")[0] == "MODEL"
    return result.code, [cell.strip() for cell in row.split("  ") if cell.strip()]


def test_native_call_needs_no_change(run: Run, server: ModelServer) -> None:
    code, cells = try_model(run, server, "", makes("get_weather", ARGUMENTS))
    name, answered, source, simulated, first, whole, advice = cells
    assert (code, name, answered, source, simulated, advice) == (0, "fast", "yes", "native", "nothing", "nothing")
    assert float(first) <= float(whole)


@pytest.mark.parametrize(
    ("settings", "printed"),
    [('tool_calling = "hermes"', HERMES), ('printed_calls = "catch"', BLOCK), ('model = "qwen3"', HERMES)],
)
def test_printed_call_is_read_from_text(run: Run, server: ModelServer, settings: str, printed: str) -> None:
    code, cells = try_model(run, server, settings, says(printed))
    assert (code, cells[2], cells[-1]) == (0, "read from text", "nothing")
    assert cells[3].startswith("calls (")


def test_everything_that_is_simulated_is_listed(run: Run, server: ModelServer) -> None:
    server.enqueue(makes("get_weather", ARGUMENTS), says(HERMES))
    table = f'provider = "xai"\nbase_url = "{server.url}/v1"\n'
    configure(f'[models.one]\n{table}[models.two]\n{table}tool_calling = "hermes"\n')
    _, one, two = run("check", "--try").out.splitlines()
    assert ("  stop  " in one, "  calls (hermes), stop  " in two) == (True, True)


def test_errors_of_servers_are_escaped(run: Run, server: ModelServer) -> None:
    _, cells = try_model(run, server, "", error(400, "\x1b[2Jevil\u202e"))
    assert cells[-1] == "\\u001b[2Jevil\\u202e"


@pytest.mark.parametrize(
    ("settings", "text", "advice"),
    [
        ("", "It is sunny.", 'it does not call tools: try models.fast.tool_calling = "sealed"'),
        ("", BLOCK, 'it prints calls: set models.fast.printed_calls = "catch"'),
        ('tool_calling = "hermes"', "It is sunny.", "it does not print calls as hermes"),
        ("", "[TOOL_CALLS]get_weather" + ARGUMENTS, "it prints calls as mistral"),
    ],
)
def test_answer_without_a_call_says_what_to_change(run: Run, server: ModelServer, settings: str, text: str, advice: str) -> None:
    code, cells = try_model(run, server, settings, says(text))
    assert (code, cells[1], cells[2]) == (3, "yes", "none")
    assert cells[-1].startswith(advice)


def test_server_that_refuses_tools_is_named(run: Run, server: ModelServer) -> None:
    refusal = error(400, "fast does not support tools")
    code, cells = try_model(run, server, 'model = "qwen3"', refusal, says(HERMES))
    assert (code, cells[2]) == (0, "read from text")
    assert cells[-1] == 'the server refuses tools: set models.fast.tool_calling = "hermes"'


def test_call_with_wrong_arguments_is_not_good(run: Run, server: ModelServer) -> None:
    code, cells = try_model(run, server, "", makes("get_weather", '{"town": 1}'))
    assert (code, cells[2]) == (3, "wrong")


def test_model_that_fails_exits_with_2_and_says_why(run: Run, server: ModelServer) -> None:
    code, cells = try_model(run, server, "", error(400, "wrong key sk-secret-1234"))
    assert (code, cells[1], cells[2]) == (2, "NO", "-")
    assert "wrong key" in cells[-1]


def test_all_configured_models_are_tried_without_a_name(run: Run) -> None:
    configure('[models.one]\nprovider = "demo"\n[models.two]\nprovider = "demo"\ntool_calling = "off"\n')
    code, out, _ = run("check", "--try")
    rows = [line.split()[:3] for line in out.splitlines()[1:]]
    assert (code, rows) == (0, [["one", "yes", "native"], ["two", "yes", "off"]])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--try", "dmeo"), "there is no model dmeo; did you mean demo?"),
        (("demo",), "models are named only with --try"),
        (("--try", "--offline"), "leave one of them out"),
    ],
)
def test_misuse_exits_with_2(run: Run, arguments: tuple[str, ...], problem: str) -> None:
    configure('[models.demo]\nprovider = "demo"\n')
    code, out, err = run("check", *arguments)
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize("name", sorted(set(discover()) - {"sealed"}))
def test_printed_call_of_every_dialect_is_recognised(name: str) -> None:
    printed = discover()[name].render_calls([Call(id="call_1", name="get_weather", arguments=ARGUMENTS)])
    assert name in find_printed_dialects(printed)
