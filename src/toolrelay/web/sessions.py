"""Sessions of people who are signed in with a browser, and the one-time codes that begin them."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.errors import PolicyError, StoreError
from toolrelay.settings import LOCAL
from toolrelay.stores.access import SessionRow
from toolrelay.stores.base import Store
from toolrelay.web.auth import Authenticator, Identity, has_credentials
from toolrelay.web.http.exchange import Exchange

COOKIE = "toolrelay_session"
SESSION_SECONDS = 30 * 86_400
CODE_SECONDS = 600.0
MAX_CODES = 100
MAX_CACHED = 1024
RECHECK_SECONDS = 2.0  # after which a cached session is read again: another process may have revoked it
TOUCH_SECONDS = 300.0  # the last use is written at most this often
MAX_USER_AGENT = 120  # characters

_RANDOM_BYTES = 32
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43}")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Codes:
    """One-time codes, kept as hashes in memory. The oldest is dropped if there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiries: dict[bytes, float] = {}

    def make(self) -> str:
        code = secrets.token_urlsafe(_RANDOM_BYTES)
        if len(self._expiries) >= MAX_CODES:
            del self._expiries[next(iter(self._expiries))]
        self._expiries[sha256(code.encode()).digest()] = self._clock() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> bool:
        """Return whether the code is valid. It no longer is after this."""
        expiry = self._expiries.pop(sha256(code.encode("utf-8", "replace")).digest(), None)
        return expiry is not None and self._clock() < expiry


class _Cached(Struct, frozen=True):
    row: SessionRow
    read_at: float


class Sessions:
    """Begins, finds and revokes sessions. The store has only the hashes of their tokens.

    A session ends when it expires, when it is revoked, and when the key that began it is changed or removed.
    """

    def __init__(
        self,
        store: Store,
        authenticator: Authenticator,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._authenticator = authenticator
        self._clock = clock
        self._monotonic = monotonic
        self._cache: dict[str, _Cached] = {}
        self._revocations = 0

    async def begin(self, identity: Identity, credential: str, user_agent: str) -> tuple[str, SessionRow]:
        """Begin a session, and return its token, which is not kept. `credential` is that of the key, or empty."""
        token = secrets.token_urlsafe(_RANDOM_BYTES)
        now = self._clock()
        row = SessionRow(
            id=f"sess_{secrets.token_hex(12)}",
            digest=_digest(token.encode()),
            owner=identity.key or LOCAL,
            credential=credential,
            may_approve=identity.may_approve,
            user_agent=_shorten(user_agent),
            created_at=now,
            last_used_at=now,
            expires_at=now + SESSION_SECONDS,
        )
        await self._store.add_session(row)
        return token, row

    async def identify(self, exchange: Exchange) -> Identity | None:
        """Return who is signed in in the browser that sent a request. None: nobody, or the cookie does not count.

        It does not count beside a key, nor for a page of another origin. Raise a 403 if such a page wants to change something.
        """
        headers = exchange.headers
        if has_credentials(headers):
            return None
        found = await self.find(headers)
        if found is None:
            return None
        identity, row = found
        self._authenticator.check_local(headers)
        if not is_same_origin(exchange):
            if exchange.method in _READING:
                return None
            raise foreign_request()
        self._authenticator.note_use(identity)
        await self._touch(row)
        return identity

    async def find(self, headers: Mapping[bytes, bytes]) -> tuple[Identity, SessionRow] | None:
        """Return the session of a request's cookie and who may use it, wherever the request comes from."""
        token = _cookie_token(headers)
        row = None if token is None else await self._load(_digest(token))
        if row is None or self._clock() >= row.expires_at:
            return None
        identity = self._authenticator.find_session_owner(row.owner, row.credential)
        if identity is None:
            return None
        return replace(identity, session_id=row.id, may_approve=identity.may_approve and row.may_approve), row

    async def list(self, owner: str | None) -> list[SessionRow]:
        """Return the sessions of an owner, or all, without those that have ended with their key."""
        now = self._clock()
        rows = [row for row in await self._store.list_sessions(owner) if now < row.expires_at]
        return [row for row in rows if self._authenticator.find_session_owner(row.owner, row.credential) is not None]

    async def revoke(self, session: str, owner: str | None = None) -> bool:
        """End a session, if it is this owner's. False: no such session."""
        is_deleted = await self._store.delete_session(session, owner)
        if is_deleted:
            self._revocations += 1
            self._cache = {digest: cached for digest, cached in self._cache.items() if cached.row.id != session}
        return is_deleted

    async def _load(self, digest: str) -> SessionRow | None:
        cached = self._cache.get(digest)
        if cached is not None and self._monotonic() - cached.read_at < RECHECK_SECONDS:
            return cached.row
        while True:
            revocations = self._revocations
            row = await self._store.find_session(digest)
            if revocations == self._revocations:  # else this may be the one that was revoked meanwhile
                break
        self._cache.pop(digest, None)
        if row is not None:
            if len(self._cache) >= MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[digest] = _Cached(row, self._monotonic())
        return row

    async def _touch(self, row: SessionRow) -> None:
        now = self._clock()
        if abs(now - row.last_used_at) < TOUCH_SECONDS:
            return
        cached = self._cache.get(row.digest)
        if cached is not None:  # before the write, so that requests that arrive meanwhile do not write too
            self._cache[row.digest] = _Cached(replace(cached.row, last_used_at=now), cached.read_at)
        try:
            await self._store.touch_session(row.id, now)
        except StoreError as error:
            log.warning("session_not_updated", session=row.id, reason=error.message)


def is_same_origin(exchange: Exchange) -> bool:
    """Return whether a page of the gateway itself, or the person at the browser, sent a request.

    Cookies do not know ports: pages of other programs on this machine send them, too. A gateway behind a proxy with TLS does not
    see that it is https. A browser names an origin or a site with every request that changes something.
    """
    headers = exchange.headers
    is_reading = exchange.method in _READING
    origin, host, site = headers.get(b"origin"), headers.get(b"host"), headers.get(b"sec-fetch-site")
    if origin is not None and (host is None or origin.lower() not in (b"http://" + host.lower(), b"https://" + host.lower())):
        return False
    if site is not None:
        return site == b"same-origin" or (site == b"none" and is_reading)
    return origin is not None or is_reading


def foreign_request() -> PolicyError:
    return PolicyError(
        "The session in the browser counts only for pages of the gateway itself, and this request does not come from one: its "
        "Origin and Sec-Fetch-Site headers are missing or name another. Send a key, or no cookie.",
        code="foreign_session_request",
    )


def _cookie_token(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the token of the cookie. Two cookies of this name are ambiguous and do not count."""
    pairs = (pair.strip().partition(b"=") for pair in headers.get(b"cookie", b"").split(b";"))
    tokens = [value for name, _, value in pairs if name == COOKIE.encode()]
    return tokens[0] if len(tokens) == 1 and _TOKEN.fullmatch(tokens[0]) else None


def _digest(token: bytes) -> str:
    return sha256(token).hexdigest()


def _shorten(user_agent: str) -> str:
    return "".join(each if each.isprintable() else " " for each in user_agent[:MAX_USER_AGENT])
