"""The Conversations API: conversations and their items."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolrelay.core.identity import make_token
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Item, OpaqueItem
from toolrelay.errors import ClientError, invalid
from toolrelay.runtime.service import owner_of
from toolrelay.stores.base import Store
from toolrelay.stores.conversations import Conversation, ConversationItem
from toolrelay.web.pages import json_response
from toolrelay.web.paging import Page, list_options
from toolrelay.web.site import identify
from toolrelay.wires.json import convert, decode_body
from toolrelay.wires.responses.outgoing import input_items
from toolrelay.wires.responses.request import decode_item

MAX_ITEMS = 20  # in one request, as at OpenAI
MAX_METADATA = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512


class _ConversationBody(Struct):
    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | UnsetType | None = UNSET


class ConversationPages:
    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route("/conversations", self.create, methods=["POST"]),
            Route("/conversations/{id}", self.retrieve),
            Route("/conversations/{id}", self.update, methods=["POST"]),
            Route("/conversations/{id}", self.delete, methods=["DELETE"]),
            Route("/conversations/{id}/items", self.list_items),
            Route("/conversations/{id}/items", self.add_items, methods=["POST"]),
            Route("/conversations/{id}/items/{item}", self.retrieve_item),
            Route("/conversations/{id}/items/{item}", self.delete_item, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        body = await _body(request)
        now = time.time()
        conversation = Conversation(
            id=f"conv_{_new_token()}",
            owner=owner_of(identify(request)),
            created_at=now,
            last_used_at=now,
            metadata=_checked_metadata(body.metadata),
        )
        await self._store.create_conversation(conversation, _new_items(body.items or []))
        return json_response(_members(conversation))

    async def retrieve(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        conversation = await self._store.load_conversation(identifier, owner_of(identify(request)))
        if conversation is None:
            raise _missing(identifier)
        return json_response(_members(conversation))

    async def update(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        given = (await _body(request)).metadata
        if given is UNSET:
            raise invalid("'metadata' is missing.", "metadata", code="missing_required_parameter")
        metadata = _checked_metadata(given)
        conversation = await self._store.update_conversation(identifier, owner_of(identify(request)), metadata)
        if conversation is None:
            raise _missing(identifier)
        return json_response(_members(conversation))

    async def delete(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        if not await self._store.delete_conversation(identifier, owner_of(identify(request))):
            raise _missing(identifier)
        return json_response({"id": identifier, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> Response:
        identifier, options = request.path_params["id"], list_options(request.query_params)
        items = await self._store.list_items(
            identifier,
            owner_of(identify(request)),
            after=options.after,
            limit=options.limit + 1,
            descending=options.descending,
        )
        if items is None:
            raise _missing(identifier)
        page = Page(items=[item.data for item in items[: options.limit]], has_more=len(items) > options.limit)
        return json_response(page.members())

    async def add_items(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        given = (await _body(request)).items
        if not given:
            raise invalid("'items' must hold at least one item.", "items", code="missing_required_parameter")
        items = _new_items(given)
        if not await self._store.add_items(identifier, owner_of(identify(request)), items):
            raise _missing(identifier)
        return json_response(Page(items=[item.data for item in items], has_more=False).members())

    async def retrieve_item(self, request: Request) -> Response:
        identifier, item_id = request.path_params["id"], request.path_params["item"]
        owner = owner_of(identify(request))
        item = await self._store.load_item(identifier, owner, item_id)
        if item is None:
            raise await self._missing_item(identifier, item_id, owner)
        return json_response(item.data)

    async def delete_item(self, request: Request) -> Response:
        identifier, item_id = request.path_params["id"], request.path_params["item"]
        owner = owner_of(identify(request))
        if not await self._store.delete_item(identifier, owner, item_id):
            raise await self._missing_item(identifier, item_id, owner)
        conversation = await self._store.load_conversation(identifier, owner)
        if conversation is None:
            raise _missing(identifier)
        return json_response(_members(conversation))

    async def _missing_item(self, identifier: str, item_id: str, owner: str) -> ClientError:
        if await self._store.load_conversation(identifier, owner) is None:
            return _missing(identifier)
        return ClientError(f"Item with id {item_id!r} not found in this conversation.", status=404, code="item_not_found")


def _missing(conversation: str) -> ClientError:
    return ClientError(f"Conversation with id {conversation!r} not found.", status=404, code="conversation_not_found")


async def _body(request: Request) -> _ConversationBody:
    raw = await request.body()
    return convert(decode_body(raw), _ConversationBody, "") if raw else _ConversationBody()


def _new_token() -> str:
    return make_token(os.urandom(10))


def _new_items(given: Sequence[dict[str, Any]]) -> list[ConversationItem]:
    """Check the items and return them with new ids."""
    if len(given) > MAX_ITEMS:
        raise invalid(f"At most {MAX_ITEMS} items can be added at a time.", "items", code="array_above_max_length")
    token = _new_token()
    items: list[Item] = [decode_item(raw, f"items[{number}]") for number, raw in enumerate(given)]
    for number, item in enumerate(items):
        if isinstance(item, OpaqueItem) and item.raw.get("type") == "item_reference":
            raise invalid("A conversation takes no references: send the item itself.", f"items[{number}]", code="invalid_type")
    return [ConversationItem(id=str(data["id"]), data=data) for data in input_items(tuple(items), token)]


def _checked_metadata(metadata: dict[str, str] | UnsetType | None) -> dict[str, str]:
    given = metadata or {}
    if len(given) > MAX_METADATA:
        raise invalid(f"'metadata' can hold at most {MAX_METADATA} pairs.", "metadata", code="object_above_max_properties")
    for key, value in given.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE:
            message = f"Keys of 'metadata' have at most {MAX_METADATA_KEY} characters, values at most {MAX_METADATA_VALUE}."
            raise invalid(message, "metadata", code="string_above_max_length")
    return given


def _members(conversation: Conversation) -> JsonObject:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": {**conversation.metadata},
    }
