"""Authentication by API key. Without keys only requests to a loopback host and from allowed origins are accepted."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256

from msgspec import Struct

from toolrelay.errors import ClientError, PolicyError
from toolrelay.settings import LOCAL, KeySettings, is_loopback
from toolrelay.web.guards import MAX_CACHED_HOSTS, parse_host


class Identity(Struct, frozen=True, kw_only=True):
    """The owner of a request. `name` is None if no keys are configured, `session_id` if nobody is signed in."""

    name: str | None = None
    may_approve: bool = False
    session_id: str | None = None
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int = 0  # 0: the general limit applies

    def may_use(self, model: str) -> bool:
        return "*" in self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


ANONYMOUS = Identity()
_SIGNED_IN_LOCALLY = Identity(may_approve=True)


class Authenticator:
    def __init__(self, keys: Sequence[KeySettings], origins: Sequence[str]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), _identity_of(key)) for key in keys]
        self._sessions = {(key.name, credential_of(bytes.fromhex(key.sha256))): _identity_of(key) for key in keys}
        self._origins = frozenset(origins)
        self._local_hosts: set[bytes] = set()

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def allows_origin(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins

    def identify(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Return who sent a request with these headers, or raise the error for those who may not."""
        if not self._keys:
            self.check_local(headers)
            return ANONYMOUS
        presented = _api_key(headers)
        if presented is None:
            raise ClientError("No API key was given. Send it as 'Authorization: Bearer KEY'.", status=401, code="missing_api_key")
        match = self.find_key(sha256(presented.encode("latin-1")).digest())  # the bytes as they were received
        if match is None:
            raise ClientError("The API key is not known to this gateway.", status=401, code="invalid_api_key")
        return match

    def find_key(self, digest: bytes) -> Identity | None:
        """Return the owner of the key with this hash."""
        match: Identity | None = None
        for known, identity in self._keys:  # every key is compared, against timing attacks
            if hmac.compare_digest(known, digest):
                match = identity
        return match

    def find_session_owner(self, owner: str, credential: str) -> Identity | None:
        """Return who may use a session. None: its key was changed or removed, or there were no keys when it began."""
        if self._keys:
            return self._sessions.get((owner, credential))
        return _SIGNED_IN_LOCALLY if owner == LOCAL else None

    def check_local(self, headers: Mapping[bytes, bytes]) -> None:
        """Without keys, refuse foreign web pages, which could otherwise use the gateway from a browser on this machine.

        The host is checked too: a page can point a name of its own at this machine (DNS rebinding).
        """
        if self._keys:
            return
        host = headers.get(b"host")
        if host is not None and host not in self._local_hosts:  # every browser sends one
            name = parse_host(host)
            if name is None or not is_loopback(name):
                raise PolicyError(
                    f"The host name {host.decode('latin-1')!r} is not this machine's. "
                    "Without keys the gateway answers only to localhost.",
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


def _identity_of(key: KeySettings) -> Identity:
    return Identity(name=key.name, may_approve=key.approve, models=key.models, requests_per_minute=key.requests_per_minute)


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
