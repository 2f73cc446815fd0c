"""Daily deletion of what is older than the retention time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from toolrelay import log
from toolrelay.errors import StoreError
from toolrelay.stores.base import PruneResult, Store

DAY_SECONDS = 86_400


async def prune_regularly(
    store: Store,
    days: int,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Prune at once and then daily, until cancelled. 0 days: everything is kept, and this returns."""
    while days > 0:
        try:
            deleted = await store.prune(now() - days * DAY_SECONDS)
        except StoreError as error:
            log.warning("store_not_pruned", reason=error.message)
        except Exception:  # noqa: BLE001 -- the next day's prune may succeed
            log.exception("store_not_pruned")
        else:
            if deleted != PruneResult():
                log.info("store_pruned", turns=deleted.turns, conversations=deleted.conversations, usage=deleted.usage)
        await sleep(DAY_SECONDS)
