"""Recorded turns: what they may use, what they continue, how they start, and how they go on after a crash."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.core.commands import RecordStep
from toolrelay.core.identity import make_conversation_id
from toolrelay.core.messages import Call, Item, OpaqueItem
from toolrelay.core.playback import shown_events
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.steps import StepEvent, TurnFailed, TurnResumed, has_asked
from toolrelay.core.turn import Turn
from toolrelay.errors import ClientError, InternalError, StoreConflictError, ToolrelayError, invalid
from toolrelay.runtime.approvals import Approvals, TurnQuestions
from toolrelay.runtime.executor import Executor
from toolrelay.runtime.frames import FrameLog
from toolrelay.runtime.gateway_tools import Caller, GatewayTools
from toolrelay.runtime.history import Past, PastResolver
from toolrelay.runtime.ledger import TurnLedger
from toolrelay.runtime.limits import TurnSlot
from toolrelay.runtime.models import Model
from toolrelay.runtime.past_turn import PastTurn, joins_answers
from toolrelay.runtime.returned_questions import ReturnedQuestions
from toolrelay.runtime.turns import Follower, RunningTurn, TurnObserver, TurnParts, Turns, TurnTools
from toolrelay.settings import LOCAL
from toolrelay.stores.approvals import ApprovalMode
from toolrelay.stores.base import Store
from toolrelay.stores.turns import Frame, StoredStep, StoredTurn, TurnRow
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.recovery import recover
from toolrelay.wires.responses.request import APPROVAL_RESPONSE, reference_of
from toolrelay.wires.responses.request import NAME as RESPONSES

INTERRUPTED = "interrupted"
_RESTARTED = "The gateway was restarted while this turn was running."

PLAIN = Policy(records_answers=False)
_PLAIN_JOINED = Policy(records_answers=False, joins_answers=True)
MAX_FRAMES = 1_000_000


class TurnOrder(Struct, frozen=True, kw_only=True):
    """A request that was accepted. `idempotency_key` and `digest` recognise one that is sent again."""

    token: str
    owner: str
    request: Request
    model: Model
    policy: Policy
    observer: TurnObserver
    slot: TurnSlot = TurnSlot()
    idempotency_key: str | None = None
    digest: str | None = None


class Observation(Struct, frozen=True):
    """The observer of a turn, what is called at its end, and its place among the concurrent turns."""

    observer: TurnObserver
    on_end: Callable[[RunningTurn], None]
    slot: TurnSlot = TurnSlot()


class KeyId(Struct, frozen=True):
    """A caller of whom only the id of the key is known. See gateway_tools.Caller."""

    key: str | None


def plain_policy(request: Request) -> Policy:
    """Return the policy of a turn without gateway tools."""
    return _PLAIN_JOINED if joins_answers(request) else PLAIN


class TurnService:
    def __init__(
        self,
        *,
        store: Store,
        record: Literal["tools", "all", "none"],
        models: Mapping[str, Model],
        tools: GatewayTools,
        executor: Executor,
        approvals: Approvals,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.approvals = approvals
        self.turns = Turns(approvals.end_turn)
        self.frame_logs: dict[str, FrameLog] = {}  # of background turns that run
        self._records_all = record == "all"
        self._models = models
        self._tools = tools
        self._executor = executor
        self._past = PastResolver(store, ReturnedQuestions(store, approvals.find_tool, clock))
        self._clock = clock

    # What a turn may use, and whether it is recorded

    def policy(self, request: Request, model: Model, caller: Caller) -> Policy:
        """Return the gateway tools of a turn and their rules. They exclude n > 1 (decision 21).

        It depends on the request and the configuration alone: a turn that goes on after a restart has the same.
        """
        settings = model.settings
        if not settings.toolsets or not settings.max_tool_rounds or settings.tool_calling == "off":
            return plain_policy(request)
        if not request.takes_gateway_tools or (request.sampling.n or 1) > 1:
            return plain_policy(request)
        tools = self._tools.granted(settings, caller)
        if not tools:
            return plain_policy(request)
        return Policy(
            tools=tools,
            max_tool_rounds=settings.max_tool_rounds,
            same_name=settings.same_name,
            joins_answers=joins_answers(request),
            status_text=settings.status == "text" and request.wire != RESPONSES and request.stream,
        )

    def is_recorded(self, request: Request, policy: Policy) -> bool:
        is_stored = request.wire == RESPONSES and request.store is True
        return is_stored or bool(policy.tools) or request.conversation is not None or self._records_all

    async def resolve(self, request: Request, owner: str, model: Model) -> Past:
        """Look up what the request refers to. Most requests refer to nothing. Without gateway tools nothing is recalled."""
        if request.previous_response_id is None and request.conversation is None:
            has_references = request.wire == RESPONSES and any(_refers(item) for item in request.items)
            may_recall = bool(self._tools.tools) and any(isinstance(item, Call) for item in request.items)
            if not has_references and not may_recall:
                return Past(request=request)
        return await self._past.resolve(request, owner, is_local=model.settings.local)

    # Starting

    async def start(self, order: TurnOrder, follower: Follower | None, on_end: Callable[[RunningTurn], None]) -> RunningTurn:
        """Start a turn. A background turn has a log of frames for its followers instead of the given one."""
        parts = await self._prepare(order)
        row, request = parts.ledger.row, parts.turn.request
        if not request.background:
            return self.turns.start(parts, follower, on_end)
        envelope = Envelope(token=row.id, created=int(row.created_at), model=request.model, request=request)
        return self._start_background(parts, self._frame_log(parts, ResponsesEncoder(envelope)), on_end)

    def _frame_log(self, parts: TurnParts, encoder: ResponsesEncoder, frames: Sequence[bytes] = ()) -> FrameLog:
        ledger = parts.ledger
        return FrameLog(self.store, ledger.row.id, encoder, frames, may_store=lambda: ledger.may_store_frames)

    def _start_background(self, parts: TurnParts, frame_log: FrameLog, on_end: Callable[[RunningTurn], None]) -> RunningTurn:
        row = parts.ledger.row
        self.frame_logs[row.id] = frame_log

        def end(running: RunningTurn) -> None:
            frame_log.end()
            if self.turns.find_unrecorded(row.id, row.owner) is None:
                del self.frame_logs[row.id]
            on_end(running)

        async def save_rest() -> None:
            with contextlib.suppress(ToolrelayError):  # `end_stream` adds what is missing
                await frame_log.save()
            del self.frame_logs[row.id]

        return self.turns.start(parts, frame_log, end, on_recorded=save_rest)

    async def _prepare(self, order: TurnOrder) -> TurnParts:
        past = await self.resolve(order.request, order.owner, order.model)
        if _approval_mode(order.model, order.request) != "return" and any(
            each.verdict == "allow" for each in past.taken.verdicts
        ):
            message = (
                f"The model {order.request.model!r} asks an approver: the client's own yes does not count for it. "
                "Send the answers to the model that asked, or deny."
            )
            raise invalid(message, "model", code="approver_needed")
        request, context, known_items = past.request, past.context, 0
        conversation = context.conversation
        if conversation is None:
            conversation = make_conversation_id(order.token)
            sent = order.request.items
            # A Responses request names what it continues.
            found = None if request.wire == RESPONSES else await self._past.find_conversation(sent, order.owner)
            if found is not None:
                conversation, known = found
                known_items = len(request.items) - (len(sent) - known)  # with what was recalled
        row = TurnRow(
            id=order.token,
            owner=order.owner,
            model=request.model,
            wire=request.wire,
            created_at=self._clock(),
            conversation=conversation,
            previous=context.previous,
            stored=request.wire == RESPONSES and request.store is True,
            background=request.background,
            idempotency_key=order.idempotency_key,
            request_digest=order.digest,
        )
        policy = replace(order.policy, records_answers=True, sees_private=order.model.settings.local)
        turn = Turn(
            token=order.token,
            request=request,
            policy=policy,
            context=context.items,
            context_end=context.end,
            taken=past.taken.calls,
            verdicts=past.taken.verdicts,
        )
        ledger = self._ledger(row, order.model, request, known_items=known_items, client_items=order.request.items)
        return self._parts(turn, order.model, order.observer, ledger, order.slot)

    def _parts(self, turn: Turn, model: Model, observer: TurnObserver, ledger: TurnLedger, slot: TurnSlot) -> TurnParts:
        outlives = ledger.row.stored or ledger.row.background
        mode = _approval_mode(model, turn.request)
        questions = TurnQuestions(self.approvals, mode=mode, slot=slot, outlives=outlives)
        return TurnParts(
            turn=turn,
            layer=ToolCallLayer(turn, model.mode, model.route),
            backend=model.backend,
            observer=observer,
            ledger=ledger,
            tools=TurnTools(self._executor, turn, model.settings),
            questions=questions,
        )

    def _ledger(
        self,
        row: TurnRow,
        model: Model,
        request: Request,
        *,
        steps: Sequence[StepEvent] = (),
        known_items: int = 0,
        client_items: Sequence[Item] | None = None,
    ) -> TurnLedger:
        return TurnLedger(
            self.store,
            row,
            steps=steps,
            known_items=known_items,
            client_items=client_items,
            approval=_approval_mode(model, request),
            expiry_seconds=model.settings.approval_expiry_seconds,
            on_saved=self.approvals.note_step,
            clock=self._clock,
        )

    # After a restart

    async def resume_unfinished(self, observe: Callable[[TurnRow, Request], Observation]) -> None:
        """Take up the turns that were running when the gateway stopped. End those whose answer nobody can receive."""
        for stored in await self.store.load_unfinished():
            try:
                await self._resume_or_end(stored, observe)
            except ToolrelayError as error:
                log.error("not_resumed", turn=stored.row.id, reason=error.message)
                await self._end_interrupted(stored)
            except Exception:  # noqa: BLE001 -- one bad record must not keep the gateway from starting
                log.exception("not_resumed", turn=stored.row.id)
                await self._end_interrupted(stored)

    async def _resume_or_end(self, stored: StoredTurn, observe: Callable[[TurnRow, Request], Observation]) -> None:
        past = PastTurn.load(stored)
        row, asked = past.row, past.progress.asked()
        if row.background and row.model in self._models:
            await self._resume_background(past, observe)
        elif row.stored and has_asked(past.steps) and row.model in self._models:
            observation = observe(row, past.request)
            parts = await self._replay(past, observation)
            self.turns.start(replace(parts, commands=parts.layer.resume()), None, observation.on_end)
        elif row.idempotency_key is not None and (past.progress.runs or asked):
            await self._withdraw(past)
            await self.store.set_status(row.id, "parked")  # goes on when the client repeats its request
        else:
            await self._withdraw(past, TurnFailed(code=INTERRUPTED, message=_RESTARTED))

    async def _withdraw(self, past: PastTurn, *further: StepEvent) -> None:
        """Close the open questions of a turn whose client can no longer receive an answer, and record further steps."""
        ledger = TurnLedger(self.store, past.row, steps=past.steps, clock=self._clock)
        for step in (*past.progress.withdrawals(), *further):
            ledger.add(step)
        await ledger.flush()

    async def _end_interrupted(self, stored: StoredTurn) -> None:
        """End a turn that cannot be taken up. Its questions are withdrawn, unless its record cannot be read."""
        try:
            past = PastTurn.load(stored)
        except Exception:  # noqa: BLE001 -- whatever is wrong with the record, the turn must end
            past = None
        if past is not None:
            await self._withdraw(past, TurnFailed(code=INTERRUPTED, message=_RESTARTED))
            return
        seq = stored.steps[-1].seq + 1 if stored.steps else 0
        failed = StoredStep(seq=seq, at=self._clock(), step=TurnFailed(code=INTERRUPTED, message=_RESTARTED))
        await self.store.append_steps(stored.row.id, [failed], status="failed")

    async def _resume_background(self, past: PastTurn, observe: Callable[[TurnRow, Request], Observation]) -> None:
        """Continue the turn and its stream. An answer of which a part was shown is lost, and the turn fails."""
        frames = [frame.data for frame in await self.store.load_frames(past.row.id, limit=MAX_FRAMES)]
        recovery = recover(frames, past.shown_events(), past.envelope)
        observation = observe(past.row, past.request)
        parts = await self._replay(past, observation)
        commands = parts.layer.fail(_interrupted()) if recovery.is_cut else parts.layer.resume()
        frame_log = self._frame_log(parts, recovery.encoder, frames)
        frame_log.add(recovery.frames)
        await frame_log.save()
        self._start_background(replace(parts, commands=commands), frame_log, observation.on_end)

    async def end_stream(self, past: PastTurn) -> None:
        """Store the rest of a background stream whose turn has ended, if the gateway was killed in between."""
        if past.row.id in self.frame_logs or not past.progress.has_ended:
            return
        frames = [frame.data for frame in await self.store.load_frames(past.row.id, limit=MAX_FRAMES)]
        missing = recover(frames, past.shown_events(), past.envelope).frames
        if missing:
            with contextlib.suppress(StoreConflictError):  # another reader was first
                await self.store.append_frames(past.row.id, [Frame(seq, data) for seq, data in enumerate(missing, len(frames))])

    async def find_repeated(self, owner: str, idempotency_key: str | None, digest: str) -> PastTurn | None:
        """Return the turn of an earlier request with this Idempotency-Key, if it has run a tool or asked about one."""
        row = None if idempotency_key is None else await self.store.find_idempotent(owner, idempotency_key)
        if row is None:
            return None
        if row.request_digest != digest:
            message = "This Idempotency-Key was used with another request body. Use a new key for a new request."
            raise ClientError(message, status=422, code="idempotency_key_reused")
        running = self.turns.find(row.id, owner)
        if running is not None and running.is_stopping:
            await running.wait_for_end()
        unrecorded = self.turns.find_unrecorded(row.id, owner)
        if unrecorded is not None:
            await unrecorded.flush()
        stored = await self.store.load_turn(row.id, owner)
        return None if stored is None else PastTurn.load(stored)

    async def resume(self, past: PastTurn, follower: Follower, observation: Observation) -> RunningTurn:
        """Continue a turn for a client that repeats its request. It is shown the turn from its beginning.

        If two repeat it at once, one of them continues it and the other follows; the observer tells which.
        """
        resumed = TurnResumed()
        parts = await self._replay(PastTurn(past.row, [*past.steps, resumed]), observation, recorded=len(past.steps))
        running = self.turns.find(past.row.id, past.row.owner)
        if running is not None:
            running.attach(follower)
            return running
        commands = [RecordStep(resumed), *parts.layer.resume()]
        events = shown_events([*past.steps, resumed], joins_answers=joins_answers(past.request))
        return self.turns.start(replace(parts, commands=commands), follower, observation.on_end, events=events)

    async def _replay(self, past: PastTurn, observation: Observation, *, recorded: int | None = None) -> TurnParts:
        row, request = past.row, past.request
        model = self._models[row.model]
        policy, context = await self.replay_inputs(past, model)
        turn = Turn.replay(past.steps, token=row.id, policy=policy, context=context)
        ledger = self._ledger(row, model, request, steps=past.steps[:recorded])
        return self._parts(turn, model, observation.observer, ledger, observation.slot)

    async def replay_inputs(self, past: PastTurn, model: Model) -> tuple[Policy, tuple[Item, ...]]:
        """Return what a recorded turn uses besides its steps: its gateway tools, and the conversation that it continues."""
        request, is_local = past.request, model.settings.local
        policy = replace(self.policy(request, model, KeyId(request.key)), records_answers=True, sees_private=is_local)
        context = await self._past.context(request, past.row.owner, is_local=is_local, end=past.context_end)
        return policy, context.items


def _refers(item: Item) -> bool:
    """Return whether an item of the input may stand for what is on record."""
    return isinstance(item, OpaqueItem) and (reference_of(item) is not None or item.raw.get("type") == APPROVAL_RESPONSE)


def owner_of(caller: Caller) -> str:
    return caller.key or LOCAL


def _approval_mode(model: Model, request: Request) -> ApprovalMode:
    """Return how a turn asks. Only Responses has items for questions and answers: Chat always waits (decision 10)."""
    return model.settings.approval if request.wire == RESPONSES else "hold"


def _interrupted() -> InternalError:
    return InternalError("The gateway was restarted in the middle of an answer.", code=INTERRUPTED)
