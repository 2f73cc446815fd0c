"""Toolrelay: real tool calling for every client on every model."""

__version__ = "0.1.0"
