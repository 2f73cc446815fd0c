"""Pages of lists: limit, order and after."""

from __future__ import annotations

import pytest

from toolrelay.core.json import JsonObject
from toolrelay.errors import ClientError
from toolrelay.web.paging import DEFAULT_LIMIT, MAX_LIMIT, list_options, page_of, whole_number

ITEMS: list[JsonObject] = [{"id": f"item_{number}"} for number in range(5)]


def ids(query: dict[str, str], items: list[JsonObject] = ITEMS) -> list[object]:
    return [item["id"] for item in page_of(items, query).items]


def test_newest_items_are_first_by_default() -> None:
    assert ids({}) == ["item_4", "item_3", "item_2", "item_1", "item_0"]
    assert ids({"order": "asc"}) == ["item_0", "item_1", "item_2", "item_3", "item_4"]


def test_page_tells_whether_there_is_more() -> None:
    assert page_of(ITEMS, {"order": "asc", "limit": "4"}).members() == {
        "object": "list",
        "data": ITEMS[:4],
        "first_id": "item_0",
        "last_id": "item_3",
        "has_more": True,
    }
    assert not page_of(ITEMS, {"limit": "5"}).has_more
    assert page_of([], {}).members() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", range(1, 7))
def test_pages_have_every_item_once(order: str, limit: int) -> None:
    query, seen = {"order": order, "limit": str(limit)}, list[object]()
    while True:
        page = page_of(ITEMS, query)
        seen += [item["id"] for item in page.items]
        if not page.has_more:
            break
        query["after"] = str(page.members()["last_id"])
    assert seen == ids({"order": order})


def test_limit_has_a_default_and_a_maximum() -> None:
    many: list[JsonObject] = [{"id": str(number)} for number in range(MAX_LIMIT + 1)]
    assert len(ids({}, many)) == len(ids({"limit": ""}, many)) == DEFAULT_LIMIT
    assert len(ids({"limit": str(MAX_LIMIT)}, many)) == MAX_LIMIT


@pytest.mark.parametrize("limit", ["0", "-1", "101", "x", "1.5", "1e1", "9" * 5000, "٣", "+5", "1_0", " 5", "5\n", "-", " "])
def test_bad_limit_is_refused(limit: str) -> None:
    with pytest.raises(ClientError, match="'limit' must be a whole number from 1 to 100") as refused:
        list_options({"limit": limit})
    assert (refused.value.status, refused.value.param) == (400, "limit")


def test_bad_order_and_unknown_item_are_refused() -> None:
    with pytest.raises(ClientError) as order:
        list_options({"order": "newest"})
    assert order.value.param == "order"
    with pytest.raises(ClientError, match="item_9") as after:
        page_of(ITEMS, {"after": "item_9"})
    assert after.value.param == "after"


def test_whole_number_takes_its_bounds() -> None:
    assert [whole_number({"n": value}, "n", default=0, least=-1, most=3) for value in ("-1", "3")] == [-1, 3]
