"""Stored responses: retrieve, stream again, delete, cancel, and list their input."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolrelay.errors import ClientError, invalid
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.runtime.service import TurnService, owner_of
from toolrelay.web.background import stream_frames
from toolrelay.web.pages import json_response
from toolrelay.web.paging import page_of, whole_number
from toolrelay.web.site import identify
from toolrelay.wires.json import encode_repaired
from toolrelay.wires.responses.outgoing import input_items
from toolrelay.wires.responses.resource import ResponseStatus, answer_resource

_ID_PREFIX = "resp_"


def make_response_routes(service: TurnService, *, keepalive: float) -> list[Route]:
    load = partial(_load, service)

    async def retrieve(request: Request) -> Response:
        past = await load(request)
        if request.query_params.get("stream", "").lower() not in ("true", "1"):
            return _respond_resource(past)
        if not past.row.background:
            raise invalid("Only a background response can be streamed again. Retrieve it without 'stream'.", "stream")
        after = whole_number(request.query_params, "starting_after", default=-1, least=-1, most=2**53)
        await service.end_stream(past)
        frames = stream_frames(service, past.envelope, after=after, keepalive=keepalive)
        return StreamingResponse(
            frames, headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        )

    async def delete(request: Request) -> Response:
        past = await load(request)
        running = service.turns.find(past.row.id, past.row.owner)
        if running is not None:
            await running.cancel()
        await service.store.delete_response(past.row.id, past.row.owner)
        return json_response({"id": _ID_PREFIX + past.row.id, "object": "response", "deleted": True})

    async def cancel(request: Request) -> Response:
        past = await load(request)
        running = service.turns.find(past.row.id, past.row.owner)
        if not past.row.background and (running is None or not running.can_park):  # one that waits may have no connection
            raise invalid("Only a response with 'background' can be cancelled. Close the connection of another one.", "id")
        if running is not None:
            await running.cancel()
            past = await load(request)
        return _respond_resource(past)

    async def list_input(request: Request) -> Response:
        past = await load(request)
        items = input_items(past.request.items, past.row.id)
        return json_response(page_of(items, request.query_params).members())

    return [
        Route("/responses/{id}", retrieve),
        Route("/responses/{id}", delete, methods=["DELETE"]),
        Route("/responses/{id}/cancel", cancel, methods=["POST"]),
        Route("/responses/{id}/input_items", list_input),
    ]


async def _load(service: TurnService, request: Request) -> PastTurn:
    """Return the turn of a stored response, unless it is another owner's."""
    response_id = request.path_params["id"]
    token, owner = response_id.removeprefix(_ID_PREFIX), owner_of(identify(request))
    if token == response_id:
        raise _missing(response_id)
    running = service.turns.find(token, owner)  # before the store is read: a turn that has ended by then is on record
    if running is not None and not running.parts.ledger.created.is_set():
        if not running.row.stored or not running.parts.ledger.steps:
            raise _missing(response_id)
        return PastTurn(running.row, running.parts.ledger.steps)
    unrecorded = service.turns.find_unrecorded(token, owner)
    if unrecorded is not None and unrecorded.row.stored:
        return PastTurn(unrecorded.current_row, [*unrecorded.steps])
    stored = await service.store.load_turn(token, owner)
    if stored is None or not stored.row.stored:
        raise _missing(response_id)
    return PastTurn.load(stored)


def _missing(response_id: str) -> ClientError:
    message = f"Response with id {response_id!r} not found. It was not stored, was deleted or has expired."
    return ClientError(message, status=404, code="response_not_found")


def encode_resource(past: PastTurn) -> bytes:
    """Return the response as it is now."""
    return encode_repaired(answer_resource(past.answer(), past.envelope, _status(past)))


def _respond_resource(past: PastTurn) -> Response:
    return Response(encode_resource(past), headers={"content-type": "application/json"})


def _status(past: PastTurn) -> ResponseStatus | None:
    """Return the status of a turn that has no answer to take it from."""
    if not past.progress.has_ended:
        return "in_progress" if past.progress.answer is not None or not past.row.background else "queued"
    return "cancelled" if past.row.status == "cancelled" else None
