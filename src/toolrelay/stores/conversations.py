"""Values of conversations and their lists."""

from __future__ import annotations

from msgspec import Struct

from toolrelay.core.json import JsonObject


class Conversation(Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    created_at: float
    last_used_at: float
    metadata: dict[str, str] = {}


class ConversationItem(Struct, frozen=True, kw_only=True):
    """An item of a conversation, in the shape of Responses. The store sets `position`, in the order in which items are added."""

    id: str
    data: JsonObject
    position: int = 0


class ListedConversation(Struct, frozen=True, kw_only=True):
    """A conversation in a list. `title` is that of its metadata, or else its first message. `running` is a turn that can be
    followed: a stored background turn that has not ended.
    """

    conversation: Conversation
    title: str
    running: str | None = None


class ConversationList(Struct, frozen=True, kw_only=True):
    """A part of a list. If `next` is not None, the list goes on before that place."""

    entries: tuple[ListedConversation, ...]
    next: tuple[float, str] | None = None
