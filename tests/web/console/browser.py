"""A real Chromium: the one on the PATH, or that of the npm package @sparticuz/chromium, unpacked once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Playwright

NODE = Path(__file__).resolve().parents[2] / "node"
_NODE_BINARY = Path(sys.executable).parent / "node"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = ["--no-sandbox", "--no-zygote", "--disable-gpu"]  # tests may run as root
_FONTS = "<fontconfig><dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/font-cache</cachedir></fontconfig>"


def launch(playwright: Playwright) -> Browser:
    """Start a browser without a window."""
    installed = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if installed is not None:
        return playwright.chromium.launch(executable_path=installed, args=_FLAGS)
    folder = _unpack()
    environ: dict[str, Any] = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder / "al2023/lib"),
        "FONTCONFIG_PATH": str(folder / "fonts"),
    }
    return playwright.chromium.launch(executable_path=str(folder / "chromium"), args=_FLAGS, env=environ)


def _unpack() -> Path:
    """Return the folder with the unpacked browser. Processes wait for each other; half a folder is never used."""
    version = json.loads((NODE / "node_modules/@sparticuz/chromium/package.json").read_text())["version"]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolrelay-tests"
    folder = cache / f"chromium-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = cache / f"unfinished-{version}"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            subprocess.run([_NODE_BINARY, "chromium.mjs"], cwd=NODE, env={**os.environ, "TMPDIR": str(unfinished)}, check=True)
            fonts = _FONTS.format(folder=folder)  # the package's own names /tmp; without any font Chromium crashes
            (unfinished / "fonts/fonts.conf").write_text(fonts)
            unfinished.rename(folder)
    return folder
