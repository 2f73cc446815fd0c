"""The store interface: what can be done with the values beside it."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from toolrelay.core.approvals import QuestionStatus
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError, StoreError, StoreMissingError
from toolrelay.settings import StoreSettings
from toolrelay.stores.access import KeyRow, SessionRow
from toolrelay.stores.approvals import ApprovalAnswer, ApprovalRow, RuleRow
from toolrelay.stores.conversations import Conversation, ConversationItem, ConversationList, ListedConversation
from toolrelay.stores.turn_lists import TurnPage, TurnQuery, TurnRecord
from toolrelay.stores.turns import Frame, MessageRow, StoredStep, StoredTurn, TurnRow, TurnStatus
from toolrelay.stores.usage import UsageQuery, UsageRow, UsageShare, UsageSum


class SettingRow(Struct, frozen=True, kw_only=True):
    """A setting that was changed in the console. `path` is that of the configuration's key, `value` is JSON text."""

    path: str
    value: str
    changed_at: float
    changed_by: str


class PruneResult(Struct, frozen=True, kw_only=True):
    """How many rows were deleted."""

    turns: int = 0
    conversations: int = 0
    usage: int = 0


class Store(Protocol):
    """A database. A write is durable when its method returns; if the caller is cancelled, it may or may not happen.

    Methods raise StoreError if the database cannot be used, and StoreConflictError if another writer was first: a (turn, seq),
    an id or an idempotency key exists already, or the turn was deleted. To an owner, what belongs to another does not exist.
    """

    async def open(self) -> None:
        """Open the database, create it if necessary, and apply migrations."""
        ...

    async def close(self) -> None:
        """Finish the writes that wait, then close."""
        ...

    # Turns

    async def create_turn(
        self,
        row: TurnRow,
        steps: Sequence[StoredStep],
        messages: Sequence[MessageRow] = (),
        *,
        head: str | None = None,
        items: Sequence[ConversationItem] = (),
        creates_conversation: bool = True,
        approvals: Sequence[ApprovalRow | ApprovalAnswer] = (),
    ) -> None:
        """Add a turn. Its conversation, if any, counts as used.

        If the conversation does not exist, it is created, unless `creates_conversation` is false: then it was deleted, and stays
        so. `head` and `items` are those of `append_steps`, for a turn that has ended; `approvals` too.
        """
        ...

    async def append_steps(
        self,
        turn: str,
        steps: Sequence[StoredStep],
        *,
        status: TurnStatus | None = None,
        messages: Sequence[MessageRow] = (),
        head: str | None = None,
        items: Sequence[ConversationItem] = (),
        approvals: Sequence[ApprovalRow | ApprovalAnswer] = (),
    ) -> None:
        """Add steps and messages, and set the status, in one transaction.

        `head` is a digest of the conversation's history after this turn, for `find_conversation`. `items` are added to the
        conversation, without those whose ids it has already. Both are ignored if the turn has no conversation, or it was deleted.
        `approvals` are new questions, and answers to questions; an answer to one that is not pending is a conflict.
        """
        ...

    async def set_status(self, turn: str, status: TurnStatus) -> None: ...

    async def load_turn(self, turn: str, owner: str | None = None) -> StoredTurn | None: ...

    async def load_record(self, turn: str, owner: str) -> TurnRecord | None:
        """Return a turn with the steps that can be decoded, and those that cannot."""
        ...

    async def list_turns(self, owner: str, query: TurnQuery) -> TurnPage: ...

    async def load_unfinished(self) -> list[StoredTurn]:
        """Return the turns that are running or parked, oldest first. One that cannot be decoded is logged and left out."""
        ...

    async def find_idempotent(self, owner: str, key: str) -> TurnRow | None:
        """Return the turn of this Idempotency-Key, once a gateway tool was run or asked about in it.

        That is, once it has QuestionAsked or ToolRunStarted. If another turn with the key writes one, that is a conflict.
        """
        ...

    async def delete_response(self, turn: str, owner: str) -> bool:
        """Delete the content of a turn and keep its row, so that a chain through it can be refused. False: no such turn."""
        ...

    async def was_deleted(self, turn: str, owner: str) -> bool: ...

    async def append_frames(self, turn: str, frames: Sequence[Frame]) -> None: ...

    async def load_frames(self, turn: str, after: int = -1, limit: int = 1000) -> list[Frame]:
        """Return frames with a greater seq than `after`, in order."""
        ...

    # Conversations

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem] = ()) -> None: ...

    async def load_conversation(self, conversation: str, owner: str) -> Conversation | None: ...

    async def list_conversations(
        self, owner: str, *, search: str = "", before: tuple[float, str] | None = None, limit: int = 50
    ) -> ConversationList:
        """Return an owner's conversations, the last used first, from before that time and id.

        Those without metadata and items are left out. `search` is looked for in titles and texts. A search reads a bounded amount
        of text, so that it may return less than the limit, and go on from there.
        """
        ...

    async def describe_conversation(self, conversation: str, owner: str) -> ListedConversation | None: ...

    async def update_conversation(self, conversation: str, owner: str, metadata: dict[str, str]) -> Conversation | None: ...

    async def delete_conversation(self, conversation: str, owner: str) -> bool:
        """Delete a conversation and its items. Its turns stay until they are deleted or pruned, as at OpenAI."""
        ...

    async def add_items(self, conversation: str, owner: str, items: Sequence[ConversationItem]) -> bool:
        """Add items at the end. False: no such conversation."""
        ...

    async def list_items(
        self, conversation: str, owner: str, *, after: str | None = None, limit: int = 100, descending: bool = False
    ) -> list[ConversationItem] | None:
        """Return items in order, from the one after the item `after`. None: no such conversation.

        Raise ClientError if the conversation has no item `after`.
        """
        ...

    async def load_item(self, conversation: str, owner: str, item: str) -> ConversationItem | None: ...

    async def delete_item(self, conversation: str, owner: str, item: str) -> bool: ...

    async def find_conversation(self, owner: str, heads: Sequence[str]) -> tuple[str, str] | None:
        """Return the conversation that has one of these heads, and the head. The last of them that is known wins."""
        ...

    # Approvals

    async def load_approval(self, approval: str) -> ApprovalRow | None: ...

    async def list_approvals(self, status: QuestionStatus | None = None, *, limit: int = 100) -> list[ApprovalRow]:
        """Return questions, the newest first."""
        ...

    async def add_rule(self, rule: RuleRow) -> None: ...

    async def list_rules(self) -> list[RuleRow]:
        """Return all rules, the newest first."""
        ...

    async def find_rules(self, owner: str, tool: str) -> list[RuleRow]: ...

    async def delete_rule(self, rule: str) -> bool: ...

    # Sessions

    async def add_session(self, session: SessionRow) -> None:
        """Add a session, and delete those that have expired when it was created."""
        ...

    async def find_session(self, digest: str) -> SessionRow | None:
        """Return the session of a token's hash, also if it has expired."""
        ...

    async def list_sessions(self, owner: str | None = None) -> list[SessionRow]:
        """Return the sessions of an owner, or all, the newest first."""
        ...

    async def touch_session(self, session: str, at: float) -> None:
        """Set the time of the last use."""
        ...

    async def delete_session(self, session: str, owner: str | None = None) -> bool:
        """Delete a session, if it is this owner's. False: no such session."""
        ...

    # Keys

    async def add_key(self, key: KeyRow) -> None:
        """Add a key. A name that another key has or had is a conflict."""
        ...

    async def list_keys(self) -> list[KeyRow]:
        """Return all keys, the revoked ones too, the oldest first."""
        ...

    async def rotate_key(self, key: str, sha256: str, at: float) -> bool:
        """Replace the hash of a key, and end its sessions. False: there is no such key, or it was revoked."""
        ...

    async def revoke_key(self, key: str, at: float) -> bool:
        """Revoke a key, and end its sessions. False: there is no such key, or it was revoked before."""
        ...

    async def touch_key(self, key: str, at: float) -> None:
        """Set the time of the last use."""
        ...

    # Settings

    async def load_settings(self) -> list[SettingRow]:
        """Return the settings that were changed, by path."""
        ...

    async def change_settings(self, changed: Sequence[SettingRow], removed: Sequence[str] = ()) -> None:
        """Add or replace settings, and remove those with the paths `removed`, in one transaction."""
        ...

    # Usage, retention, export

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """Add the figures to those of the same minute, model and key."""
        ...

    async def list_usage_shares(self, query: UsageQuery) -> list[UsageShare]:
        """Return who used which model, most turns first, at most 10,000."""
        ...

    async def sum_usage(self, query: UsageQuery, names: Sequence[str]) -> list[UsageSum]:
        """Return sums by step and name, in the order of time. Models or keys that are not in `names` are one, without a name."""
        ...

    async def prune(self, before: float) -> PruneResult:
        """Delete what was last used before this time (Unix seconds).

        Kept are unfinished turns, turns with open questions, turns that a kept turn continues, and those of a kept conversation.
        """
        ...

    def export(self) -> AsyncIterator[JsonObject]:
        """Yield everything as JSON objects.

        Their `type` is "turn" (with its steps), "message", "approval", "conversation", "rule", "key" (without hash), "setting"
        or "usage".
        """
        ...


class StoreKind(Struct, frozen=True, kw_only=True):
    """A kind of database: the value STORE of the module that the URL's scheme names.

    open   creates the store; it does not connect yet
    file   names the file in the data directory, if there is one
    """

    open: Callable[[StoreSettings, Path], Store]
    file: Callable[[Path], Path | None]


def open_store(settings: StoreSettings, data_dir: Path) -> Store:
    """Return the store of these settings. It touches no file until its `open` is awaited."""
    return _find_kind(settings).open(settings, data_dir)


def open_recorded_store(settings: StoreSettings, data_dir: Path) -> Store:
    """Return the store with what was recorded earlier, whatever is recorded now. Raise StoreMissingError if there is none."""
    kind = _find_kind(settings)
    file = kind.file(data_dir)
    try:
        is_missing = file is not None and not file.exists()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}. Run this as the user who runs the gateway.") from None
    if is_missing:
        raise StoreMissingError(f"{file}: no such file. Nothing was recorded there; name another directory with --data-dir.")
    return kind.open(structs.replace(settings, record="all"), data_dir)


def _find_kind(settings: StoreSettings) -> StoreKind:
    scheme = settings.url.partition(":")[0]
    module = f"toolrelay.stores.{scheme}"
    if re.fullmatch(r"[a-z]+", scheme) and importlib.util.find_spec(module):
        kind = getattr(importlib.import_module(module), "STORE", None)
        if isinstance(kind, StoreKind):
            return kind
    raise ConfigurationError('store.url: no such kind of database; expected "sqlite"')
