"""The list of conversations, and the search in their titles and texts."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.stores.conversations import Conversation, ConversationList, ListedConversation
from toolrelay.stores.sql.conversations import CONVERSATION_COLUMNS, decode_conversation, load_conversation
from toolrelay.stores.sql.database import Connection

TITLE = "title"  # in the metadata
MAX_TITLE = 100  # characters
SEARCHED = 16_000_000  # characters of items that one search reads

_SELECT = f"""
    SELECT {CONVERSATION_COLUMNS} FROM conversations
    WHERE owner = ? AND (last_used_at < ? OR (last_used_at = ? AND id < ?))
        AND (metadata <> '{{}}' OR EXISTS (SELECT 1 FROM items WHERE items.conversation = conversations.id))
    ORDER BY last_used_at DESC, id DESC LIMIT ?"""
_SELECT_ITEMS = "SELECT position, data FROM items WHERE conversation = ? AND position > ? ORDER BY position LIMIT ?"
_SELECT_RUNNING = """
    SELECT id FROM turns
    WHERE conversation = ? AND owner = ? AND status IN ('running', 'parked') AND deleted = FALSE AND stored AND background
    ORDER BY created_at DESC, id DESC LIMIT 1"""

_PAGE = 50
_FIRST_ITEMS = 5  # in which a message of the user is looked for
_TEXTS = ("text", "refusal", "output", "arguments", "name")
_MAX_DEPTH = 5

_decode_object = msgspec.json.Decoder(JsonObject).decode


def list_conversations(
    connection: Connection, owner: str, *, search: str, before: tuple[float, str] | None, limit: int
) -> ConversationList:
    found: list[ListedConversation] = []
    wanted = search.strip().casefold()
    place = before or (inf, "")
    budget = SEARCHED
    while True:
        page = _load_page(connection, owner, place)
        for conversation in page:
            if len(found) == limit or budget <= 0:
                return ConversationList(entries=tuple(found), next=place)
            title = _title_of(connection, conversation)
            matches = wanted in title.casefold()
            if not matches:
                for text in _texts(connection, conversation.id):
                    budget -= len(text)
                    matches = wanted in text.casefold()
                    if matches or budget <= 0:
                        break
            if matches:
                found.append(_describe(connection, conversation, title))
            place = conversation.last_used_at, conversation.id
        if len(page) < _PAGE:
            return ConversationList(entries=tuple(found))


def describe_conversation(connection: Connection, identifier: str, owner: str) -> ListedConversation | None:
    conversation = load_conversation(connection, identifier, owner)
    return None if conversation is None else _describe(connection, conversation, _title_of(connection, conversation))


def _load_page(connection: Connection, owner: str, place: tuple[float, str]) -> list[Conversation]:
    at, identifier = place
    rows = connection.execute(_SELECT, (owner, at, at, identifier, _PAGE)).fetchall()
    return [decode_conversation(values) for values in rows]


def _describe(connection: Connection, conversation: Conversation, title: str) -> ListedConversation:
    running = connection.execute(_SELECT_RUNNING, (conversation.id, conversation.owner)).fetchone()
    return ListedConversation(conversation=conversation, title=title, running=None if running is None else running[0])


def _title_of(connection: Connection, conversation: Conversation) -> str:
    title = conversation.metadata.get(TITLE, "").strip()
    if title:
        return title
    rows = connection.execute(_SELECT_ITEMS, (conversation.id, -1, _FIRST_ITEMS)).fetchall()
    for item in [_decode_object(data) for _, data in rows]:
        text = "\n".join(_find_texts(item)).strip()
        if item.get("role") == "user" and text:
            return text.splitlines()[0][:MAX_TITLE]
    return ""


def _texts(connection: Connection, conversation: str) -> Iterator[str]:
    """Yield the texts of a conversation, item by item."""
    position = -1
    while rows := connection.execute(_SELECT_ITEMS, (conversation, position, _PAGE)).fetchall():
        for position, data in rows:  # noqa: B007 -- the last one is where the next page begins
            yield "\n".join(_find_texts(_decode_object(data)))


def _find_texts(value: Json, depth: int = 0) -> Iterator[str]:
    """Yield what a person reads of an item: its text, and the names, arguments and outputs of calls."""
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for each in value:
            yield from _find_texts(each, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        yield from (text for name in _TEXTS if isinstance(text := value.get(name), str))
        content = value.get("content")
        if isinstance(content, str):
            yield content
        for name in ("content", "summary", "output"):
            if isinstance(value.get(name), list):
                yield from _find_texts(value[name], depth + 1)
