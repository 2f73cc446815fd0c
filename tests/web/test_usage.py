"""Usage over HTTP: who sees what, bounds, bad input, CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.approving import Approver
from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, MODEL, ModelServer, configuration, error, whole
from tests.web.test_sessions import Browser, key, new_code
from toolrelay.errors import ClientError
from toolrelay.runtime.usage_report import MAX_GROUPS, MAX_POINTS
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.stores.usage import UsageRow
from toolrelay.web.usage import MAX_DAYS, MAX_TIME, decode_query

CHAT = CLIENT_APIS["openai_chat"]
DAY = 86_400
DEMO = '[models.demo]\nprovider = "demo"\n[store]\nretention_days = 0\n'
START = 1_000_000_000 // 60 // 60 * 60  # a minute, on a full hour
HOSTILE = ['=HYPERLINK("http://x","y")', "+1", "-1", "@SUM(A1)", "\t=1", " =1", "＝1", 'a"b,c\r\nd', "<img src=x>", "plain"]  # noqa: RUF001 -- a full-width sign is what is tested


def fill(folder: Path, *rows: UsageRow) -> None:
    """Write usage into the store that a gateway in this folder will use."""

    async def write() -> None:
        store = open_store(StoreSettings(), folder / "data")
        await store.open()
        await store.add_usage(rows)
        await store.close()

    asyncio.run(write())


def row(minute: int = START, **members: Any) -> UsageRow:
    return UsageRow(**{"minute": minute, "model": "m", "key": "local", "turns": 1, **members})


def ask(gateway: Gateway, name: str | None = None, path: str = "/api/usage", **query: Any) -> httpx.Response:
    headers = Approver(gateway).headers if name is None else {"authorization": f"Bearer {name}"}
    span = {"from": START * 60, "to": START * 60 + 3600}
    return httpx.get(f"{gateway.url}{path}", params={**span, **query}, headers=headers, timeout=60)


def totals(response: httpx.Response) -> dict[str | None, int]:
    assert response.status_code == 200, response.text
    return {group["name"]: group["total"]["turns"] for group in response.json()["groups"]}


# What is shown


def test_turn_is_shown_at_once_and_counted_once() -> None:
    """The rows of a minute are written after it; the gateway adds what it still has."""
    with ModelServer() as server, running(configuration(server)) as gateway:
        server.enqueue(whole(), error(400), whole())
        for count in (1, 2, 3):
            gateway.post(CHAT.path, CHAT.request_body())
            found = Approver(gateway).get("/api/usage").json()
            assert (found["total"]["turns"], found["total"]["failed"]) == (count, int(count > 1))
        assert found["total"]["input"] == 14
        assert found["total"]["first_p50"] <= found["total"]["turn_p50"] <= found["total"]["turn_p95"]
        (group,) = found["groups"]
        assert (group["name"], sum(group["series"]["turns"])) == (MODEL, 3)
        assert len(found["times"]) == len(group["series"]["turn_p50"])


def test_sums_percentiles_and_filters(tmp_path: Path) -> None:
    fill(
        tmp_path,
        row(model="a", key="x", failed=1, denials=2, turn_latencies="80:19"),
        row(START + 59, model="a", key="y", turn_latencies="120:1"),
        row(START + 1, model="b", key="x"),
        row(START + 60, model="a", key="x"),  # after the hour
    )
    with running(DEMO, folder=tmp_path) as gateway:
        found = ask(gateway).json()
        assert (found["from"], found["to"], found["step"], len(found["times"])) == (START * 60, START * 60 + 3600, 60, 60)
        assert (found["models"], [each["name"] for each in found["keys"]]) == (["a", "b"], ["x", "y"])
        first = found["groups"][0]
        assert (first["name"], first["series"]["turns"][0], first["series"]["turns"][59]) == ("a", 1, 1)
        assert (first["total"]["failed"], first["total"]["denials"]) == (1, 2)
        assert first["total"]["turn_p50"] == pytest.approx(1.0, rel=0.05)
        assert first["total"]["turn_p95"] == pytest.approx(1.0, rel=0.05)
        assert first["series"]["turn_p95"][59] == pytest.approx(32.0, rel=0.05)
        assert first["series"]["turn_p95"][1] is None
        assert totals(ask(gateway, by="key")) == {"x": 2, "y": 1}
        assert totals(ask(gateway, by="key", model="b")) == {"x": 1}
        assert totals(ask(gateway, key="y")) == {"a": 1}
        assert totals(ask(gateway, model="nothing")) == {}
        assert len(ask(gateway, step=1800).json()["times"]) == 2


def test_groups_over_the_limit_are_added_up_as_other(tmp_path: Path) -> None:
    fill(tmp_path, *[row(model=f"m{number}", turns=1000 - number) for number in range(MAX_GROUPS + 2)])
    with running(DEMO, folder=tmp_path) as gateway:
        found = totals(ask(gateway))
        assert list(found) == [*(f"m{number}" for number in range(MAX_GROUPS)), None]
        assert found[None] == (1000 - MAX_GROUPS) + (1000 - MAX_GROUPS - 1)


def test_figures_do_not_depend_on_the_time_zone(tmp_path: Path) -> None:
    """On 31 March 2024 the clocks of Rome go from 2 to 3 at 1:00 UTC. Steps are of UTC all the same."""
    night = 1_711_846_800 // 60  # 1:00 UTC
    fill(tmp_path, *[row(night + offset) for offset in range(-60, 60)])
    answers = []
    for zone in ("Europe/Rome", "Asia/Kolkata"):
        with running(DEMO, folder=tmp_path, environ={"TZ": zone}) as gateway:
            span: dict[str, Any] = {"from": (night - 60) * 60, "to": (night + 60) * 60, "step": 3600}
            found = ask(gateway, **span).json()
            assert found["groups"][0]["series"]["turns"] == [60, 60]
            answers.append((found, ask(gateway, path="/api/usage.csv", **span).text))
    assert answers[0] == answers[1]
    assert "2024-03-31T00:00:00Z" in answers[0][1]


# Bad input


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"from": 10, "to": 10}, "'from' must be before 'to'"),
        ({"from": 20, "to": 10}, "'from' must be before 'to'"),
        ({"from": "yesterday"}, "'from' must be a whole number"),
        ({"to": "1e9"}, "'to' must be a whole number"),
        ({"to": "9" * 30}, "'to' must be a whole number"),
        ({"from": -1}, "'from' must be a whole number"),
        ({"from": 0, "to": 2_000_000_000}, f"at most {MAX_DAYS} days"),
        ({"step": 59}, "'step' must be a whole number"),
        ({"step": 90}, "'step' must be a multiple of 60"),
        ({"from": 0, "to": 30 * DAY, "step": 60}, f"at most {MAX_POINTS} steps"),
        ({"by": "owner"}, "'by' must be"),
    ],
)
@pytest.mark.parametrize("path", ["/api/usage", "/api/usage.csv"])
def test_bad_input_is_refused_with_a_sentence(gateway: Gateway, path: str, query: dict[str, Any], sentence: str) -> None:
    refused = ask(gateway, path=path, **query)
    assert (refused.status_code, sentence in refused.json()["error"]["message"]) == (400, True), refused.text


NUMBERS = st.one_of(st.integers(-10, 2 * MAX_TIME), st.text(max_size=8)).map(str)


@given(st.fixed_dictionaries({}, optional={"from": NUMBERS, "to": NUMBERS, "step": NUMBERS, "by": st.text(max_size=5)}))
def test_accepted_query_is_within_its_bounds(params: dict[str, str]) -> None:
    try:
        query = decode_query(params, now=1e9)
    except ClientError:
        return
    assert 0 <= query.first < query.end
    assert query.first % query.step == query.end % query.step == 0
    assert (query.end - query.first) // query.step <= MAX_POINTS


@given(st.integers(0, 4 * 10**9), st.integers(1, MAX_DAYS * DAY), st.sampled_from([None, 60, 300, 3600, 7 * DAY]))
def test_whole_span_is_covered(start: int, seconds: int, step: int | None) -> None:
    params = {"from": str(start), "to": str(start + seconds)} | ({} if step is None else {"step": str(step)})
    try:
        query = decode_query(params, now=0)
    except ClientError:
        assert step is not None
        return
    assert query.first * 60 <= start < start + seconds <= query.end * 60


# Who may see it


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with the keys a, b and boss, who may approve. Each has had turns."""
    folder = tmp_path_factory.mktemp("usage")
    fill(folder, row(key="a", model="m"), row(key="b", model="secret"), row(START + 1, key="b", model="m"), row(key="boss"))
    with running(DEMO + key("a") + key("b") + key("boss", approve=True), folder=folder) as started:
        yield started


@pytest.mark.parametrize("by", ["model", "key"])
def test_owner_sees_nothing_of_others(shared: Gateway, by: str) -> None:
    found = ask(shared, "a", by=by).json()
    assert [group["name"] for group in found["groups"]] == [{"model": "m", "key": "a"}[by]]
    assert (found["total"]["turns"], found["models"], found["keys"]) == (1, ["m"], [{"name": "a", "label": "a"}])
    assert "secret" not in ask(shared, "a", path="/api/usage.csv", by=by).text
    assert totals(ask(shared, "a", model="secret")) == {}


@pytest.mark.parametrize("name", ["b", "boss", "nobody"])
@pytest.mark.parametrize("path", ["/api/usage", "/api/usage.csv"])
def test_to_an_owner_other_keys_do_not_exist(shared: Gateway, name: str, path: str) -> None:
    refused = ask(shared, "a", path=path, key=name)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "key_not_found")
    assert name not in refused.text


def test_operator_sees_all_and_an_approver_only_what_is_its_own(shared: Gateway) -> None:
    token = (shared.data_dir / "approver.token").read_text().strip()
    assert totals(ask(shared, token, by="key")) == {"b": 2, "a": 1, "boss": 1}
    assert totals(ask(shared, token, by="key", key="b")) == {"b": 2}
    assert totals(ask(shared, "boss", by="key")) == {"boss": 1}


def test_session_sees_what_its_key_sees(shared: Gateway) -> None:
    span: dict[str, Any] = {"from": START * 60, "to": START * 60 + 3600, "by": "key"}
    for name, seen in (("a", {"a": 1}), ("boss", {"boss": 1})):
        with Browser(shared) as browser:
            browser.sign_in(name)
            assert totals(browser.get("/api/usage", params=span)) == seen


def test_unknown_key_is_refused(shared: Gateway) -> None:
    assert ask(shared, "nobody").status_code == 401
    assert shared.get("/api/usage").status_code == 401


def test_without_keys_a_session_or_the_token_is_needed(gateway: Gateway) -> None:
    for path in ("/api/usage", "/api/usage.csv"):
        refused = gateway.get(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "missing_approver_token")
        assert refused.json()["error"]["message"].startswith("Usage figures need a session, or the approver's token.")
        assert ask(gateway, "wrong", path=path).status_code == 401
        assert ask(gateway, path=path).status_code == 200
        with Browser(gateway) as browser:
            browser.open(new_code(gateway))
            assert browser.get(path).status_code == 200


# CSV


def test_csv_has_the_table_and_no_formulas(tmp_path: Path) -> None:
    fill(tmp_path, *[row(START + number, model=name) for number, name in enumerate(HOSTILE)])
    with running(DEMO, folder=tmp_path) as gateway:
        answer = ask(gateway, path="/api/usage.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert answer.headers["content-disposition"] == 'attachment; filename="usage-2001-09-09-by-model.csv"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    head, *lines = csv.reader(io.StringIO(answer.content.decode(), newline=""), strict=True)
    assert answer.content.count(b"\r\n") == len(lines) + 1 + 1  # and one within a name
    assert head[:3] == ["time", "model", "turns"]
    assert {len(line) for line in lines} == {len(head)}
    assert [line[0] for line in lines][:2] == ["2001-09-09T01:00:00Z", "2001-09-09T01:01:00Z"]
    assert [line[1].removeprefix("'") for line in lines] == HOSTILE
    assert [name for name, line in zip(HOSTILE, lines, strict=True) if line[1].startswith("'")] == HOSTILE[:7]
    assert [line[2] for line in lines] == ["1"] * len(HOSTILE)


def test_hostile_names_are_json(tmp_path: Path) -> None:
    fill(tmp_path, *[row(START + number, model=name, key=name) for number, name in enumerate(HOSTILE)])
    with running(DEMO, folder=tmp_path) as gateway:
        assert set(totals(ask(gateway))) == set(HOSTILE)
        for name in HOSTILE:
            assert totals(ask(gateway, key=name, by="key")) == {name: 1}


def test_default_is_the_last_day(tmp_path: Path) -> None:
    now = int(time.time() // 60)
    fill(tmp_path, row(now - 60), row(now - 3 * 1440))
    with running(DEMO, folder=tmp_path) as gateway:
        assert Approver(gateway).get("/api/usage").json()["total"]["turns"] == 1
