"""The limit on the indexes that an upstream may use in one answer."""

from __future__ import annotations

import pytest

from toolrelay.core.indexes import MAX_INDEXES, IndexLimit
from toolrelay.errors import BackendError


@pytest.mark.parametrize("index", [0, 10**30, None])
def test_exceeding_the_limit_is_an_upstream_error(index: int | None) -> None:
    limit = IndexLimit("tool calls")
    for _ in range(MAX_INDEXES):
        limit.add(index)
    with pytest.raises(BackendError, match="more than 1024 tool calls") as raised:
        limit.add(index)
    assert (raised.value.status, raised.value.code) == (502, "upstream_invalid")


def test_negative_index_is_an_upstream_error() -> None:
    with pytest.raises(BackendError, match="negative index for its choices") as raised:
        IndexLimit("choices").add(-1)
    assert (raised.value.status, raised.value.code) == (502, "upstream_invalid")
