"""Every wire in both roles: those that clients speak, and those of providers with a server half of the tests' own."""

from __future__ import annotations

from tests import gemini_server, ollama_server
from toolrelay.wires.base import discover, discover_provider_wires

FRONT_WIRES = discover()
SERVED_WIRES = FRONT_WIRES | {wire.name: wire for wire in (gemini_server.SERVED, ollama_server.SERVED)}
assert SERVED_WIRES.keys() == discover_provider_wires().keys(), "write the server half of the new wire for the tests"
