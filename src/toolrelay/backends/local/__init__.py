"""Models on this machine: llama.cpp in a process of its own."""

from toolrelay.backends.local.backend import BACKEND, LocalBackend
from toolrelay.backends.local.settings import LocalSettings

__all__ = ["BACKEND", "LocalBackend", "LocalSettings"]
