"""Conversations, their items, and the digests of their histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from toolrelay.core.json import JsonObject
from toolrelay.errors import StoreConflictError, invalid
from toolrelay.stores.conversations import Conversation, ConversationItem
from toolrelay.stores.sql.database import Connection

CONVERSATION_COLUMNS = "id, owner, created_at, last_used_at, metadata"
_INSERT = f"INSERT INTO conversations ({CONVERSATION_COLUMNS}) VALUES (?, ?, ?, ?, ?)"
_USE = f"""{_INSERT}
    ON CONFLICT (id) DO UPDATE SET last_used_at = CASE
        WHEN excluded.last_used_at > conversations.last_used_at THEN excluded.last_used_at ELSE conversations.last_used_at END
    WHERE conversations.owner = excluded.owner"""
_SELECT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND owner = ?"
_UPDATE = f"""
    UPDATE conversations SET metadata = ?, last_used_at = ? WHERE id = ? AND owner = ? RETURNING {CONVERSATION_COLUMNS}"""
_TOUCH = "UPDATE conversations SET last_used_at = ? WHERE id = ? AND owner = ?"
_USE_EXISTING = """
    UPDATE conversations SET last_used_at = CASE WHEN last_used_at < ? THEN ? ELSE last_used_at END WHERE id = ? AND owner = ?"""
_DELETE = "DELETE FROM conversations WHERE id = ? AND owner = ?"
_INSERT_ITEM = "INSERT INTO items (conversation, position, id, data) VALUES (?, ?, ?, ?)"
_INSERT_NEW_ITEM = f"{_INSERT_ITEM} ON CONFLICT (conversation, id) DO NOTHING"
_SELECT_POSITION = "SELECT coalesce(max(position), -1) + 1 FROM items WHERE conversation = ?"
_SELECT_ITEM = "SELECT id, data, position FROM items WHERE conversation = ? AND id = ?"
_SELECT_ITEMS = "SELECT id, data, position FROM items WHERE conversation = ? AND position > ? ORDER BY position LIMIT ?"
_SELECT_ITEMS_DESCENDING = """
    SELECT id, data, position FROM items WHERE conversation = ? AND position < ? ORDER BY position DESC LIMIT ?"""
_DELETE_ITEM = "DELETE FROM items WHERE conversation = ? AND id = ?"
_SELECT_HEADS = "SELECT head, conversation FROM heads WHERE owner = ? AND head IN ({})"

_HEADS_AT_ONCE = 500
_MAX_POSITION = 2**31 - 1  # of PostgreSQL's INTEGER

_encode = msgspec.json.Encoder().encode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_object = msgspec.json.Decoder(JsonObject).decode


def use_conversation(connection: Connection, conversation: str, owner: str, at: float) -> None:
    """Note the time of use. Create the conversation if it does not exist."""
    if connection.execute(_USE, (conversation, owner, at, at, "{}")).rowcount == 0:
        raise StoreConflictError(f"The conversation {conversation} belongs to another owner.")


def use_existing(connection: Connection, conversation: str, owner: str, at: float) -> bool:
    """Note the time of use. False: no such conversation."""
    return connection.execute(_USE_EXISTING, (at, at, conversation, owner)).rowcount > 0


def create_conversation(connection: Connection, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
    metadata = _encode(conversation.metadata).decode()
    values = conversation.id, conversation.owner, conversation.created_at, conversation.last_used_at, metadata
    connection.execute(_INSERT, values)
    _insert_items(connection, conversation.id, 0, items)


def load_conversation(connection: Connection, conversation: str, owner: str) -> Conversation | None:
    values = connection.execute(_SELECT, (conversation, owner)).fetchone()
    return None if values is None else decode_conversation(values)


def update_conversation(
    connection: Connection, conversation: str, owner: str, metadata: dict[str, str], at: float
) -> Conversation | None:
    rows = connection.execute(_UPDATE, (_encode(metadata).decode(), at, conversation, owner)).fetchall()
    return decode_conversation(rows[0]) if rows else None


def delete_conversation(connection: Connection, conversation: str, owner: str) -> bool:
    return connection.execute(_DELETE, (conversation, owner)).rowcount > 0


def add_items(connection: Connection, conversation: str, owner: str, items: Sequence[ConversationItem], at: float) -> bool:
    if connection.execute(_TOUCH, (at, conversation, owner)).rowcount == 0:
        return False
    _insert_items(connection, conversation, _next_position(connection, conversation), items)
    return True


def add_new_items(connection: Connection, conversation: str, items: Sequence[ConversationItem]) -> None:
    """Add the items whose ids the conversation, which exists, does not have."""
    rows = _item_rows(conversation, _next_position(connection, conversation), items)
    connection.executemany(_INSERT_NEW_ITEM, rows)


def list_items(
    connection: Connection, conversation: str, owner: str, *, after: str | None, limit: int, descending: bool
) -> list[ConversationItem] | None:
    if load_conversation(connection, conversation, owner) is None:
        return None
    position = _MAX_POSITION if descending else -1
    if after is not None:
        found = connection.execute(_SELECT_ITEM, (conversation, after)).fetchone()
        if found is None:
            raise invalid(f"The conversation {conversation!r} has no item {after!r}.", "after")
        position = found[2]
    statement = _SELECT_ITEMS_DESCENDING if descending else _SELECT_ITEMS
    return [_decode_item(values) for values in connection.execute(statement, (conversation, position, limit)).fetchall()]


def load_item(connection: Connection, conversation: str, owner: str, item: str) -> ConversationItem | None:
    if load_conversation(connection, conversation, owner) is None:
        return None
    values = connection.execute(_SELECT_ITEM, (conversation, item)).fetchone()
    return None if values is None else _decode_item(values)


def delete_item(connection: Connection, conversation: str, owner: str, item: str, at: float) -> bool:
    if connection.execute(_TOUCH, (at, conversation, owner)).rowcount == 0:
        return False
    return connection.execute(_DELETE_ITEM, (conversation, item)).rowcount > 0


def find_conversation(connection: Connection, owner: str, heads: Sequence[str]) -> tuple[str, str] | None:
    for end in range(len(heads), 0, -_HEADS_AT_ONCE):
        part = heads[max(0, end - _HEADS_AT_ONCE) : end]
        statement = _SELECT_HEADS.format(", ".join("?" * len(part)))
        found: dict[str, str] = dict(connection.execute(statement, (owner, *part)).fetchall())
        for head in reversed(part):
            if head in found:
                return found[head], head
    return None


def _insert_items(connection: Connection, conversation: str, position: int, items: Sequence[ConversationItem]) -> None:
    connection.executemany(_INSERT_ITEM, _item_rows(conversation, position, items))


def _item_rows(conversation: str, position: int, items: Sequence[ConversationItem]) -> list[tuple[str, int, str, str]]:
    return [(conversation, number, item.id, _encode(item.data).decode()) for number, item in enumerate(items, position)]


def _next_position(connection: Connection, conversation: str) -> int:
    position: int = connection.execute(_SELECT_POSITION, (conversation,)).fetchone()[0]
    return position


def decode_conversation(values: Sequence[Any]) -> Conversation:
    identifier, owner, created_at, last_used_at, metadata = values
    return Conversation(
        id=identifier, owner=owner, created_at=created_at, last_used_at=last_used_at, metadata=_decode_metadata(metadata)
    )


def _decode_item(values: Sequence[Any]) -> ConversationItem:
    identifier, data, position = values
    return ConversationItem(id=identifier, data=_decode_object(data), position=position)
