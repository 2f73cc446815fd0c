"""The store on a database: reads and writes, in threads."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar

from toolrelay.core.approvals import QuestionStatus
from toolrelay.core.json import JsonObject
from toolrelay.stores.access import KeyRow, SessionRow
from toolrelay.stores.approvals import ApprovalAnswer, ApprovalRow, RuleRow
from toolrelay.stores.base import PruneResult, SettingRow
from toolrelay.stores.conversations import Conversation, ConversationItem, ConversationList, ListedConversation
from toolrelay.stores.readers import ReaderPool
from toolrelay.stores.sql import approvals as sql_approvals
from toolrelay.stores.sql import conversation_list, conversations, keys, retention, sessions, settings, turn_list, turns, usage
from toolrelay.stores.sql.database import Database, Operation
from toolrelay.stores.sql.export import EXPORTS
from toolrelay.stores.turn_lists import TurnPage, TurnQuery, TurnRecord
from toolrelay.stores.turns import Frame, MessageRow, StoredStep, StoredTurn, TurnRow, TurnStatus
from toolrelay.stores.usage import UsageQuery, UsageRow, UsageShare, UsageSum
from toolrelay.stores.writer import MAX_WAITING, GroupCommitWriter

T = TypeVar("T")

PRUNE_AT_ONCE = 200  # other writes wait for a transaction of this many deletions


class SqlStore:
    """See `base.Store`. `clock` gives the time of uses that come without one."""

    def __init__(
        self,
        database: Database,
        *,
        has_readers: bool = True,
        clock: Callable[[], float] = time.time,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._clock = clock
        self._writer = GroupCommitWriter(database, max_waiting=max_waiting)
        self._readers = ReaderPool(database) if has_readers else None

    async def open(self) -> None:
        await self._writer.open()

    async def close(self) -> None:
        if self._readers is not None:
            await self._readers.close()
        await self._writer.close()

    async def _read(self, operation: Operation[T]) -> T:
        return await (self._writer if self._readers is None else self._readers).run(operation)

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
        values = [turns.encode_step(step) for step in steps]
        used_tools = turns.uses_tools(steps)
        await self._writer.run(
            lambda connection: turns.create_turn(
                connection,
                row,
                values,
                messages,
                head=head,
                items=items,
                used_tools=used_tools,
                creates_conversation=creates_conversation,
                approvals=approvals,
            )
        )

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
        values = [turns.encode_step(step) for step in steps]
        used_tools = turns.uses_tools(steps)
        await self._writer.run(
            lambda connection: turns.append_steps(
                connection,
                turn,
                values,
                messages,
                status=status,
                head=head,
                items=items,
                used_tools=used_tools,
                approvals=approvals,
            )
        )

    async def set_status(self, turn: str, status: TurnStatus) -> None:
        await self._writer.run(lambda connection: turns.update_turn(connection, turn, status))

    async def load_turn(self, turn: str, owner: str | None = None) -> StoredTurn | None:
        return await self._read(lambda connection: turns.load_turn(connection, turn, owner))

    async def load_record(self, turn: str, owner: str) -> TurnRecord | None:
        return await self._read(lambda connection: turn_list.load_record(connection, turn, owner))

    async def list_turns(self, owner: str, query: TurnQuery) -> TurnPage:
        return await self._read(lambda connection: turn_list.list_turns(connection, owner, query))

    async def load_unfinished(self) -> list[StoredTurn]:
        return await self._read(turns.load_unfinished)

    async def find_idempotent(self, owner: str, key: str) -> TurnRow | None:
        return await self._read(lambda connection: turns.find_idempotent(connection, owner, key))

    async def delete_response(self, turn: str, owner: str) -> bool:
        return await self._writer.run(lambda connection: turns.delete_response(connection, turn, owner))

    async def was_deleted(self, turn: str, owner: str) -> bool:
        return await self._read(lambda connection: turns.was_deleted(connection, turn, owner))

    async def append_frames(self, turn: str, frames: Sequence[Frame]) -> None:
        await self._writer.run(lambda connection: turns.append_frames(connection, turn, frames))

    async def load_frames(self, turn: str, after: int = -1, limit: int = 1000) -> list[Frame]:
        return await self._read(lambda connection: turns.load_frames(connection, turn, after, limit))

    # Conversations

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem] = ()) -> None:
        await self._writer.run(lambda connection: conversations.create_conversation(connection, conversation, items))

    async def load_conversation(self, conversation: str, owner: str) -> Conversation | None:
        return await self._read(lambda connection: conversations.load_conversation(connection, conversation, owner))

    async def list_conversations(
        self, owner: str, *, search: str = "", before: tuple[float, str] | None = None, limit: int = 50
    ) -> ConversationList:
        return await self._read(
            lambda connection: conversation_list.list_conversations(connection, owner, search=search, before=before, limit=limit)
        )

    async def describe_conversation(self, conversation: str, owner: str) -> ListedConversation | None:
        return await self._read(lambda connection: conversation_list.describe_conversation(connection, conversation, owner))

    async def update_conversation(self, conversation: str, owner: str, metadata: dict[str, str]) -> Conversation | None:
        at = self._clock()
        return await self._writer.run(
            lambda connection: conversations.update_conversation(connection, conversation, owner, metadata, at)
        )

    async def delete_conversation(self, conversation: str, owner: str) -> bool:
        return await self._writer.run(lambda connection: conversations.delete_conversation(connection, conversation, owner))

    async def add_items(self, conversation: str, owner: str, items: Sequence[ConversationItem]) -> bool:
        at = self._clock()
        return await self._writer.run(lambda connection: conversations.add_items(connection, conversation, owner, items, at))

    async def list_items(
        self, conversation: str, owner: str, *, after: str | None = None, limit: int = 100, descending: bool = False
    ) -> list[ConversationItem] | None:
        return await self._read(
            lambda connection: conversations.list_items(
                connection, conversation, owner, after=after, limit=limit, descending=descending
            )
        )

    async def load_item(self, conversation: str, owner: str, item: str) -> ConversationItem | None:
        return await self._read(lambda connection: conversations.load_item(connection, conversation, owner, item))

    async def delete_item(self, conversation: str, owner: str, item: str) -> bool:
        at = self._clock()
        return await self._writer.run(lambda connection: conversations.delete_item(connection, conversation, owner, item, at))

    async def find_conversation(self, owner: str, heads: Sequence[str]) -> tuple[str, str] | None:
        return await self._read(lambda connection: conversations.find_conversation(connection, owner, heads))

    # Approvals

    async def load_approval(self, approval: str) -> ApprovalRow | None:
        return await self._read(lambda connection: sql_approvals.load_approval(connection, approval))

    async def list_approvals(self, status: QuestionStatus | None = None, *, limit: int = 100) -> list[ApprovalRow]:
        return await self._read(lambda connection: sql_approvals.list_approvals(connection, status, limit))

    async def add_rule(self, rule: RuleRow) -> None:
        await self._writer.run(lambda connection: sql_approvals.add_rule(connection, rule))

    async def list_rules(self) -> list[RuleRow]:
        return await self._read(sql_approvals.list_rules)

    async def find_rules(self, owner: str, tool: str) -> list[RuleRow]:
        return await self._read(lambda connection: sql_approvals.find_rules(connection, owner, tool))

    async def delete_rule(self, rule: str) -> bool:
        return await self._writer.run(lambda connection: sql_approvals.delete_rule(connection, rule))

    # Sessions

    async def add_session(self, session: SessionRow) -> None:
        await self._writer.run(lambda connection: sessions.add_session(connection, session))

    async def find_session(self, digest: str) -> SessionRow | None:
        return await self._read(lambda connection: sessions.find_session(connection, digest))

    async def list_sessions(self, owner: str | None = None) -> list[SessionRow]:
        return await self._read(lambda connection: sessions.list_sessions(connection, owner))

    async def touch_session(self, session: str, at: float) -> None:
        await self._writer.run(lambda connection: sessions.touch_session(connection, session, at))

    async def delete_session(self, session: str, owner: str | None = None) -> bool:
        return await self._writer.run(lambda connection: sessions.delete_session(connection, session, owner))

    # Keys

    async def add_key(self, key: KeyRow) -> None:
        await self._writer.run(lambda connection: keys.add_key(connection, key))

    async def list_keys(self) -> list[KeyRow]:
        return await self._read(keys.list_keys)

    async def rotate_key(self, key: str, sha256: str, at: float) -> bool:
        return await self._writer.run(lambda connection: keys.rotate_key(connection, key, sha256, at))

    async def revoke_key(self, key: str, at: float) -> bool:
        return await self._writer.run(lambda connection: keys.revoke_key(connection, key, at))

    async def touch_key(self, key: str, at: float) -> None:
        await self._writer.run(lambda connection: keys.touch_key(connection, key, at))

    # Settings

    async def load_settings(self) -> list[SettingRow]:
        return await self._read(settings.load_settings)

    async def change_settings(self, changed: Sequence[SettingRow], removed: Sequence[str] = ()) -> None:
        await self._writer.run(lambda connection: settings.change_settings(connection, changed, removed))

    # Usage, retention, export

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        await self._writer.run(lambda connection: usage.add_usage(connection, rows))

    async def list_usage_shares(self, query: UsageQuery) -> list[UsageShare]:
        return await self._read(lambda connection: usage.list_shares(connection, query))

    async def sum_usage(self, query: UsageQuery, names: Sequence[str]) -> list[UsageSum]:
        return await self._read(lambda connection: usage.sum_usage(connection, query, names))

    async def prune(self, before: float) -> PruneResult:
        return PruneResult(
            turns=await self._prune_all(partial(retention.prune_turns, before=before, limit=PRUNE_AT_ONCE)),
            conversations=await self._prune_all(partial(retention.prune_conversations, before=before, limit=PRUNE_AT_ONCE)),
            usage=await self._writer.run(lambda connection: retention.prune_usage(connection, before)),
        )

    async def _prune_all(self, prune_some: Operation[int]) -> int:
        total = 0
        while count := await self._writer.run(prune_some):
            total += count
        return total

    async def export(self) -> AsyncIterator[JsonObject]:
        for read_page, start in EXPORTS:
            following: tuple[object, ...] | None = start
            while following is not None:
                records, following = await self._read(partial(read_page, following))
                for record in records:
                    yield record
