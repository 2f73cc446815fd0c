"""Models behind HTTP providers."""

from toolrelay.backends.http.backend import BACKEND, BACKOFF, HttpBackend, HttpSettings, open_backend

__all__ = ["BACKEND", "BACKOFF", "HttpBackend", "HttpSettings", "open_backend"]
