"""The server that a URL names."""

from __future__ import annotations

from msgspec import Struct


class Origin(Struct, frozen=True, kw_only=True):
    secure: bool
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self._bracketed}:{self.port}"

    @property
    def authority(self) -> str:
        """The Host header: without the scheme's default port."""
        return self._bracketed if self.port == (443 if self.secure else 80) else self.address

    @property
    def _bracketed(self) -> str:
        return f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
