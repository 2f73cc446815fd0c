"""Who may come in: keys, and where there are none, only this machine's own programs and the origins that are allowed."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256

from msgspec import Struct

from toolrelay.errors import ClientError, PolicyError
from toolrelay.settings import KeySettings, is_loopback


class Identity(Struct, frozen=True, kw_only=True):
    """Who asks. `name` is None where no keys are configured."""

    name: str | None = None
    models: tuple[str, ...] = ("*",)

    def may_use(self, model: str) -> bool:
        return "*" in self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


ANYONE = Identity()


class Authenticator:
    def __init__(self, keys: Sequence[KeySettings], origins: Sequence[str]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), Identity(name=key.name, models=key.models)) for key in keys]
        self._origins = frozenset(origins)
        self._own_hosts: set[str] = set()

    def allows_origin(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins

    def identify(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Who sent a request with these headers; raises where that may not be."""
        if not self._keys:
            self._refuse_strangers(headers)
            return ANYONE
        presented = _presented_key(headers)
        if presented is None:
            raise ClientError("No API key was given. Send it as 'Authorization: Bearer KEY'.", status=401, code="missing_api_key")
        digest = sha256(presented.encode("latin-1")).digest()  # the bytes as they came
        found: Identity | None = None
        for known, identity in self._keys:  # every key is compared, so that time tells nothing
            if hmac.compare_digest(known, digest):
                found = identity
        if found is None:
            raise ClientError("The API key is not known to this gateway.", status=401, code="invalid_api_key")
        return found

    def _refuse_strangers(self, headers: Mapping[bytes, bytes]) -> None:
        """Without keys a web page could use it through a visitor's browser, even by a name of its own (DNS rebinding)."""
        host = _text(headers, b"host")
        if host is not None and host not in self._own_hosts:  # every browser names one
            self._learn(host)
        origin = _text(headers, b"origin")
        if origin is None or self.allows_origin(origin) or origin.partition("://")[2] == host:
            return
        raise PolicyError(
            f"The origin {origin!r} is not allowed. Add it to server.cors_origins, or configure keys.", code="foreign_origin"
        )

    def _learn(self, host: str) -> None:
        """A host that is this machine's is remembered: nearly every request names the same."""
        if not is_loopback(_host_name(host)):
            raise PolicyError(
                f"The host name {host!r} is not this machine's. Without keys the gateway answers only to localhost.",
                code="foreign_host",
            )
        if len(self._own_hosts) < 64:  # the port is the client's to choose
            self._own_hosts.add(host)


def _presented_key(headers: Mapping[bytes, bytes]) -> str | None:
    authorization = _text(headers, b"authorization")
    if authorization is not None:
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            return key.strip()
    return (_text(headers, b"x-api-key") or "").strip() or None


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def _host_name(host: str) -> str:
    """Without the port, and without the brackets of IPv6."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
