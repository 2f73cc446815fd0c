"""The context of a tool run."""

from __future__ import annotations

from threading import Thread

from toolrelay.core.messages import Message
from toolrelay.toolsets.base import Progress, Report, ToolContext

ITEMS = (Message(role="user", content="Hi"),)


def test_idempotency_key_is_the_same_for_every_try_of_a_call() -> None:
    first = ToolContext(call_id="call_1", key="me", model="fast", items=ITEMS)
    first.cancel()
    second = first.renew(lambda report: report)
    assert second.idempotency_key == first.idempotency_key == "call_1"
    assert (second.key, second.model, second.items) == ("me", "fast", ITEMS)
    assert not second.cancelled


def test_cancellation_is_seen_in_another_thread_and_ends_reports() -> None:
    reports: list[Progress] = []
    context = ToolContext(call_id="call_1", report=reports.append)
    context.progress(1)
    context.cancel()
    seen: list[bool] = []

    def work() -> None:
        context.progress(2)
        seen.append(context.cancelled)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
    assert reports == [Progress(done=1.0)]


def test_progress_without_a_listener_has_no_effect() -> None:
    def refuse(report: Report) -> Report:
        raise AssertionError

    ToolContext(call_id="call_1").renew(refuse).progress(1, 2, "half")
