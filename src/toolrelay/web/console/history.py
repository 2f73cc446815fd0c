"""The console's list of conversations, which OpenAI's API does not have: titles, search, running turns, and what answers cost."""

from __future__ import annotations

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
from toolrelay.web.paging import decode_cursor, encode_cursor, whole_number
from toolrelay.web.site import identify
from toolrelay.wires.json import encode_repaired

DEFAULT_LIMIT = 50
MAX_LIMIT = 100
MAX_SEARCH = 200  # characters
MAX_ANSWERS = 50  # in one request
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
        before = decode_cursor(query)
        found = await self._store.list_conversations(owner_of(identity), search=search, before=before, limit=limit)
        entries: list[Json] = [_members(each) for each in found.entries]
        return _respond({"object": "list", "data": entries, "next": encode_cursor(found.next)})

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


def _respond(value: JsonObject) -> Response:
    return Response(encode_repaired(value), headers={"content-type": "application/json", "cache-control": "no-store"})
