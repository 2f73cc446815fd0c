"""Models behind the Codex app-server."""

from toolrelay.backends.codex.backend import BACKEND, CodexBackend
from toolrelay.backends.codex.settings import CodexSettings

__all__ = ["BACKEND", "CodexBackend", "CodexSettings"]
