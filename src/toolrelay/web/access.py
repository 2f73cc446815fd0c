"""Access to the gateway: authentication, and limits on requests per minute."""

from __future__ import annotations

from toolrelay.errors import ToolrelayError
from toolrelay.runtime.limits import RateLimiter, client_network, rate_limit_error
from toolrelay.web.auth import Authenticator, Identity
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.sessions import Sessions

_HEADERS = b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\nx-ratelimit-reset-requests: %.3fs\r\n"
_EXPOSED = (
    b"access-control-expose-headers: x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests\r\n"
)


class Access:
    """Authenticates requests and counts them against their limits.

    Requests with a key count against the key, others against the client's address. Refused requests count against the address
    too, separately: a web page that is refused must not use up the limit of the user whose browser shows it. A valid key works
    from an address that is over its limit, because all clients behind one proxy have the same address.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        limiter: RateLimiter | None = None,
        *,
        requests_per_minute: int = 0,
        sessions: Sessions | None = None,
    ) -> None:
        """`requests_per_minute` is for those without a limit of their own. A limiter is made when one is needed."""
        self._sessions = sessions
        self._authenticator = authenticator
        self._limiter = limiter
        self._requests_per_minute = requests_per_minute

    async def admit(self, exchange: Exchange) -> Identity:
        """Return who sent the request, or raise the error for those who may not send it, or not now."""
        try:
            identity = await self.identify(exchange)
        except ToolrelayError:
            await self.count_refused(exchange)
            raise
        limit = identity.requests_per_minute or self._requests_per_minute
        if limit and identity.key is None:
            await self._count(exchange, "address", _network(exchange), limit)
        elif limit and identity.key is not None:
            await self._count(exchange, "key", identity.key, limit)
        return identity

    async def count_refused(self, exchange: Exchange) -> None:
        """Count a request that is refused. Raise a 429 if there were too many from its address."""
        if self._requests_per_minute:
            await self._count(exchange, "refused", _network(exchange), self._requests_per_minute)

    async def identify(self, exchange: Exchange) -> Identity:
        """Return who sent the request, without counting it."""
        if b"cookie" in exchange.headers and self._sessions is not None:
            identity = await self._sessions.identify(exchange)
            if identity is not None:
                return identity
        return self._authenticator.identify(exchange.headers)

    async def _count(self, exchange: Exchange, kind: str, name: str, limit: int) -> None:
        if self._limiter is None:
            self._limiter = RateLimiter()
        allowance = await self._limiter.count(kind, name, limit)
        exchange.response_headers += _HEADERS % (allowance.limit, allowance.remaining, allowance.reset_seconds)
        if b"origin" in exchange.headers:
            exchange.response_headers += _EXPOSED
        if allowance.is_exceeded:
            raise rate_limit_error(allowance, "this key" if kind == "key" else "this address")


def _network(exchange: Exchange) -> str:
    address = exchange.client_address
    return "unknown" if address is None else client_network(address[0])
