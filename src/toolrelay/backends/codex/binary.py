"""The Codex binary: its path, its version, and what it supports."""

from __future__ import annotations

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

OLDEST_TESTED = (0, 163)
NEWEST_TESTED = (0, 166)
PACKAGE = "codex_cli_bin"
PROBE_SECONDS = 20.0

_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)")


class CodexBinary(Struct, frozen=True, kw_only=True):
    """`features` are the names that its configuration can turn off, `catalog` the models that it knows."""

    version: tuple[int, int, int]
    features: frozenset[str] = frozenset()
    catalog: tuple[JsonObject, ...] = ()


def find_binary(configured: str = "", search_path: str | None = None) -> str:
    """Return the absolute path of the configured binary, else of the packaged one, else of the first one on the PATH."""
    if configured:
        found = shutil.which(str(Path(configured).expanduser()), path=search_path)
        problem = f"TOOLRELAY_CODEX: {configured} is not a program that can be run"
    else:
        found = _find_packaged() or shutil.which("codex", path=search_path)
        problem = (
            "The Codex binary was not found. Install it with `pip install '.[codex]'` in Toolrelay's clone, "
            "or put `codex` on the PATH, or name it in TOOLRELAY_CODEX."
        )
    if found is None:
        raise ConfigurationError(problem)
    return str(Path(found).absolute())


def _find_packaged() -> str | None:
    spec = util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return shutil.which("codex", path=str(Path(spec.submodule_search_locations[0], "bin")))


def probe_binary(path: str, environ: Mapping[str, str]) -> CodexBinary:
    """Ask the binary for its version, features and models. Refuse one that is too old; warn of one newer than tested."""
    version = _check_version(path, _run(path, environ, "--version").decode(errors="replace"))
    features = _run(path, environ, "features", "list").decode(errors="replace")
    return CodexBinary(
        version=version,
        features=frozenset(line.split()[0] for line in features.splitlines() if line.strip()),
        catalog=_decode_catalog(_run(path, environ, "debug", "models", "--bundled")),
    )


def _check_version(path: str, output: str) -> tuple[int, int, int]:
    found = _VERSION.search(output)
    if found is None:
        raise ConfigurationError(f"{path}: does not look like Codex: to `--version` it says {output[:100].strip()!r}")
    version = (int(found[1]), int(found[2]), int(found[3]))
    tested = f"{_dotted(OLDEST_TESTED)} to {_dotted(NEWEST_TESTED)}"
    if version[:2] < OLDEST_TESTED:
        raise ConfigurationError(
            f"{path}: Codex {_dotted(version)} is too old; this version of Toolrelay was tested with {tested}"
        )
    if version[:2] > NEWEST_TESTED:
        log.warning("codex_untested", version=_dotted(version), tested=tested, path=path)
    return version


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class _Catalog(Struct):
    models: tuple[dict[str, Any], ...]


def _decode_catalog(data: bytes) -> tuple[JsonObject, ...]:
    """Return nothing if it is invalid; then models get a generic catalog entry."""
    try:
        return msgspec.json.decode(data, type=_Catalog).models
    except msgspec.MsgspecError:
        return ()


def _run(path: str, environ: Mapping[str, str], *arguments: str) -> bytes:
    try:
        command = [path, *arguments]
        return subprocess.run(  # noqa: S603 -- the configured binary
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environ, timeout=PROBE_SECONDS, check=False
        ).stdout
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        text = " ".join(arguments)
        raise ConfigurationError(f"{path}: no answer to `{text}` within {PROBE_SECONDS:g} seconds") from None
