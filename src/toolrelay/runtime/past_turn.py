"""A recorded turn: what it was asked, what it added to the conversation, and what its client was shown."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.approvals import NOT_ANSWERED_SHARE
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.conversation import head_after
from toolrelay.core.events import StreamEvent
from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN
from toolrelay.core.messages import ApprovalRequest, Call, GatewayCall, Item, OutputItem, Result, insert_results
from toolrelay.core.playback import shown_events
from toolrelay.core.progress import CallState, PendingGatewayCall, TurnProgress
from toolrelay.core.request import Request
from toolrelay.core.steps import StepEvent, TurnAccepted, TurnFailed
from toolrelay.errors import InternalError
from toolrelay.stores.conversations import ConversationItem
from toolrelay.stores.turns import StoredTurn, TurnRow
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses.outgoing import input_items, is_input_id
from toolrelay.wires.responses.references import PRIVATE
from toolrelay.wires.responses.request import NAME as RESPONSES
from toolrelay.wires.responses.resource import is_output, item_members, output_id

_INTERRUPTED = ("client_gone", "client_stalled", "shutting_down")
_PASSING = (408, 429)  # of the provider: too slow, too many requests


def joins_answers(request: Request) -> bool:
    """Return whether the client gets the texts of all answers as one: a Chat message has one text."""
    return request.wire != RESPONSES


def _early_result(pending: PendingGatewayCall) -> Result | None:
    """Return the result of a gateway call of a turn that ended before its answer was complete, if it was run."""
    call = pending.call
    match pending.state:
        case CallState.DONE:
            return pending.result()
        case CallState.RUNNING:
            return Result(call_id=call.id, output=OUTCOME_UNKNOWN, kind=call.kind)
        case CallState.RAN | CallState.SHARE_ASKED:
            return Result(call_id=call.id, output=NOT_ANSWERED_SHARE, kind=call.kind)
        case _:
            return None


class PastTurn:
    def __init__(self, row: TurnRow, steps: Sequence[StepEvent]) -> None:
        accepted = steps[0] if steps else None
        if not isinstance(accepted, TurnAccepted):
            raise InternalError(f"The record of the turn {row.id} does not begin with its request.")
        self.row = row
        self.steps = steps
        self.request = accepted.request
        self.context_end = accepted.context_end
        self.progress = TurnProgress()
        for step in steps[1:]:
            self.progress.apply(step)

    @classmethod
    def load(cls, stored: StoredTurn) -> PastTurn:
        return cls(stored.row, [each.step for each in stored.steps])

    @property
    def can_resume(self) -> bool:
        """Return whether a repeated request continues the turn.

        It has not ended, or only because nobody followed it, or with an error that may pass.
        """
        last = self.steps[-1]
        if not isinstance(last, TurnFailed):
            return not self.progress.has_ended
        return last.code in _INTERRUPTED or last.status >= 500 or last.status in _PASSING

    @property
    def items(self) -> list[Item]:
        return [*insert_results(self.request.items, self.inherited), *self.history]

    @property
    def history(self) -> list[Item]:
        """Return what the turn added, without calls that were not run, unless the client is to answer them.

        The results of an answer are added to the history together. If the turn ended before all were there, those that were are
        added here; a tool that was still running may have done its work, and the model is told so. If the turn ended with
        questions to the client, the turn that gets the answers has the results.
        """
        progress = self.progress
        early = [] if progress.has_taken_up else self._early_results
        history: list[Item] = [*progress.history, *early]
        kept = {item.call_id for item in history if isinstance(item, Result)}
        kept |= {call.id for call in progress.client_calls} if progress.handed_over else set()
        kept |= progress.pending.keys() if progress.left else set()
        return [item for item in history if not isinstance(item, Call) or item.id in kept]

    @property
    def inherited(self) -> list[Result]:
        """Return the results of calls of an earlier turn, which ended with questions that this turn's request answers."""
        return [*self.progress.inherited, *(self._early_results if self.progress.has_taken_up else [])]

    @property
    def _early_results(self) -> list[Result]:
        progress = self.progress
        if not progress.has_ended or progress.is_settled or progress.left:
            return []
        return [result for each in progress.pending.values() if (result := _early_result(each)) is not None]

    @property
    def envelope(self) -> Envelope:
        return Envelope(token=self.row.id, created=int(self.row.created_at), model=self.request.model, request=self.request)

    def shown_events(self) -> list[StreamEvent]:
        """Return the events that the client was shown, and the end if there is one."""
        return shown_events(self.steps, joins_answers=joins_answers(self.request))

    def answer(self) -> Answer:
        """Return what the client was shown."""
        assembly = Assembly()
        for event in self.shown_events():
            assembly.add(event)
        return assembly.answer()

    def output(self) -> list[tuple[str, OutputItem]]:
        """Return the items that the client was shown, with their ids."""
        shown = [item for item in self.answer().items if is_output(item)]
        stored = self.request.store is True
        return [(output_id(item, self.row.id, index, stored=stored), item) for index, item in enumerate(shown)]

    def find_item(self, identifier: str) -> list[Item]:
        """Return an item of the output or the input as the model is to see it. There are none if there is no such item."""
        for own_id, shown in self.output():
            if own_id == identifier:
                return self._recorded(shown)
        return [item for index, item in enumerate(self.request.items) if is_input_id(identifier, self.row.id, index)]

    def _recorded(self, item: OutputItem) -> list[Item]:
        if not isinstance(item, GatewayCall | ApprovalRequest):
            return [item]
        call_id = item.id if isinstance(item, GatewayCall) else "call_" + item.id.partition("_")[2]
        return [
            each
            for each in (*self.inherited, *self.history)
            if (isinstance(each, Call) and each.id == call_id) or (isinstance(each, Result) and each.call_id == call_id)
        ]

    def head(self, items: Sequence[Item] | None = None) -> str | None:
        """Return the digest by which a request that continues the turn is recognised. `items` are the client's own."""
        return head_after(
            self.request.items if items is None else items,
            self.progress.history,
            [call.id for call in self.progress.client_calls],
        )

    def conversation_items(self) -> list[ConversationItem]:
        """Return input and output for the conversation, with the ids under which the client knows them.

        A call with a private result is marked, because the conversation may outlive the record of the turn.
        """
        given = input_items(self.request.items, self.row.id)
        results = [item for item in (*self.inherited, *self.history) if isinstance(item, Result)]
        private = {item.call_id for item in results if item.private}
        shown = [
            item_members(item, own_id, "completed") | ({PRIVATE: True} if getattr(item, "id", None) in private else {})
            for own_id, item in self.output()
        ]
        return [ConversationItem(id=str(data["id"]), data=data) for data in (*given, *shown)]
