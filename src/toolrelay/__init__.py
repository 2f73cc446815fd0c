"""Toolrelay: real tool calling for every client on every model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolrelay.errors import ToolError
    from toolrelay.toolsets.base import ToolContext
    from toolrelay.toolsets.python import tool

__version__ = "0.1.0"
__all__ = ["ToolContext", "ToolError", "__version__", "tool"]

_MODULES = {"ToolContext": "toolrelay.toolsets.base", "ToolError": "toolrelay.errors", "tool": "toolrelay.toolsets.python"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a class or a function
    """Import what modules of tools use when they ask for it, so that importing this package stays fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 -- as above

    return getattr(importlib.import_module(_MODULES[name]), name)
