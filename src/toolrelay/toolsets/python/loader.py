"""Import of a module of tools: beside the configuration file, then on the Python path."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from toolrelay.errors import ConfigurationError

_IMPORTERS = (__file__, importlib.__file__)
_BESIDE = "__toolrelay_beside__"  # marks modules that were found beside a configuration file


def load_module(name: str, directory: Path | None) -> ModuleType:
    """Import the module, or raise ConfigurationError that says what is wrong with it."""
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{name!r} is not the name of a module; write it without .py, such as my_tools")
    try:
        if directory is not None:
            _import_beside(name.partition(".")[0], directory)
        return importlib.import_module(name)
    except (ConfigurationError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 -- SystemExit too is a mistake of the module
        if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            beside = f"in {directory}, beside the configuration file, or " if directory else ""
            raise ConfigurationError(
                f"there is no module {error.name} {beside}on the Python path; write it, or correct the name"
            ) from None
        raise ConfigurationError(_describe(name, error)) from None


def _import_beside(top: str, directory: Path) -> None:
    """Import a module or package of the directory, if it has one of this name, before the Python path is searched."""
    path = str(directory)
    if path not in sys.path:
        sys.path.append(path)  # so that it can import its neighbours; at the end, where nothing is hidden by them
    importlib.invalidate_caches()
    spec = PathFinder.find_spec(top, [path])
    if spec is None or spec.origin is None or spec.loader is None:
        return
    loaded = sys.modules.get(top)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == spec.origin:
            return
        if not hasattr(loaded, _BESIDE):
            taken_by = getattr(loaded, "__file__", None) or "Python itself"
            raise ConfigurationError(f"the name of {spec.origin} is taken by {taken_by}; give the file another name")
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
    _execute(spec)


def _execute(spec: ModuleSpec) -> None:
    module = importlib.util.module_from_spec(spec)
    setattr(module, _BESIDE, True)
    sys.modules[spec.name] = module
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise


def _describe(name: str, error: BaseException) -> str:
    """Say where the import failed and why, in one line."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}; correct it"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename not in _IMPORTERS and not frame.filename.startswith("<frozen")]
    places = dict.fromkeys(f"{frame.filename}, line {frame.lineno}" for frame in (*own[:1], *own[-1:]))
    place = ", from ".join(reversed(places)) or name
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"the module {name} cannot be imported: {place}: {reason}; correct it, or try `python -c 'import {name}'`"
