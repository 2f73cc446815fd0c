"""Every install line of the documents, run as it is written in a copy of the clone (E3).

Nothing is downloaded. The packages come from wheels with the names, versions and requirements of the installed ones, so that pip
and uv resolve and install as from an index that has no Toolrelay. Only what builds Toolrelay has content; Python finds the other
modules in the development environment.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
EXTRAS = {"codex": "openai_codex_cli_bin", "local": "xllamacpp"}
MESSAGES = [
    ROOT / "src/toolrelay/backends" / name for name in ("codex/binary.py", "local/backend.py")
]  # tell users what to install
INSTALLERS = "pip|pip3|python3? -m pip|pipx|uv|uvx|npm|npx"
BUILDERS = {"hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"}  # pip and uv build without PYTHONPATH
SITE = Path(pytest.__file__).parent.parent
WHEEL = b"Wheel-Version: 1.0\nGenerator: toolrelay-tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def install_lines() -> list[str]:
    """Return the lines in code blocks and in backticks that begin with an installer or with `make run`."""
    found = set()
    for page in [*PAGES, *MESSAGES]:
        text = page.read_text("utf-8")
        blocks = re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, re.DOTALL)
        candidates = [line for block in blocks for line in block.splitlines()] + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        found |= {re.sub(r"^\$ |\s+#.*$", "", line).strip() for line in candidates}
    return sorted(line for line in found if re.match(rf"(?:{INSTALLERS}) |make run\b", line))


LINES = install_lines()


def test_install_lines_are_found() -> None:
    assert {
        "pip install .",
        "pip install '.[codex]'",
        "pip install '.[local]'",
        "uvx --from . toolrelay serve",
        "make run",
        "make run CODEX=1",
    } <= set(LINES)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what git has, and what it would add."""
    folder = tmp_path_factory.mktemp("clone")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    return folder


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which Python imports everything that is installed here except Toolrelay."""
    folder = tmp_path_factory.mktemp("modules")
    for entry in SITE.iterdir():
        if not re.match(r"toolrelay|_?_editable|_toolrelay|pip\b|.*\.(dist-info|pth)$", entry.name):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    for found in distributions(path=[str(SITE)]):
        if found.name != "toolrelay":
            write_wheel(found, folder)
    return folder


def write_wheel(found: Distribution, folder: Path) -> None:
    stem = f"{re.sub(r'[-_.]+', '_', found.name).lower()}-{found.version}"
    files = {f"{stem}.dist-info/METADATA": (found.read_text("METADATA") or "").encode(), f"{stem}.dist-info/WHEEL": WHEEL}
    if found.name in BUILDERS:
        paths = [str(path) for path in found.files or () if path.suffix != ".pyc" and ".dist-info" not in str(path)]
        files |= {path: (SITE / path).read_bytes() for path in paths if not path.startswith("..")}
    rows = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    record = f"{stem}.dist-info/RECORD"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for name, content in {**files, record: "".join([*rows, f"{record},,\n"]).encode()}.items():
            wheel.writestr(name, content)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


@pytest.fixture
def environ(tmp_path: Path, modules: Path, index: Path) -> dict[str, str]:
    """The variables of a user whose installers know the wheels of `index` and nothing else."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("uv", "uvx"):
        (tools / name).symlink_to(Path(sys.executable).parent / name)
    return {
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{tools}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(modules),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for: without; uvx builds in isolation
        "PIP_NO_COMPILE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(index),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
    }


def run(line: str, clone: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line], cwd=clone, env=environ, capture_output=True, text=True, timeout=110, check=False
    )


def make_environment(folder: Path) -> None:
    """Create a virtual environment with the pip of the development environment: to install pip takes longer than to run it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/*/site-packages")
    (packages / "pip").symlink_to(SITE / "pip")
    script = folder / "bin" / "pip"
    script.write_text(f"#!{folder / 'bin' / 'python'}\nfrom pip._internal.cli.main import main\n\nraise SystemExit(main())\n")
    script.chmod(0o755)


@pytest.mark.timeout(400)  # pip builds Toolrelay for each line
def test_e3_pip_lines_install_in_a_clone(clone: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    make_environment(tmp_path / "venv")
    lines = sorted((line for line in LINES if line.startswith("pip ")), key=len)
    assert lines[0] == "pip install ."
    for number, line in enumerate(lines):
        done = run(line, clone, environ)
        assert done.returncode == 0, done.stdout + done.stderr
        assert run("toolrelay --version", clone, environ).stdout.startswith("toolrelay ")
        installed = {path.name.partition("-")[0] for path in (tmp_path / "venv").glob("lib/*/site-packages/*.dist-info")}
        assert {"toolrelay", "msgspec"} <= installed
        for extra, package in EXTRAS.items():
            assert (package in installed) == any(f"[{extra}]" in each for each in lines[: number + 1])
    assert "toolrelay" not in "".join(path.name for path in Path(environ["PIP_FIND_LINKS"]).iterdir())


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("uvx ")])
def test_e3_uvx_line_starts_the_gateway(line: str, clone: Path, environ: dict[str, str]) -> None:
    command = shlex.split(f"{line} --port 0")
    with subprocess.Popen(command, cwd=clone, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready = process.stdout.readline()
        process.terminate()
        assert ready.startswith("Toolrelay is ready at "), process.stderr.read()


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make run")])
def test_e3_make_run_installs_the_locks_and_starts_the_gateway(line: str, clone: Path, environ: dict[str, str]) -> None:
    """Printed, not run: the locks have hashes, so that nothing but an index can serve them."""
    environ |= {"PATH": f"{environ['PATH']}:{os.environ['PATH']}", "VENV": str(clone / "new")}
    commands = run(f"{line} --dry-run VENV=new", clone, environ).stdout
    locks = re.findall(r"--require-hashes -r (\S+)", commands)
    optional = {"requirements/codex.txt": "CODEX=1" in line, "requirements/local.txt": "LOCAL=0" not in line}
    assert locks == ["requirements/uv.txt", "requirements/run.txt", *(lock for lock, wanted in optional.items() if wanted)]
    assert ("toolrelay pull smollm2" in commands) == ("LOCAL=0" not in line)
    assert all((clone / lock).exists() for lock in locks)
    assert re.search(r"^exec new/bin/toolrelay serve", commands, re.MULTILINE)


def test_e3_every_line_is_run() -> None:
    assert [line for line in LINES if not line.startswith(("pip ", "uvx ", "make run"))] == []
