"""opencode as a program that reaches nothing but this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

BINARY = Path(__file__).parent.parent / "node" / "node_modules" / "opencode-linux-x64-baseline" / "bin" / "opencode"
_NO_PROXY_LISTENS = "http://127.0.0.1:9"


def find_opencode() -> Path:
    if not BINARY.exists():
        pytest.skip("opencode is installed only on Linux with x86-64")
    return BINARY


def opencode_environ(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Return an environment with its home and its project in `folder`. It gets at most a refusal from other machines."""
    (folder / "opencode.json").write_text(json.dumps({**config, "enabled_providers": ["toolrelay"]}))
    return {
        "HOME": str(folder),
        "PWD": str(folder),  # where it looks for its project
        **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")},
        **{
            f"OPENCODE_DISABLE_{what}": "1" for what in ("AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH", "SHARE")
        },
        "OPENCODE_PURE": "1",
        "HTTP_PROXY": _NO_PROXY_LISTENS,
        "HTTPS_PROXY": _NO_PROXY_LISTENS,
        "NO_PROXY": "127.0.0.1",
    }
