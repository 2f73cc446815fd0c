"""Authentication by key, and of the operator by a token.

Without keys only requests to a loopback host and from allowed origins are accepted.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256

from msgspec import Struct

from toolrelay.errors import ClientError, PolicyError
from toolrelay.runtime.keys import Key, KeyRing
from toolrelay.settings import LOCAL, is_loopback
from toolrelay.web.guards import MAX_CACHED_HOSTS, parse_host


class Identity(Struct, frozen=True, kw_only=True):
    """Who sent a request.

    key           the id of the key; None: a client without a key, or the operator
    name          the name of the key, for people
    is_operator   who runs the gateway: someone who has its data directory, or signed in with a one-time code
    session_id    None: the request did not come with a session
    """

    key: str | None = None
    name: str | None = None
    may_approve: bool = False
    is_operator: bool = False
    session_id: str | None = None
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int = 0  # 0: the general limit applies

    def may_use(self, model: str) -> bool:
        return "*" in self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


ANONYMOUS = Identity()
SIGNED_IN_OPERATOR = Identity(may_approve=True, is_operator=True)
_LOCAL_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*://localhost):[0-9]{1,5}")


class Authenticator:
    """Finds who sent a request. Keys and the operator's token are compared as hashes, in constant time.

    `token` returns the approver's token, which is the operator's. `is_local`: the gateway can be reached from this machine only.
    """

    def __init__(
        self, keys: KeyRing, origins: Sequence[str] = (), *, token: Callable[[], str] = str, is_local: bool = True
    ) -> None:
        self.keys = keys
        self._token = token
        self._origins = frozenset(origins)
        self._local_hosts: set[bytes] = set()
        self.is_local = is_local

    @property
    def has_keys(self) -> bool:
        """Whether every client needs a key. A gateway that others can reach is never without."""
        return bool(self.keys) or not self.is_local

    def allows_origin(self, origin: str) -> bool:
        """Return whether pages of this origin may use the gateway. `http://localhost` covers all its ports."""
        if origin in self._origins or "*" in self._origins:
            return True
        local = _LOCAL_ORIGIN.fullmatch(origin)
        return local is not None and local[1] in self._origins

    def identify(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Return who sent a request with these headers, or raise the error for those who may not."""
        presented = _api_key(headers)
        digest = None if presented is None else sha256(presented.encode("latin-1")).digest()  # the bytes as they were received
        if not self.has_keys:
            self.check_local(headers)
            return SIGNED_IN_OPERATOR if self._is_token(digest) else ANONYMOUS
        if digest is None:
            message = "No API key was given. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
            raise ClientError(message, status=401, code="missing_api_key")
        match = self.find_key(digest)
        if match is not None:
            self.note_use(match)
            return match
        if self._is_token(digest):
            return Identity(is_operator=True)
        raise ClientError("The API key is not known to this gateway.", status=401, code="invalid_api_key")

    def find_key(self, digest: bytes) -> Identity | None:
        """Return the owner of the key with this hash."""
        key = self.keys.find(digest)
        return None if key is None else _identity_of(key)

    def note_use(self, identity: Identity) -> None:
        """Remember when a key was used last."""
        if identity.key is not None:
            self.keys.note_use(identity.key)

    def find_session_owner(self, owner: str, credential: str) -> Identity | None:
        """Return who may use a session. None: its key was changed or removed, or it is the operator's and not on this machine."""
        if owner == LOCAL:
            return SIGNED_IN_OPERATOR if self.is_local else None
        key = self.keys.get(owner)
        return _identity_of(key) if key is not None and credential_of(key.digest) == credential else None

    def _is_token(self, digest: bytes | None) -> bool:
        token = self._token() if digest is not None else ""
        return bool(token) and hmac.compare_digest(sha256(token.encode()).digest(), digest or b"")

    def check_local(self, headers: Mapping[bytes, bytes]) -> None:
        """Without keys, refuse foreign web pages, which could otherwise use the gateway from a browser on this machine.

        The host is checked too: a page can point a name of its own at this machine (DNS rebinding).
        """
        if self.has_keys:
            return
        host = headers.get(b"host")
        if host is not None and host not in self._local_hosts:  # every browser sends one
            name = parse_host(host)
            if name is None or not is_loopback(name):
                raise PolicyError(
                    f"The host name {host.decode('latin-1')!r} is not this machine's. "
                    "Without keys the gateway answers only to localhost. To use it from a container or another machine, "
                    "make a key (`toolrelay keys new NAME`), put it into toolrelay.toml, and set server.host there.",
                    code="foreign_host",
                )
            if len(self._local_hosts) < MAX_CACHED_HOSTS:
                self._local_hosts.add(host)
        origin = _header(headers, b"origin")
        if origin is None or self.allows_origin(origin):
            return
        if host is not None and origin.partition("://")[2] == host.decode("latin-1"):
            return
        raise PolicyError(
            f"The origin {origin!r} is not allowed. Add it to server.cors_origins, or configure keys.", code="foreign_origin"
        )


def _identity_of(key: Key) -> Identity:
    return Identity(
        key=key.id,
        name=key.name,
        may_approve=key.approve,
        models=key.models,
        requests_per_minute=key.requests_per_minute,
    )


def credential_of(digest: bytes) -> str:
    """Return what a session keeps of the key, given by its hash, that it was made with."""
    return sha256(digest).hexdigest()


def bearer_token(authorization: str) -> str | None:
    """Return the token of an Authorization header, or None if it has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def has_credentials(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request comes with a key or token. Then its cookie does not count."""
    return b"authorization" in headers or b"x-api-key" in headers


def _api_key(headers: Mapping[bytes, bytes]) -> str | None:
    authorization = _header(headers, b"authorization")
    token = None if authorization is None else bearer_token(authorization)
    return token or (_header(headers, b"x-api-key") or "").strip() or None


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
