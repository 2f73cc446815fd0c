"""The keys of a gateway: through the gateway if it runs, else in its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from toolrelay.cli._gateway import GatewayClient, GatewayProbe, RefusedError, configured_url, segment
from toolrelay.cli._output import CommandError
from toolrelay.cli._text import escape_controls
from toolrelay.errors import ClientError, StoreMissingError
from toolrelay.runtime.approver import read_approver_token
from toolrelay.runtime.keys import FOLLOW_SECONDS, KeyRing, open_key_ring
from toolrelay.settings import Settings, is_loopback
from toolrelay.stores.base import Store, open_recorded_store, open_store
from toolrelay.web.keys import FIRST_KEY, NO_KEYS, decode_new_key, describe_key
from toolrelay.web.tls import make_own_client_context

T = TypeVar("T")

Described: TypeAlias = dict[str, Any]  # a key as the gateway describes it


class RunningGateway:
    """The keys of a gateway that runs. See web.keys, whose answers these are."""

    remark: str | None = None
    note: str | None = None

    def __init__(self, client: GatewayClient) -> None:
        self._client = client

    def list_keys(self) -> list[Described]:
        found: list[Described] = self._client.request("GET", "/api/keys")["keys"]
        return found

    def create(self, members: dict[str, Any]) -> Described:
        return self._client.request("POST", "/api/keys", members)

    def rotate(self, key: str) -> Described:
        return self._client.request("POST", f"/api/keys/{segment(key)}/rotate")

    def revoke(self, key: str) -> Described:
        return self._client.request("DELETE", f"/api/keys/{segment(key)}")


class StoredKeys:
    """The same without a gateway, or without knowing where it runs. `remark` follows a change; `note` is for a missing store."""

    note: str | None = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.remark: str | None = (
            f"No gateway answers with the data directory {settings.environment.data_dir}: its store was changed. "
            f"One that runs elsewhere notices within {FOLLOW_SECONDS:g} seconds."
        )

    def list_keys(self) -> list[Described]:
        async def list_all(keys: KeyRing) -> list[Described]:
            return [describe_key(key) for key in keys.list_all()]

        return self._run(list_all)

    def create(self, members: dict[str, Any]) -> Described:
        async def create(keys: KeyRing) -> Described:
            wanted = decode_new_key(msgspec.json.encode(members))
            is_first = not keys
            text, key = await keys.create(wanted)
            return describe_key(key) | {"key": text, "notice": FIRST_KEY if is_first else None}

        return self._run(create, creates=True)

    def rotate(self, key: str) -> Described:
        async def rotate(keys: KeyRing) -> Described:
            text, changed = await keys.rotate(key)
            return describe_key(changed) | {"key": text, "notice": None}

        return self._run(rotate)

    def revoke(self, key: str) -> Described:
        async def revoke(keys: KeyRing) -> Described:
            return describe_key(await keys.revoke(key)) | {"notice": None if keys else NO_KEYS}

        return self._run(revoke)

    def _run(self, use: Callable[[KeyRing], Awaitable[T]], *, creates: bool = False) -> T:
        async def main() -> T:
            store = self._open(creates=creates)
            if store is not None:
                await store.open()
            try:
                keys = open_key_ring(self._settings, store)
                await keys.load()
                return await use(keys)
            finally:
                if store is not None:
                    await store.close()

        try:
            return asyncio.run(main())
        except ClientError as error:
            raise CommandError(escape_controls(error.message)) from None

    def _open(self, *, creates: bool) -> Store | None:
        settings = self._settings.store
        if settings.record == "none":
            return None
        directory = self._settings.environment.data_dir
        try:
            return open_store(settings, directory) if creates else open_recorded_store(settings, directory)
        except StoreMissingError:
            self.note = f"There is no store in {directory}. If the gateway has another data directory, name it with --data-dir."
            return None


KeyAccess: TypeAlias = RunningGateway | StoredKeys


def find_access(settings: Settings) -> KeyAccess:
    """Return the way to the keys of the gateway with these settings. Its token is sent to this machine only."""
    token = read_approver_token(settings.environment.data_dir)
    if token is None or settings.server.port == 0:
        return StoredKeys(settings)
    url = configured_url(settings, option="--port")
    context = make_own_client_context(settings)
    client = GatewayClient(url, token, context)
    if not is_loopback(client.host):
        return StoredKeys(settings)
    try:
        GatewayProbe(url, token, context).request("GET", "/api/keys")
    except RefusedError as error:
        if error.status not in (401, 404):  # then it is the gateway of another data directory, or another program
            raise
        return StoredKeys(settings)
    except CommandError:
        return StoredKeys(settings)
    return RunningGateway(client)
