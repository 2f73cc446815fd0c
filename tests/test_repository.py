"""Rules of the repository: lock files, licence, changelog, make targets, lint exceptions and pure packages."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = [*sorted((ROOT / "requirements").glob("*.txt")), ROOT / "tests/node/package-lock.json"]
PURE = ("core", "dialects", "parsing", "toolcalls", "wires")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def sources(*folders: str) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not {"node_modules", ".venv"} & set(path.parts)
    ]


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", text(f"requirements/{name}"), re.MULTILINE))


def package_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_locks_are_codex_dev_local_run_uv_and_node() -> None:
    assert [path.name for path in LOCKS] == ["codex.txt", "dev.txt", "local.txt", "run.txt", "uv.txt", "package-lock.json"]


@pytest.mark.parametrize("lock", LOCKS, ids=relative)
def test_lock_contains_no_url(lock: Path) -> None:
    assert (
        re.findall(
            r"[a-z+]+://|registry|pypi|npmjs|@\s*file:|--(?:extra-)?index-url|--find-links", lock.read_text(), re.IGNORECASE
        )
        == []
    )


@pytest.mark.parametrize("lock", LOCKS[:-1], ids=relative)
def test_every_python_pin_has_a_hash(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    assert entries
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_node_package_has_a_hash() -> None:
    packages = json.loads(LOCKS[-1].read_text())["packages"]
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []


def test_node_lock_has_the_exact_versions_of_package_json() -> None:
    wanted = json.loads(text("tests/node/package.json"))["dependencies"]
    packages = json.loads(LOCKS[-1].read_text())["packages"]
    assert wanted == {name: packages[f"node_modules/{name}"]["version"] for name in wanted}


def test_dev_lock_contains_the_other_locks() -> None:
    assert pins("codex.txt").items() <= pins("dev.txt").items()
    assert pins("local.txt").items() <= pins("dev.txt").items()
    assert pins("uv.txt").items() <= pins("dev.txt").items()
    assert pins("run.txt").items() <= pins("dev.txt").items()


def test_every_requirement_is_locked() -> None:
    project = tomllib.loads(text("pyproject.toml"))
    groups = project["dependency-groups"]
    wanted = project["project"]["dependencies"]
    assert {package_name(each) for each in wanted + groups["build"]} <= pins("run.txt").keys()
    for extra in ("codex", "local"):
        assert groups[extra] == project["project"]["optional-dependencies"][extra]
        assert {package_name(each) for each in groups[extra]} == pins(f"{extra}.txt").keys()
    assert {package_name(each) for group in groups.values() for each in group if isinstance(each, str)} <= pins("dev.txt").keys()


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case _:
                pass


def private_imports(path: Path) -> Iterator[str]:
    """Yield the private modules that a file imports from a package that it is not part of."""
    own = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts) if path.is_relative_to(ROOT / "src") else ""
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                modules = [f"{module}.{name.name}" for name in names]
            case _:
                continue
        for module in modules:
            found = re.match(r"(toolrelay[\w.]*?)\._(?!_)", module)
            if found and (ROOT / "src" / found[1].replace(".", "/")).is_dir() and not own.startswith(f"{found[1]}."):
                yield module


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "docs"])
def test_private_modules_are_imported_only_by_their_own_package(folder: str) -> None:
    assert [f"{relative(path)}: {module}" for path in sources(folder) for module in private_imports(path)] == []


@pytest.mark.parametrize(("folder", "with_groups"), [("src", False), ("tests", True), ("bench", True)])
def test_every_imported_package_is_a_declared_dependency(folder: str, *, with_groups: bool) -> None:
    project = tomllib.loads(text("pyproject.toml"))
    wanted = list(project["project"]["dependencies"])
    wanted += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    if with_groups:
        wanted += [each for group in project["dependency-groups"].values() for each in group if isinstance(each, str)]
    declared = {"toolrelay", *(package_name(each) for each in wanted)}
    installed = packages_distributions()
    undeclared = {
        f"{relative(path)}: {name}"
        for path in sources(folder)
        for name in imported(path)
        if name in installed and not declared & {package_name(each) for each in installed[name]}
    }
    assert undeclared == set()


def test_there_is_no_uv_lock() -> None:
    assert not (ROOT / "uv.lock").exists()


def test_licence_is_apache_2_and_complete() -> None:
    licence = text("LICENSE")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_changelog_has_an_unreleased_section() -> None:
    assert re.search(r"^## \[Unreleased\]$", text("CHANGELOG.md"), re.MULTILINE)


def test_ci_runs_what_make_check_runs() -> None:
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "set -euo pipefail" in script.read_text()
    assert script.read_text().splitlines()[-1] == "make check"


def test_readme_starts_with_make_run_and_make_test() -> None:
    first_lines = [line.split("#")[0].strip() for line in text("README.md").splitlines()[:30]]
    commands = [line for line in first_lines if line.startswith("make ")]
    assert commands[:2] == ["make run", "make test"]


def targets() -> dict[str, str]:
    return dict(re.findall(r"^([a-z]+):.*?## (.+)$", text("Makefile"), re.MULTILINE))


def test_every_phony_target_has_a_help_text() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", text("Makefile"), re.MULTILINE)
    assert phony is not None
    assert sorted(phony[1].split()) == sorted(targets())


def test_make_without_a_target_lists_the_targets() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    listed = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert [line.split(maxsplit=2)[1:] for line in listed.splitlines()] == [
        [name, help_text] for name, help_text in targets().items()
    ]


@pytest.mark.parametrize("target", targets())
def test_target_is_documented_in_contributing(target: str) -> None:
    assert f"`make {target}" in text("CONTRIBUTING.md")


def comments(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def test_every_lint_exception_has_a_reason() -> None:
    with_reason = re.compile(r"# (?:(?:ruff: )?noqa: [A-Z0-9, ]+ -- \S|type: ignore\[[a-z, -]+\]  ?# ?\S)")
    without_reason = [
        f"{relative(path)}:{line}: {comment}"
        for path in sources("src", "tests", "bench")
        for line, comment in comments(path)
        if re.search(r"#\s*(?:ruff: )?noqa|type:\s*ignore", comment) and not with_reason.search(comment)
    ]
    assert without_reason == []


def test_every_ignored_lint_rule_has_a_reason() -> None:
    lists = re.findall(r"(?:ignore|\*\") = \[\n(.*?)^\]", text("pyproject.toml"), re.DOTALL | re.MULTILINE)
    assert len(lists) == 3
    assert [line for each in lists for line in each.splitlines() if not re.search(r'^ +"[A-Z]+\d*", *# \S', line)] == []


def test_pure_packages_have_no_async_and_no_io() -> None:
    impure: list[str] = []
    for path in sources(*(f"src/toolrelay/{package}" for package in PURE)):
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                    impure.append(f"{relative(path)}:{node.lineno}: {type(node).__name__}")
                case ast.Call(func=ast.Name(id="open" | "print" | "input" | "__import__" as name)):
                    impure.append(f"{relative(path)}:{node.lineno}: {name}")
                case _:
                    pass
    assert impure == []


IMPURE = ("import os", "import asyncio", "from time import monotonic", "from toolrelay import config")


@pytest.fixture(scope="module")
def broken_contracts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the import check says about a copy of the source with an impure module in every pure package, and a private import."""
    folder = tmp_path_factory.mktemp("imports")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests/import_contracts.py", folder / "tests")
    for package in PURE:
        (folder / "src/toolrelay" / package / "_impure.py").write_text("\n".join(IMPURE) + "\n")
    (folder / "src/toolrelay/__main__.py").write_text("from toolrelay.cli import _output\n")
    ended = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder / 'src'}:{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    return ended.stdout


@pytest.mark.parametrize("line", IMPURE)
@pytest.mark.parametrize("package", PURE)
def test_impure_import_breaks_the_contract(broken_contracts: str, package: str, line: str) -> None:
    assert f"toolrelay.{package}._impure -> {line.split()[1]}" in broken_contracts


def test_import_of_a_private_module_breaks_the_contract(broken_contracts: str) -> None:
    assert "toolrelay.__main__ imports toolrelay.cli._output" in broken_contracts
