"""The console's list of conversations, which OpenAI's API does not have: titles, search, running turns, and what answers cost."""

from __future__ import annotations

import math
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import ClientError, invalid
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.runtime.service import owner_of
from toolrelay.stores.base import Store
from toolrelay.stores.conversations import ListedConversation
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.paging import whole_number
from toolrelay.web.site import identify
from toolrelay.wires.json import encode_repaired

DEFAULT_LIMIT = 50
MAX_LIMIT = 100
MAX_SEARCH = 200  # characters
MAX_ANSWERS = 50  # in one request
_CURSOR = re.compile(r"([0-9.e+]{1,30})_([\w-]{1,100})")
_RESPONSE = "resp_"


class HistoryPages:
    """Each owner sees their own conversations.

    Without keys everybody on the machine is one owner. Then the list is for people who are signed in, or have the approver's
    token: others know only the conversations whose ids they know.
    """

    def __init__(self, store: Store, approvers: Approvers) -> None:
        self._store = store
        self._approvers = approvers

    def routes(self) -> list[Route]:
        return [
            Route("/api/conversations", self.list),
            Route("/api/conversations/{id}", self.retrieve),
            Route("/api/conversations/{id}/answers", self.list_answers),
        ]

    async def list(self, request: Request) -> Response:
        identity, query = identify(request), request.query_params
        self._approvers.require_person(identity, request.headers.get("authorization"), subject="Lists of conversations")
        search = query.get("q", "")
        if len(search) > MAX_SEARCH:
            raise invalid(f"'q' can have at most {MAX_SEARCH} characters.", "q")
        limit = whole_number(query, "limit", default=DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
        before = _decode_cursor(query["before"]) if query.get("before") else None
        found = await self._store.list_conversations(owner_of(identity), search=search, before=before, limit=limit)
        following = None if found.next is None else f"{found.next[0]!r}_{found.next[1]}"
        return _respond({"object": "list", "data": [_members(each) for each in found.entries], "next": following})

    async def retrieve(self, request: Request) -> Response:
        found = await self._find(request)
        return _respond(_members(found))

    async def list_answers(self, request: Request) -> Response:
        """Return what answers of a conversation took: tokens and seconds. `ids` are those of their responses."""
        found = await self._find(request)
        ids = [each for each in request.query_params.get("ids", "").split(",") if each]
        if not ids or len(ids) > MAX_ANSWERS:
            raise invalid(f"'ids' must name 1 to {MAX_ANSWERS} responses, separated by commas.", "ids")
        answers: list[Json] = []
        for identifier in dict.fromkeys(ids):
            stored = await self._store.load_turn(identifier.removeprefix(_RESPONSE), found.conversation.owner)
            if stored is None or stored.row.conversation != found.conversation.id or not stored.steps:
                continue
            usage = PastTurn.load(stored).progress.usage
            answers.append(
                {
                    "id": _RESPONSE + stored.row.id,
                    "model": stored.row.model,
                    "status": stored.row.status,
                    "input": None if usage is None else usage.input,
                    "output": None if usage is None else usage.output,
                    "seconds": round(max(stored.steps[-1].at - stored.row.created_at, 0), 3),
                }
            )
        return _respond({"object": "list", "data": answers})

    async def _find(self, request: Request) -> ListedConversation:
        identifier = request.path_params["id"]
        found = await self._store.describe_conversation(identifier, owner_of(identify(request)))
        if found is None:
            raise ClientError(f"Conversation with id {identifier!r} not found.", status=404, code="conversation_not_found")
        return found


def _members(listed: ListedConversation) -> JsonObject:
    return {
        "id": listed.conversation.id,
        "title": listed.title,
        "created_at": listed.conversation.created_at,
        "last_used_at": listed.conversation.last_used_at,
        "running": None if listed.running is None else _RESPONSE + listed.running,
    }


def _decode_cursor(text: str) -> tuple[float, str]:
    match = _CURSOR.fullmatch(text)
    try:
        at = float(match[1]) if match else math.nan
    except ValueError:
        at = math.nan
    if match is None or not math.isfinite(at):
        raise invalid("'before' must be the 'next' of an earlier page.", "before")
    return at, match[2]


def _respond(value: JsonObject) -> Response:
    return Response(encode_repaired(value), headers={"content-type": "application/json", "cache-control": "no-store"})
