"""Keys of clients over HTTP, for the operator: list, create, rotate, revoke."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolrelay import log
from toolrelay.core.json import JsonObject
from toolrelay.errors import invalid
from toolrelay.runtime.keys import Key, KeyRing, NewKey
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.site import identify
from toolrelay.wires.json import encode

MAX_BODY_BYTES = 65_536
FIRST_KEY = "This is the first key: from now on every client needs one. Give each client a key, or it is refused with 401."
NO_KEYS = "This was the last key: from now on every program on this machine may use the gateway without one."

_decode = msgspec.json.Decoder(NewKey).decode


class KeyPages:
    """All pages need the operator: a key could otherwise give itself more rights."""

    def __init__(self, keys: KeyRing, approvers: Approvers) -> None:
        self._keys = keys
        self._approvers = approvers

    def routes(self) -> list[Route]:
        return [
            Route("/api/keys", self.list),
            Route("/api/keys", self.create, methods=["POST"]),
            Route("/api/keys/{id}", self.revoke, methods=["DELETE"]),
            Route("/api/keys/{id}/rotate", self.rotate, methods=["POST"]),
        ]

    def _require_operator(self, request: Request) -> None:
        self._approvers.require_operator(identify(request), request.headers.get("authorization"))

    async def list(self, request: Request) -> Response:
        self._require_operator(request)
        return _respond({"keys": [describe_key(key) for key in self._keys.list_all()]})

    async def create(self, request: Request) -> Response:
        self._require_operator(request)
        wanted = decode_new_key(await request.body())
        is_first = not self._keys
        text, key = await self._keys.create(wanted)
        log.info("key_created", key=key.name, id=key.id)
        return _respond(describe_key(key) | {"key": text, "notice": FIRST_KEY if is_first else None})

    async def rotate(self, request: Request) -> Response:
        self._require_operator(request)
        text, key = await self._keys.rotate(request.path_params["id"])
        log.info("key_rotated", key=key.name, id=key.id)
        return _respond(describe_key(key) | {"key": text, "notice": None})

    async def revoke(self, request: Request) -> Response:
        self._require_operator(request)
        key = await self._keys.revoke(request.path_params["id"])
        log.info("key_revoked", key=key.name, id=key.id)
        return _respond({"id": key.id, "name": key.name, "revoked": True, "notice": None if self._keys else NO_KEYS})


def decode_new_key(body: bytes) -> NewKey:
    if len(body) > MAX_BODY_BYTES:
        raise invalid("The body is too large for a key.")
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise invalid(
            f'The body does not describe a key: {error}. Example: {{"name": "obsidian"}}.', code="invalid_key"
        ) from None


def describe_key(key: Key) -> JsonObject:
    """Return all about a key, without its hash."""
    members = msgspec.structs.asdict(key)
    del members["digest"]
    return members


def _respond(value: JsonObject) -> Response:
    return Response(encode(value), headers={"content-type": "application/json", "cache-control": "no-store"})
