"""The stream of a background turn: its frames are stored in batches, then sent to those who read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from toolrelay.core.events import StreamEvent
from toolrelay.stores.base import Store
from toolrelay.stores.turns import Frame
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.recovery import split_frames

PAGE = 1000


class FrameLog:
    """A follower of a running turn. The place of a frame in the list is its sequence number.

    While `may_store` returns False, nothing is stored: the turn's end is not on record, and a stream that shows it must not go on
    after a restart.
    """

    def __init__(
        self,
        store: Store,
        turn: str,
        encoder: ResponsesEncoder,
        frames: Sequence[bytes] = (),
        *,
        may_store: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._turn = turn
        self._encoder = encoder
        self._may_store = may_store
        self._frames = [*frames]  # durable ones, until the end
        self._unsaved: list[bytes] = []
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._has_ended = False

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        self._unsaved += split_frames(self._encoder.encode(events))
        return self.save() if self._unsaved and self._may_store() else None

    async def start(self) -> None:
        """Write the first frames before the model says anything. Readers get them when they are stored."""
        if not self._has_ended:
            self._unsaved += split_frames(self._encoder.start())
            await self.save()

    def add(self, frames: Sequence[bytes]) -> None:
        self._unsaved += frames

    async def save(self) -> None:
        """Store the frames. As with the ledger, a write that has begun is finished, and what failed is written again."""
        await asyncio.shield(self._save())

    async def _save(self) -> None:
        async with self._lock:
            unsaved, first = [*self._unsaved], len(self._frames) - (len(self._unsaved) if self._has_ended else 0)
            if not unsaved or not self._may_store():
                return
            await self._store.append_frames(self._turn, [Frame(first + number, data) for number, data in enumerate(unsaved)])
            if not self._has_ended:
                self._frames += unsaved
            del self._unsaved[: len(unsaved)]
            self._wake()

    def end(self) -> None:
        """End the stream. Its readers also get what could not be stored: it says why the turn has failed."""
        self._frames += self._unsaved
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, after: int) -> AsyncGenerator[bytes, None]:
        """Yield the frames after this sequence number, as many as there are at a time, until the turn ends."""
        position = after + 1
        while True:
            changed = self._changed
            if position < len(self._frames):
                batch = self._frames[position:]
                position = len(self._frames)
                yield b"".join(batch)
            elif self._has_ended:
                return
            else:
                await changed.wait()


async def read_stored(store: Store, turn: str, after: int) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a turn that does not run."""
    while True:
        frames = await store.load_frames(turn, after=after, limit=PAGE)
        if not frames:
            return
        after = frames[-1].seq
        yield b"".join([frame.data for frame in frames])
