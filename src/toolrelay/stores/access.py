"""Values of who has access: keys of clients, and people who are signed in."""

from __future__ import annotations

from msgspec import Struct


class SessionRow(Struct, frozen=True, kw_only=True):
    """A person who is signed in with a browser.

    digest        the hash of the token in the cookie
    owner         the key that was used to sign in (see TurnRow), or "local"
    credential    a hash of that key, so that the session ends with it; empty for "local"
    """

    id: str
    digest: str
    owner: str
    credential: str
    may_approve: bool
    user_agent: str
    created_at: float
    last_used_at: float
    expires_at: float


class KeyRow(Struct, frozen=True, kw_only=True):
    """A client's key. A revoked key stays, so that its name is not used again.

    id              the owner of what the key does; a rotated key keeps it
    sha256          the hash of the key
    last_used_at    exact to some minutes
    """

    id: str
    name: str
    sha256: str
    approve: bool
    models: tuple[str, ...]
    toolsets: tuple[str, ...]
    requests_per_minute: int
    created_at: float
    rotated_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
