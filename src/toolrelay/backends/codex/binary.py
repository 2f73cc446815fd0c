"""Where the Codex binary is, and whether it is one that this gateway was tested with."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolrelay import log
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError

OLDEST = (0, 163)
NEWEST = (0, 166)
PACKAGE = "codex_cli_bin"
ANSWER_SECONDS = 20.0

_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)")


class Binary(Struct, frozen=True, kw_only=True):
    """`features` are the names that its configuration may turn off, `catalog` the models that it knows."""

    path: str
    version: tuple[int, int, int]
    features: frozenset[str] = frozenset()
    catalog: tuple[JsonObject, ...] = ()


def find_binary(configured: str = "", search_path: str | None = None) -> str:
    """The one that is configured; else the one of the package; else the first one on the PATH."""
    if configured:
        found = shutil.which(str(Path(configured).expanduser()), path=search_path)
        if found is None:
            raise ConfigurationError(f"TOOLRELAY_CODEX: {configured} is not a program that can be run")
        return _absolute(found)
    found = _packaged() or shutil.which("codex", path=search_path)
    if found is None:
        raise ConfigurationError(
            "The Codex binary was not found. Install it with `pip install 'toolrelay[codex]'`, "
            "or put `codex` on the PATH, or name it in TOOLRELAY_CODEX."
        )
    return _absolute(found)


def _absolute(path: str) -> str:
    """It is run from another directory."""
    return str(Path(path).absolute())


def _packaged() -> str | None:
    spec = util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return shutil.which("codex", path=str(Path(spec.submodule_search_locations[0], "bin")))


async def survey(path: str, environ: Mapping[str, str]) -> Binary:
    """Asks the binary what it is. One that is too old is refused; one that is newer than the tested ones is tried."""
    return await asyncio.to_thread(_survey, path, environ)


def _survey(path: str, environ: Mapping[str, str]) -> Binary:
    version = _checked(path, _said(path, environ, "--version").decode(errors="replace"))
    features = _said(path, environ, "features", "list").decode(errors="replace")
    return Binary(
        path=path,
        version=version,
        features=frozenset(line.split()[0] for line in features.splitlines() if line.strip()),
        catalog=_catalog(_said(path, environ, "debug", "models", "--bundled")),
    )


def _checked(path: str, said: str) -> tuple[int, int, int]:
    found = _VERSION.search(said)
    if found is None:
        raise ConfigurationError(f"{path}: does not look like Codex: to `--version` it says {said[:100].strip()!r}")
    version = (int(found[1]), int(found[2]), int(found[3]))
    name, tested = _dotted(version), f"{_dotted(OLDEST)} to {_dotted(NEWEST)}"
    if version[:2] < OLDEST:
        raise ConfigurationError(f"{path}: Codex {name} is too old; this version of Toolrelay was tested with {tested}")
    if version[:2] > NEWEST:
        log.warning("codex_untested", version=name, tested=tested, path=path)
    return version


def _catalog(data: bytes) -> tuple[JsonObject, ...]:
    """Of no use if it cannot be read: then a model is described in general terms."""
    try:
        return msgspec.json.decode(data, type=_Catalog).models
    except msgspec.MsgspecError:
        return ()


class _Catalog(Struct):
    models: tuple[dict[str, Any], ...]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _said(path: str, environ: Mapping[str, str], *arguments: str) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 -- it is what the configuration names
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        command = " ".join(arguments)
        raise ConfigurationError(f"{path}: no answer to `{command}` within {ANSWER_SECONDS:g} seconds") from None
    return done.stdout
