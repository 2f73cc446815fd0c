"""Imports for the process from which gateways are forked: every module that one would otherwise import after each fork."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import pkgutil

import toolrelay
from toolrelay.cli import main

for module in pkgutil.walk_packages(toolrelay.__path__, "toolrelay."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
importlib.import_module("uvloop")
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["serve", "--help"])  # Typer and Rich import much when a command is called
gc.freeze()  # what was imported is never garbage: a fork has no need to look at it
