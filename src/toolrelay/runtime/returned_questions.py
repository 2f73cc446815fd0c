"""Questions that were returned to the client, and its answers: items of type mcp_approval_response in its next request.

In this mode (`approval = "return"`) the key that asked answers. A question can be answered once, whatever the request continues:
the store refuses a second answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct

from toolrelay.core.approvals import NO_FILES, approval_id, canonical_json, is_empty_selection
from toolrelay.core.messages import WITHHELD, Call, Item, OpaqueItem, Result
from toolrelay.core.progress import PendingGatewayCall
from toolrelay.core.steps import TakenCall, VerdictGiven
from toolrelay.core.validation import validate
from toolrelay.errors import ClientError, invalid
from toolrelay.runtime.approvals import MAX_REASON
from toolrelay.runtime.gateway_tools import OpenTool
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.stores.approvals import ApprovalRow
from toolrelay.stores.base import Store
from toolrelay.wires.responses.references import ApprovalResponse, approval_response

FindTool = Callable[[ApprovalRow], OpenTool | None]


class TakenUp(Struct, frozen=True, kw_only=True):
    """What a request answers: the calls of an earlier turn, the verdicts on them, and that turn's history."""

    calls: tuple[TakenCall, ...] = ()
    verdicts: tuple[VerdictGiven, ...] = ()
    history: tuple[Item, ...] = ()


NOTHING = TakenUp()


class _Answer(Struct, frozen=True):
    response: ApprovalResponse
    row: ApprovalRow
    param: str


class ReturnedQuestions:
    def __init__(self, store: Store, find_tool: FindTool, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._find_tool = find_tool
        self._clock = clock

    async def take_up(
        self, sent: Sequence[Item], known: Sequence[Item], owner: str, *, is_local: bool
    ) -> tuple[TakenUp, frozenset[int]]:
        """Return what the sent items answer, and the positions of the answers among them. `known` is the whole conversation.

        An answer whose call has a result is history. Raise ClientError for an answer that cannot be taken, or is missing.
        """
        results = {item.call_id for item in known if isinstance(item, Result)}
        answers: list[_Answer] = []
        positions: list[int] = []
        for position, item in enumerate(sent):
            response = approval_response(item) if isinstance(item, OpaqueItem) else None
            row = None if response is None else await self._store.load_approval(response.approval_request_id)
            if response is None or row is None or row.owner != owner or row.mode != "return":
                continue  # another server's
            positions.append(position)
            if row.call_id not in results:
                answers.append(_Answer(response, row, f"input[{position}]"))
        await self._check_complete(known, results, answers, owner)
        taken = [
            await self._take_turn([*group], owner, is_local=is_local)
            for _, group in groupby(sorted(answers, key=_turn_of), key=_turn_of)
        ]
        has_calls = {item.id for item in known if isinstance(item, Call)}
        return (
            TakenUp(
                calls=tuple([call for each in taken for call in each.calls]),
                verdicts=tuple([verdict for each in taken for verdict in each.verdicts]),
                history=tuple(
                    [item for each in taken if not any(call.call.id in has_calls for call in each.calls) for item in each.history]
                ),
            ),
            frozenset(positions),
        )

    async def _check_complete(self, known: Sequence[Item], results: set[str], answers: Sequence[_Answer], owner: str) -> None:
        answered = {answer.row.call_id for answer in answers}
        for item in known:
            if not isinstance(item, Call) or item.id in results or item.id in answered:
                continue
            row = await self._store.load_approval(approval_id(item.id))
            if row is not None and row.owner == owner and row.mode == "return":
                raise _unanswered(row)

    async def _take_turn(self, answers: Sequence[_Answer], owner: str, *, is_local: bool) -> TakenUp:
        """Return the gateway calls of a turn, and the verdicts on those that it asked about."""
        stored = await self._store.load_turn(answers[0].row.turn, owner)
        if stored is None:
            raise invalid(f"The question {answers[0].row.id!r} is no longer known.", answers[0].param, code="approval_not_found")
        past = PastTurn.load(stored)
        given = {answer.row.call_id for answer in answers}
        for left in past.progress.left:
            if left.call.id not in given:
                row = await self._store.load_approval(approval_id(left.call.id))
                if row is not None:
                    raise _unanswered(row)
        return TakenUp(
            calls=tuple([_taken(each, is_local=is_local) for each in past.progress.pending.values()]),
            verdicts=tuple([self._verdict(answer, owner) for answer in answers]),
            history=tuple(past.history),
        )

    def _verdict(self, answer: _Answer, owner: str) -> VerdictGiven:
        response, row, param = answer.response, answer.row, answer.param
        if row.status != "pending":
            message = f"The question {row.id!r} is {row.status} already. A question can be answered once."
            raise invalid(message, param, code="already_answered")
        reason = (response.reason or "").strip()[:MAX_REASON] or None
        denial = VerdictGiven(call_id=row.call_id, verdict="deny", reason=reason, by=owner)
        if not response.approve:
            return denial
        if row.expires_at < self._clock():
            message = f"The question {row.id!r} has expired. Answer it with approve = false to go on without the call."
            raise invalid(message, param, code="approval_expired")
        arguments = response.arguments
        if arguments is None or canonical_json(arguments) == canonical_json(row.arguments):
            return VerdictGiven(call_id=row.call_id, verdict="allow", reason=reason, by=owner)
        tool = self._find_tool(row)
        problem = None if tool is None else validate(tool.gateway_tool.tool, arguments)
        if problem is not None:
            message = f"These arguments cannot be approved: {problem}."
            raise invalid(message, f"{param}.arguments", code="invalid_arguments")
        if is_empty_selection(arguments, None if tool is None else tool.definition.files_argument):
            return msgspec.structs.replace(denial, reason=reason or NO_FILES)
        return VerdictGiven(call_id=row.call_id, verdict="allow", arguments=arguments, reason=reason, by=owner)


def _turn_of(answer: _Answer) -> str:
    return answer.row.turn


def _taken(pending: PendingGatewayCall, *, is_local: bool) -> TakenCall:
    output = None
    if pending.is_done:
        result = pending.result()
        output = WITHHELD if result.private and not is_local else result.output
    return TakenCall(
        call=pending.call,
        toolset=pending.toolset,
        arguments=pending.call.arguments if output is not None else pending.arguments,
        output=output,
        private=pending.private,
    )


def _unanswered(row: ApprovalRow) -> ClientError:
    message = (
        f"The question {row.id!r} about the tool {row.tool!r} has no answer. Send an mcp_approval_response with "
        f"approval_request_id {row.id!r} in 'input'."
    )
    return invalid(message, "input", code="missing_approval_response")
