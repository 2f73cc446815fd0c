"""Deletion of old data."""

from __future__ import annotations

from toolrelay.stores.sql.database import Connection

# A parked turn waits for a person who was asked, or for a client to repeat its request. Only the former is kept for ever. A turn
# that has ended with a question to its client is kept until the question expires.
_IS_WAITING = """(
    {0}.status = 'running' OR EXISTS (
        SELECT 1 FROM approvals
        WHERE approvals.turn = {0}.id AND approvals.status = 'pending' AND ({0}.status = 'parked' OR approvals.expires_at >= ?)
    )
)"""
# Newest first, so that a turn is deleted before the one that it continues.
_PRUNE_TURNS = f"""
    DELETE FROM turns WHERE id IN (
        SELECT id FROM turns
        WHERE created_at < ? AND NOT coalesce({_IS_WAITING.format("turns")}, FALSE)
            AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.turn = turns.id AND steps.at >= ?)
            AND NOT EXISTS (SELECT 1 FROM turns AS later WHERE later.previous = turns.id)
            AND NOT EXISTS (SELECT 1 FROM conversations WHERE conversations.id = turns.conversation AND last_used_at >= ?)
            AND NOT EXISTS (
                SELECT 1 FROM turns AS other
                WHERE other.conversation = turns.conversation AND {_IS_WAITING.format("other")}
            )
        ORDER BY created_at DESC LIMIT ?
    )"""
_PRUNE_CONVERSATIONS = """
    DELETE FROM conversations WHERE id IN (
        SELECT id FROM conversations
        WHERE last_used_at < ? AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.conversation = conversations.id)
        LIMIT ?
    )"""
_PRUNE_USAGE = "DELETE FROM usage WHERE minute < ?"

_EVICT_TURNS = """
    DELETE FROM turns WHERE id IN (
        SELECT id FROM turns
        WHERE status NOT IN ('running', 'parked')
            AND NOT EXISTS (
                SELECT 1 FROM approvals
                WHERE approvals.turn = turns.id AND approvals.status = 'pending' AND approvals.expires_at >= ?
            )
        ORDER BY created_at LIMIT ?
    )"""
_OTHER_EVICTIONS = (
    """DELETE FROM conversations WHERE id IN (
        SELECT id FROM conversations
        WHERE NOT EXISTS (SELECT 1 FROM turns WHERE turns.conversation = conversations.id)
        ORDER BY last_used_at LIMIT ?
    )""",
    "DELETE FROM usage WHERE minute IN (SELECT DISTINCT minute FROM usage ORDER BY minute LIMIT ?)",
)


def prune_turns(connection: Connection, before: float, limit: int) -> int:
    """Delete turns that nothing refers to. Chains are shortened from their ends: repeat it until it returns 0."""
    return connection.execute(_PRUNE_TURNS, (before,) * 5 + (limit,)).rowcount


def prune_conversations(connection: Connection, before: float, limit: int) -> int:
    return connection.execute(_PRUNE_CONVERSATIONS, (before, limit)).rowcount


def prune_usage(connection: Connection, before: float) -> int:
    return connection.execute(_PRUNE_USAGE, (int(before // 60),)).rowcount


def evict(connection: Connection, count: int, now: float) -> bool:
    """Delete some of what is least needed: finished turns, then conversations without turns, then usage; oldest first."""
    if connection.execute(_EVICT_TURNS, (now, count)).rowcount:
        return True
    return any(connection.execute(statement, (count,)).rowcount for statement in _OTHER_EVICTIONS)
