"""Who may send a request."""

from __future__ import annotations

from toolrelay.web.auth import Authenticator, Identity
from toolrelay.web.http.exchange import Exchange


class Access:
    """Authenticates requests."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def admit(self, exchange: Exchange) -> Identity:
        """Return who sent the request, or raise the error for those who may not send it."""
        return self._authenticator.identify(exchange.headers)
