"""The keys of clients: those of the configuration file, and those of the store, which change while the gateway runs."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from toolrelay import log
from toolrelay.errors import ClientError, ConfigurationError, StoreConflictError, StoreError, StoreMissingError
from toolrelay.setting_types import quote_key
from toolrelay.settings import LOCAL, KeySettings, Settings, is_loopback
from toolrelay.stores.access import KeyRow
from toolrelay.stores.base import Store, open_recorded_store

MAX_KEYS = 500  # that are valid: each is compared with each request
MAX_ROWS = 5000  # with the revoked ones
MAX_NAME = 100  # characters
TOUCH_SECONDS = 300.0  # the last use is written at most this often
FOLLOW_SECONDS = 2.0  # after which changes by other processes count
_RANDOM_BYTES = 30
_ID_BYTES = 12

_Pattern = Annotated[str, Meta(min_length=1, max_length=200)]
_Patterns = Annotated[tuple[_Pattern, ...], Meta(max_length=100)]


class NewKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decides about a new key. See KeySettings."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    approve: bool = False
    models: _Patterns = ("*",)
    toolsets: _Patterns = ()
    requests_per_minute: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Key(Struct, frozen=True, kw_only=True):
    """A key, without its text. `id` is the owner of what the key does: of a key of the file, that is its name."""

    id: str
    name: str
    source: Literal["file", "store"]
    digest: bytes
    approve: bool
    models: tuple[str, ...]
    toolsets: tuple[str, ...]
    requests_per_minute: int
    created_at: float | None = None
    rotated_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None


class KeyRing:
    """Finds keys by their hashes, and creates, rotates and revokes those of the store.

    Without a store there are only the keys of the file. `is_local`: the gateway can be reached from this machine only, so that it
    may be without keys. `is_durable`: what is in the store is there after a restart.
    """

    def __init__(
        self,
        keys: Sequence[KeySettings] = (),
        store: Store | None = None,
        *,
        is_local: bool = True,
        is_durable: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._is_local = is_local
        self._is_durable = is_durable
        self._clock = clock
        self._file_keys = [_key_of_file(key) for key in keys]
        self._rows: list[KeyRow] = []
        self._used: dict[str, float] = {}
        self._lock = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self.version = 0
        self._arrange([])

    def __len__(self) -> int:
        """Return the number of valid keys."""
        return len(self._valid)

    # Reading

    def find(self, digest: bytes) -> Key | None:
        """Return the valid key with this hash."""
        match: Key | None = None
        for key in self._valid.values():  # every key is compared, against timing attacks
            if hmac.compare_digest(key.digest, digest):
                match = key
        return match

    def get(self, owner: str) -> Key | None:
        """Return the valid key with this id."""
        return self._valid.get(owner)

    def name_of(self, owner: str) -> str:
        """Return the name of an owner, for people. That of a revoked key is known, too."""
        return self._names.get(owner, owner)

    def owners_with(self, toolset: str) -> list[str]:
        """Return the ids of the keys that may use the toolset."""
        return [key.id for key in self._valid.values() if any(fnmatchcase(toolset, pattern) for pattern in key.toolsets)]

    def note_use(self, owner: str) -> None:
        self._used[owner] = self._clock()

    def list_all(self) -> list[Key]:
        """Return all keys: those of the file, then those of the store, the oldest first, with the revoked ones."""
        return [self._with_use(key) for key in (*self._file_keys, *map(_key_of_row, self._rows))]

    def _with_use(self, key: Key) -> Key:
        used = max(self._used.get(key.id, 0.0), key.last_used_at or 0.0)
        return msgspec.structs.replace(key, last_used_at=used or None)

    # Changing

    async def create(self, wanted: NewKey) -> tuple[str, Key]:
        """Create a key, and return its text, which is not kept."""
        _check_name(wanted.name)
        store = self._writable()
        text, digest = _make_text()
        row = KeyRow(
            id=f"key_{secrets.token_hex(_ID_BYTES)}",
            sha256=digest,
            created_at=self._clock(),
            **msgspec.structs.asdict(wanted),
        )
        async with self._lock:
            await self._reload(store)
            self._check_room(wanted.name)
            try:
                await store.add_key(row)
            except StoreConflictError:  # another process was first
                raise _name_taken(wanted.name) from None
            await self._reload(store)
        return text, _key_of_row(row)

    async def rotate(self, key: str) -> tuple[str, Key]:
        """Give a key a new text, and return that. The old one is no longer valid."""
        store = self._writable(key)
        text, digest = _make_text()
        async with self._lock:
            await self._reload(store)
            self._require_changeable(key)
            if not await store.rotate_key(key, digest, self._clock()):
                raise _revoked_already(self.name_of(key))
            await self._reload(store)
            return text, self._valid[key]

    async def revoke(self, key: str) -> Key:
        """Revoke a key, and return it."""
        store = self._writable(key)
        async with self._lock:
            await self._reload(store)
            found = self._require_changeable(key)
            if len(self._valid) == 1 and not self._is_local:
                message = (
                    "This is the last key, and other machines reach this gateway: it cannot be without. Create another first."
                )
                raise ClientError(message, status=409, code="last_key")
            if not await store.revoke_key(key, self._clock()):
                raise _revoked_already(found.name)
            await self._reload(store)
            return found

    def _writable(self, key: str | None = None) -> Store:
        """Return the store, or raise the error for a change of this key, or for a new one."""
        if self._store is None or not self._is_durable:
            if key is not None:
                self._require_changeable(key)
            raise ClientError(
                'Keys of the store would be lost at the next start, because of [store] record = "none". '
                "Put the key into the configuration file: `toolrelay keys new NAME` prints its block.",
                status=409,
                code="keys_not_kept",
            )
        return self._store

    def _check_room(self, name: str) -> None:
        if name == LOCAL or name in self._taken:
            raise _name_taken(name)
        if len(self._valid) >= MAX_KEYS or len(self._rows) >= MAX_ROWS:
            message = f"There are too many keys: {MAX_KEYS} at most, and {MAX_ROWS} with the revoked ones."
            raise ClientError(message, status=409, code="too_many_keys")

    def _require_changeable(self, key: str) -> Key:
        found = next((each for each in self.list_all() if each.id == key), None)
        if found is None:
            raise ClientError("There is no such key.", status=404, code="key_not_found")
        if found.source == "file":
            message = f"The key {found.name!r} is in the configuration file. Change it there, and restart the gateway."
            raise ClientError(message, status=409, code="key_of_file")
        if found.revoked_at is not None:
            raise _revoked_already(found.name)
        return found

    # Loading

    async def load(self) -> None:
        """Load the keys of the store."""
        if self._store is not None:
            async with self._lock:
                await self._reload(self._store)

    def check_names(self, prefix: str = "") -> None:
        """Raise ConfigurationError if the file has a key with the name of one of the store. `prefix` begins each line."""
        stored = {text for row in self._rows for text in (row.name, row.id)}
        names = sorted(key.name for key in self._file_keys if key.name in stored)
        if names:
            raise ConfigurationError(
                "\n".join(
                    f"{prefix}keys.{quote_key(name)}.name: a key of the store has this name, or had it before it was revoked; "
                    "expected another (`toolrelay keys list --all` shows them)"
                    for name in names
                )
            )

    def follow(self) -> None:
        """Begin to write the last uses, and to look for changes by other processes."""
        if self._store is not None and self._following is None:
            self._following = asyncio.create_task(self._follow(self._store))

    async def close(self) -> None:
        if self._following is None or self._store is None:
            return
        self._following.cancel()
        await asyncio.wait([self._following])
        self._following = None
        with suppress(StoreError):
            await self._save_uses(self._store, 0.0)

    async def _follow(self, store: Store) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self._save_uses(store, TOUCH_SECONDS)
                async with self._lock:
                    await self._reload(store)
            except StoreError as error:  # the keys stay as they were
                log.warning("keys_not_read", reason=error.message)

    async def _save_uses(self, store: Store, seconds: float) -> None:
        for row in self._rows:
            used = self._used.get(row.id, 0.0)
            if used - (row.last_used_at or 0.0) > seconds:
                await store.touch_key(row.id, used)

    async def _reload(self, store: Store) -> None:
        rows = await store.list_keys()
        if rows != self._rows:
            self._arrange(rows)

    def _arrange(self, rows: list[KeyRow]) -> None:
        stored = [_key_of_row(row) for row in rows]
        self._rows = rows
        self._valid = {key.id: key for key in (*stored, *self._file_keys) if key.revoked_at is None}
        self._names = {key.id: key.name for key in stored}
        self._taken = {text for key in (*stored, *self._file_keys) for text in (key.id, key.name)}
        self.version += 1


def open_key_ring(settings: Settings, store: Store | None) -> KeyRing:
    """Return the keys of the gateway with these settings. Those of the store are there after `load`."""
    is_durable = settings.store.record != "none"
    return KeyRing(settings.keys, store, is_local=is_loopback(settings.server.host), is_durable=is_durable)


def load_key_ring(settings: Settings) -> KeyRing:
    """Return the keys of the gateway with these settings, for reading. A store is not created."""
    try:
        store = open_recorded_store(settings.store, settings.environment.data_dir)
    except StoreMissingError:
        store = None
    keys = open_key_ring(settings, None if settings.store.record == "none" else store)

    async def load(store: Store) -> None:
        await store.open()
        try:
            await keys.load()
        finally:
            await store.close()

    if store is not None and settings.store.record != "none":
        asyncio.run(load(store))
    return keys


def has_stored_keys(settings: Settings) -> bool:
    """Return whether the store of the gateway with these settings has valid keys."""
    return any(key.source == "store" and key.revoked_at is None for key in load_key_ring(settings).list_all())


def _key_of_file(key: KeySettings) -> Key:
    return Key(
        id=key.name,
        name=key.name,
        source="file",
        digest=bytes.fromhex(key.sha256),
        approve=key.approve,
        models=key.models,
        toolsets=key.toolsets,
        requests_per_minute=key.requests_per_minute,
    )


def _key_of_row(row: KeyRow) -> Key:
    members = msgspec.structs.asdict(row)
    return Key(source="store", digest=bytes.fromhex(members.pop("sha256")), **members)


def _make_text() -> tuple[str, str]:
    """Return the text of a new key, and its hash."""
    text = make_key_text()
    return text, sha256(text.encode()).hexdigest()


def make_key_text() -> str:
    return f"tr-{secrets.token_urlsafe(_RANDOM_BYTES)}"


def _check_name(name: str) -> None:
    try:
        msgspec.convert({"name": name, "sha256": "0" * 64}, KeySettings)
        name.encode()
    except (msgspec.ValidationError, UnicodeError):
        message = "The name of a key has no blanks around it, no control characters, and is not empty."
        raise ClientError(message, code="invalid_key_name", param="name") from None


def _name_taken(name: str) -> ClientError:
    message = f"The name {name!r} is taken: names of keys are unique, and that of a revoked key is not used again."
    return ClientError(message, status=409, code="key_name_taken", param="name")


def _revoked_already(name: str) -> ClientError:
    return ClientError(f"The key {name!r} was revoked.", status=409, code="key_revoked")
