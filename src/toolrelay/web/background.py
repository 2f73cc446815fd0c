"""Background responses: the response to the request that starts one, and its stream for whoever reads it, now or later."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from toolrelay.core.request import Request
from toolrelay.errors import StoreError
from toolrelay.runtime.frames import read_stored
from toolrelay.runtime.service import TurnService
from toolrelay.stores.turns import TurnRow
from toolrelay.web.http.exchange import EVENT_STREAM, JSON, ClientDisconnectedError, Exchange
from toolrelay.web.keep_alive import with_keep_alive
from toolrelay.wires.base import KEEP_ALIVE, Envelope
from toolrelay.wires.json import encode_repaired
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.recovery import END_OF_FRAME
from toolrelay.wires.responses.resource import Resource
from toolrelay.wires.sse import DONE


async def respond_in_background(
    exchange: Exchange, service: TurnService, row: TurnRow, request: Request, *, keepalive: float
) -> None:
    """Respond to the request that started a background turn. If the client leaves, the turn goes on."""
    envelope = Envelope(token=row.id, created=int(row.created_at), model=request.model, request=request)
    if not request.stream:
        exchange.respond(200, JSON, encode_repaired(Resource(envelope).started("queued")))
        return
    exchange.begin(200, EVENT_STREAM)
    try:
        with exchange.cancel_on_disconnect():
            async with aclosing(stream_frames(service, envelope, after=-1, keepalive=keepalive)) as frames:
                async for data in frames:
                    waiting = exchange.write(data)
                    if waiting is not None:
                        await waiting
    except ClientDisconnectedError:
        return
    finally:
        exchange.end()


async def stream_frames(service: TurnService, envelope: Envelope, *, after: int, keepalive: float) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a background turn after this sequence number, with signs of life while there is nothing to send.

    These are for one reader. So the event among them has the number of the last frame, and is not stored.
    """
    frame_log = service.frame_logs.get(envelope.token)
    source = read_stored(service.store, envelope.token, after) if frame_log is None else frame_log.read(after)
    signs = ResponsesEncoder(envelope)
    signs.start()
    async with aclosing(with_keep_alive(source, keepalive)) as frames:
        async for data in frames:
            if data is not None:
                after += data.count(END_OF_FRAME)
                yield data
            elif after >= 0:
                signs.sequence = after
                yield signs.keep_alive()
            else:
                yield KEEP_ALIVE
                if frame_log is not None:
                    with suppress(StoreError):  # a later write stores them
                        await frame_log.start()
    yield DONE
