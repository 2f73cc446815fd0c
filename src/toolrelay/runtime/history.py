"""The past of a request: what it refers to is looked up in the store and put in its place.

previous_response_id   the turns before this one, with their gateway calls
conversation           the conversation's items
item_reference         the item of an earlier turn
mcp_call               an echoed gateway call: as recorded, if the gateway knows it
calls of the client    what its wire could not carry of the turn that made them: gateway calls, reasoning
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.core.conversation import conversation_heads
from toolrelay.core.identity import TOKEN_LENGTH
from toolrelay.core.messages import Call, Item, Message, OpaqueItem, Reasoning, Result, withhold_private
from toolrelay.core.request import Request
from toolrelay.core.request_checks import find_orphan_result
from toolrelay.errors import ClientError, invalid
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.runtime.returned_questions import NOTHING, ReturnedQuestions, TakenUp
from toolrelay.stores.base import Store
from toolrelay.wires.responses.references import gateway_call_items
from toolrelay.wires.responses.request import APPROVAL_REQUEST, decode_item, reference_of
from toolrelay.wires.responses.tool_groups import inherit_tools

MAX_CHAIN = 1000
ITEM_PAGE = 1000
_NUMBER_LENGTH = 4


class Context(Struct, frozen=True, kw_only=True):
    """The items that come before a request's own, and the turn and conversation that they are from.

    `end` is the position after the last item of a conversation that the request names.
    """

    items: tuple[Item, ...] = ()
    previous: str | None = None
    conversation: str | None = None
    end: int | None = None


class Past(Struct, frozen=True, kw_only=True):
    """`request` has no references any more, nor answers to questions: `taken` has those."""

    request: Request
    context: Context = Context()
    taken: TakenUp = NOTHING


class PastResolver:
    """`questions` are those that clients answer in requests."""

    def __init__(self, store: Store, questions: ReturnedQuestions) -> None:
        self._store = store
        self._questions = questions

    async def resolve(self, request: Request, owner: str, *, is_local: bool) -> Past:
        """Look up what the request refers to, or raise ClientError. Only a local model sees private results."""
        context = await self.context(request, owner, is_local=is_local)
        items = await self._resolve_input(request.items, owner, request.model)
        taken, answers = await self._questions.take_up(items, (*context.items, *items), owner, is_local=is_local)
        if answers:
            kept = [item for position, item in enumerate(items) if position not in answers]
            items = (*taken.history, *kept)
        _check_answers(context.items, items, taken)
        items = items if is_local else withhold_private(items)
        if items != request.items:
            request = replace(request, items=items)
        param = "conversation" if request.previous_response_id is None else "previous_response_id"
        request = inherit_tools(request, context.items, param)
        return Past(request=request, context=context, taken=taken)

    async def context(self, request: Request, owner: str, *, is_local: bool, end: int | None = None) -> Context:
        """Return what the request continues. `end` is that of the context when the request was accepted, if it was before."""
        context = await self._context(request, owner, end)
        return context if is_local else replace(context, items=withhold_private(context.items))

    async def _context(self, request: Request, owner: str, end: int | None) -> Context:
        if request.previous_response_id is not None:
            turns = await self._chain(request.previous_response_id, owner)
            earlier = await self._items_before(turns[0])
            items = (*earlier, *[item for turn in turns for item in turn.items])
            return Context(items=items, previous=turns[-1].row.id, conversation=turns[-1].row.conversation)
        if request.conversation is not None:
            items, end = await self._conversation_items(request.conversation, owner, end=end)
            return Context(items=items, conversation=request.conversation, end=end)
        return Context()

    async def _items_before(self, first: PastTurn) -> tuple[Item, ...]:
        """Return the items that a conversation had before the first turn of a chain was added to it."""
        conversation = first.request.conversation
        if conversation is None:
            return ()
        try:
            items, _ = await self._conversation_items(conversation, first.row.owner, before=first.row.id, end=first.context_end)
        except ClientError:
            message = f"The response 'resp_{first.row.id}' is part of the conversation {conversation!r}, which was deleted."
            raise invalid(message, "previous_response_id") from None
        return items

    async def find_conversation(self, items: Sequence[Item], owner: str) -> tuple[str, int] | None:
        """Return the recorded conversation that a Chat request continues, and how many of its items are known."""
        heads = conversation_heads(items)
        found = await self._store.find_conversation(owner, [head for head, _ in heads]) if heads else None
        if found is None:
            return None
        conversation, head = found
        return conversation, dict(heads)[head]

    # Responses

    async def _chain(self, response_id: str, owner: str) -> list[PastTurn]:
        turns: list[PastTurn] = []
        token: str | None = token_of(response_id)
        if response_id != f"resp_{token}":
            raise _missing_response(response_id)
        while token is not None:
            if len(turns) >= MAX_CHAIN:
                message = (
                    f"The conversation of {response_id!r} has more than {MAX_CHAIN} responses, which is the limit. "
                    "Begin a new one, or send what is still needed of it in 'input'."
                )
                raise invalid(message, "previous_response_id", code="chain_too_long")
            stored = await self._store.load_turn(token, owner)
            if stored is None or not stored.row.stored:
                await self._refuse_chain(response_id, token, owner)
                raise AssertionError  # refused
            turns.append(PastTurn.load(stored))
            token = stored.row.previous
        turns.reverse()
        if not turns[-1].progress.has_ended:
            message = f"The response {response_id!r} is still in progress. Wait until it is complete, or cancel it."
            raise invalid(message, "previous_response_id", code="response_in_progress")
        return turns

    async def _refuse_chain(self, response_id: str, token: str, owner: str) -> None:
        if await self._store.was_deleted(token, owner):
            message = f"The conversation of {response_id!r} goes through the response 'resp_{token}', which was deleted."
            raise invalid(message, "previous_response_id")
        raise _missing_response(response_id)

    async def _conversation_items(
        self, conversation: str, owner: str, *, before: str = "", end: int | None = None
    ) -> tuple[tuple[Item, ...], int]:
        """Return the items of a conversation as the model is to see them, and the position after them.

        Only those before the ones of the turn `before` and before the position `end` are returned.
        """
        items: list[Item] = []
        position = 0
        after: str | None = None
        while True:
            page = await self._store.list_items(conversation, owner, after=after, limit=ITEM_PAGE)
            if page is None:
                raise ClientError(f"Conversation with id {conversation!r} not found.", status=404, code="conversation_not_found")
            wanted = [*takewhile(lambda each: token_of(each.id) != before and (end is None or each.position < end), page)]
            items += [decode_item(each.data, each.id) for each in wanted]
            position = wanted[-1].position + 1 if wanted else position
            if len(wanted) < ITEM_PAGE:
                turns = await self._load_turns(items, owner)
                return tuple([each for item in items for each in _as_recorded(item, turns)]), position
            after = page[-1].id

    # Items

    async def _load_turns(self, items: Sequence[Item], owner: str) -> dict[str, PastTurn]:
        """Return the turns that the items come from, by token."""
        turns: dict[str, PastTurn] = {}
        for token in {token for item in items if (token := _token_of_item(item)) is not None}:
            stored = await self._store.load_turn(token, owner)
            if stored is not None:
                turns[token] = PastTurn.load(stored)
        return turns

    async def _resolve_input(self, items: tuple[Item, ...], owner: str, model: str) -> tuple[Item, ...]:
        """Return the items without references, and with what the client's wire could not carry."""
        turns = await self._load_turns([item for item in items if not isinstance(item, Message)], owner)  # messages lack nothing
        if not turns and not any(reference_of(item) is not None for item in items):
            return items
        recalled = {token: history for token, turn in turns.items() if (history := _recall(turn, items, model))}
        out: list[Item] = []
        placed: dict[str, int] = {}  # recalled turns that are in `out`, and where they end there
        for position, item in enumerate(items):
            token = _token_of_item(item)
            turn = turns.get(token) if token is not None else None
            identifier = reference_of(item)
            if token is not None and token in recalled:
                _drop_answer_text(out, placed.get(token, 0), recalled[token])
                if token not in placed:
                    out += recalled[token]
                placed[token] = len(out)
            elif identifier is not None:
                out += _dereferenced(item, identifier, turn, f"input[{position}]")
            else:
                out += _as_recorded(item, turns)
        return tuple(out)


def token_of(identifier: str) -> str:
    """Return the turn's token that is part of an id: resp_TOKEN, or msg_TOKEN0000 for an item."""
    return identifier.partition("_")[2][:TOKEN_LENGTH]


def _missing_response(response_id: str) -> ClientError:
    reason = "It was not stored, has expired, or is another key's."
    if not response_id.startswith("resp_"):
        reason = "The id of a response begins with 'resp_'."
    message = f"Previous response with id {response_id!r} not found. {reason}"
    return invalid(message, "previous_response_id", code="previous_response_not_found")


def _token_of_item(item: Item) -> str | None:
    """Return the token of the turn that an item of a client's input may come from."""
    match item:
        case Call(id=identifier) | Reasoning(id=str(identifier)) | Message(id=str(identifier)):
            pass
        case OpaqueItem():
            identifier = reference_of(item) or ""
        case _:
            return None
    rest = identifier.partition("_")[2]
    return rest[:TOKEN_LENGTH] if len(rest) == TOKEN_LENGTH + _NUMBER_LENGTH and rest.isalnum() else None


def _dereferenced(item: Item, identifier: str, turn: PastTurn | None, param: str) -> list[Item]:
    found = turn.find_item(identifier) if turn is not None else []
    if found:
        return found
    history = _history_items(item)
    if history == [item] and not _is_question(item):  # that of another server
        message = (
            f"Item with id {identifier!r} not found. It was not stored, has expired, or is another key's: send the item itself."
        )
        raise invalid(message, param, code="item_not_found")
    return history


def _is_question(item: Item) -> bool:
    return isinstance(item, OpaqueItem) and item.raw.get("type") == APPROVAL_REQUEST


def _history_items(item: Item) -> list[Item]:
    """Return a gateway call as call and result; any other item as it is."""
    if isinstance(item, OpaqueItem) and item.raw.get("type") == "mcp_call":
        return gateway_call_items(item.raw) or [item]
    return [item]


def _as_recorded(item: Item, turns: Mapping[str, PastTurn]) -> list[Item]:
    """Return a gateway call as recorded, and reasoning with the provider's id, on which its encrypted content may depend."""
    turn = turns.get(_token_of_item(item) or "")
    match item:
        case Reasoning(id=str(identifier)) if turn is not None:
            return [replace(item, id=found.id) for found in turn.find_item(identifier) if isinstance(found, Reasoning)] or [item]
        case OpaqueItem() if turn is not None:
            return turn.find_item(reference_of(item) or "") or _history_items(item)
        case _:
            return _history_items(item)


def _recall(turn: PastTurn, items: Sequence[Item], model: str) -> list[Item]:
    """Return a recorded turn that stands in the place of what the client has of it, or nothing if the items say it all.

    Only a turn that ended with calls of the client is recalled, without calls that the client no longer sends.
    """
    given = {item.id for item in items if isinstance(item, Call)}
    references = {reference_of(item) for item in items}
    given |= {shown.id for own_id, shown in turn.output() if isinstance(shown, Call) and own_id in references}
    handed_over = {call.id for call in turn.progress.client_calls}
    if given.isdisjoint(handed_over):
        return []
    history = [item for item in turn.history if not isinstance(item, Call) or item.id in given or item.id not in handed_over]
    if turn.row.model != model:  # another model cannot read it
        history = [item for item in history if not isinstance(item, Reasoning)]
    lacks = any(isinstance(item, Result) or (isinstance(item, Reasoning) and item.encrypted) for item in history)
    return history if lacks else []


def _drop_answer_text(out: list[Item], start: int, recalled: Sequence[Item]) -> None:
    """Drop the text and the reasoning of the answer at the end, which the record has too."""
    known = {item.encrypted for item in recalled if isinstance(item, Reasoning)}
    while len(out) > start and _is_recalled(out[-1], known):
        out.pop()


def _is_recalled(item: Item, known: Collection[str | None]) -> bool:
    """Return whether the record has an item right before a call. Of reasoning, some wires give back neither id nor seal."""
    if isinstance(item, Reasoning):
        return item.encrypted in known or (item.id is None and item.encrypted is None)
    return isinstance(item, Message) and item.role == "assistant"


def _check_answers(context: Sequence[Item], items: Sequence[Item], taken: TakenUp) -> None:
    """Raise ClientError for a call without a result, or a result without a call."""
    results = {item.call_id for item in (*context, *items) if isinstance(item, Result)}
    results |= {each.call.id for each in taken.calls}
    for call in context:
        if isinstance(call, Call) and call.id not in results:
            message = (
                f"The call {call.id!r} of the tool {call.name!r} has no output. Send a function_call_output for it in 'input'."
            )
            raise invalid(message, "input", code="missing_tool_output")
    if not context:
        return
    position = find_orphan_result((*context, *items))
    if position is None:
        return
    orphan = (*context, *items)[position]
    name = orphan.call_id if isinstance(orphan, Result) else ""
    if position < len(context):  # clients add what they like to a conversation, and delete what they like
        message = f"The conversation has an output of the call {name!r}, but not the call. Delete the output, or add the call."
        raise invalid(message, "conversation", code="unknown_call")
    message = f"The output answers the call {name!r}, which is neither in 'input' nor in the conversation before it."
    raise invalid(message, f"input[{position - len(context)}].call_id", code="unknown_call")
