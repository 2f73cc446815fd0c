"""Modules of tools: where they are found, and what is wrong with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.toolsets import modules
from tests.toolsets.modules import WriteModule
from toolrelay.errors import ConfigurationError
from toolrelay.toolsets.python import read_module

# pytest finds fixtures by the names of the module.
write_module = modules.write_module


def refusal(name: str, directory: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_module(name, directory)
    return caught.value.message


def test_module_beside_the_configuration_file_comes_before_the_python_path(
    write_module: WriteModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    source = "from toolrelay import tool\n@tool\ndef {}() -> str: ...\n"
    for name in ("both", "only_there"):
        (elsewhere / f"{name}.py").write_text(source.format("there"))
    monkeypatch.syspath_prepend(str(elsewhere))
    write_module(source.format("here"), "both")
    assert [tool.definition.name for tool in read_module("both", tmp_path)] == ["here"]
    assert [tool.definition.name for tool in read_module("only_there", tmp_path)] == ["there"]


def test_module_imports_its_neighbours_also_when_it_runs(write_module: WriteModule, tmp_path: Path) -> None:
    write_module("VALUE = 'from the neighbour'", "neighbour_a")
    write_module("VALUE = 'from the other'", "neighbour_b")
    name = write_module("""
        import neighbour_a
        @tool
        def read() -> str:
            import neighbour_b
            return f"{neighbour_a.VALUE}, {neighbour_b.VALUE}"
    """)
    (found,) = read_module(name, tmp_path)
    assert found.function() == "from the neighbour, from the other"


def test_module_of_a_package_is_found(tmp_path: Path, write_module: WriteModule) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "words.py").write_text("WORD = 'hello'")
    (tmp_path / "my_package" / "tools.py").write_text(
        "from toolrelay import tool\nfrom .words import WORD\n@tool\ndef greet() -> str:\n    return WORD\n"
    )
    (found,) = read_module("my_package.tools", tmp_path)
    assert found.function() == "hello"


def test_imported_tools_are_tools_and_an_alias_is_not_a_second_one(write_module: WriteModule, tmp_path: Path) -> None:
    write_module("@tool\ndef shared() -> str: ...", "library")
    name = write_module("from library import shared\nalias = shared\n@tool\ndef own() -> str: ...")
    assert sorted(tool.definition.name for tool in read_module(name, tmp_path)) == ["own", "shared"]


def test_same_module_can_be_read_twice(write_module: WriteModule, tmp_path: Path) -> None:
    name = write_module("@tool\ndef one() -> str: ...")
    assert [tool.function for tool in read_module(name, tmp_path)] == [tool.function for tool in read_module(name, tmp_path)]


@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        ("1 / 0", 2, "ZeroDivisionError: division by zero; correct it"),
        ("def f(:", 2, "SyntaxError: "),
        ("import sys\nsys.exit('bye')", 3, "SystemExit: bye; correct it"),
        ("raise BaseException", 2, "BaseException; correct it"),
        ("import no_such_library", 2, "ModuleNotFoundError: No module named 'no_such_library'"),
        ("@tool\nclass C: ...", 2, "TypeError: @tool marks functions; found <class 'my_tools.C'>"),
        ("@tool(nmae='x')\ndef f() -> str: ...", 2, "TypeError: "),
    ],
)
def test_module_that_does_not_import_is_reported_with_its_line(
    write_module: WriteModule, tmp_path: Path, source: str, line: int, problem: str
) -> None:
    name = write_module(source)
    found = refusal(name, tmp_path)
    assert problem in found
    assert f"{tmp_path / name}.py, line {line}: " in found
    assert "\n" not in found
    assert refusal(name, tmp_path) == found


def test_missing_module_is_reported_with_the_directory(tmp_path: Path) -> None:
    assert refusal("no_such_tools", tmp_path) == (
        f"there is no module no_such_tools in {tmp_path}, beside the configuration file, or on the Python path; "
        "write it, or correct the name"
    )


@pytest.mark.parametrize("name", ["", "my_tools.py/", "../tools", "a b", ".tools", "a..b"])
def test_module_must_be_a_name(tmp_path: Path, name: str) -> None:
    assert "is not the name of a module; write it without .py" in refusal(name, tmp_path)


def test_name_of_another_module_is_refused(write_module: WriteModule, tmp_path: Path) -> None:
    write_module("@tool\ndef f() -> str: ...", "json")
    found = refusal("json", tmp_path)
    assert f"the name of {tmp_path}/json.py is taken by " in found
    assert found.endswith("give the file another name")


def test_module_without_tools_is_refused(write_module: WriteModule, tmp_path: Path) -> None:
    name = write_module("def f() -> str: ...")
    assert refusal(name, tmp_path).endswith(
        "my_tools.py has no tools; mark its functions with @tool (`from toolrelay import tool`)"
    )


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ("f(x)", "the parameter x has no type hint; write one, such as `x: str`"),
        ("f(x=1)", "the parameter x has no type hint; write one, such as `x: str`"),
        ("f(*names: str)", "a tool has no *names; write a parameter for each value, or `names: list[str]`"),
        ("f(**more: str)", "a tool has no **more; write a parameter for each value, or `more: dict[str, str]`"),
        ("f(x: str, /)", "the parameter x is positional-only, but arguments are passed by name; remove the `/`"),
        ("f(x: object)", "the type of the parameter x cannot be used: type <class 'object'> is not supported; use str, int,"),
        ("f(x: Node)", "the type of the parameter x cannot be used: the type Node contains itself; use str"),
        ("f(x: 'Unknown')", "its type hints cannot be read: NameError: name 'Unknown' is not defined; import their names"),
        ("f(x: Annotated[str, Meta(pattern='(?P<a>b)(?P=a)(?#x)')])", "no JSON schema can check its types"),
    ],
)
def test_function_that_cannot_be_a_tool_is_reported(
    write_module: WriteModule, tmp_path: Path, signature: str, problem: str
) -> None:
    name = write_module(
        "from typing import Annotated\nfrom msgspec import Meta, Struct\n"
        "class Node(Struct):\n    next: 'Node | None' = None\n"
        f"@tool\ndef {signature}: ...\n"
    )
    found = refusal(name, tmp_path)
    assert found.startswith(f"{tmp_path / name}.py, line 6: f: ")
    assert problem in found


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("timeout_seconds=0", "@tool(timeout_seconds=…): expected a number of seconds above 0, a year at most, found 0"),
        ("name=5", "@tool(name=…): expected a string, found 5"),
        ("idempotent='yes'", "@tool(idempotent=…): expected True or False, found 'yes'"),
        ("hints=[1]", "@tool(hints=…): expected a dictionary, found [1]"),
    ],
)
def test_invalid_option_is_reported(write_module: WriteModule, tmp_path: Path, options: str, problem: str) -> None:
    assert refusal(write_module(f"@tool({options})\ndef f() -> str: ..."), tmp_path).endswith(f": f: {problem}")


def test_generator_is_refused(write_module: WriteModule, tmp_path: Path) -> None:
    assert "this is a generator; return a list" in refusal(write_module("@tool\ndef f() -> str:\n    yield 1"), tmp_path)


@pytest.mark.parametrize("second", ["@tool\ndef f(x: int) -> str: ...", "@tool(name='f')\ndef g() -> str: ..."])
def test_two_functions_of_one_name_are_refused(write_module: WriteModule, tmp_path: Path, second: str) -> None:
    found = refusal(write_module(f"@tool\ndef f() -> str: ...\n{second}"), tmp_path)
    assert f"my_tools.py, line 4: {'g' if 'g()' in second else 'f'}: " in found
    assert "my_tools.py, line 2: f has this name, too; rename one, or use @tool(name=…)" in found


def test_all_problems_of_a_module_are_reported_together(write_module: WriteModule, tmp_path: Path) -> None:
    found = refusal(write_module("@tool\ndef f(x): ...\n@tool\ndef g(*a: int): ..."), tmp_path)
    assert len(found.splitlines()) == 2


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys, toolrelay; print(*sorted({'msgspec', 'asyncio', 'toolrelay.toolsets'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    package: Any = sys.modules["toolrelay"]
    with pytest.raises(AttributeError, match="has no attribute 'tol'"):
        _ = package.tol
