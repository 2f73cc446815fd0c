"""Functions that run, in threads and on the event loop, however they end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from toolrelay import ToolContext, tool
from toolrelay.core.messages import Image, Text
from toolrelay.toolsets.python import PythonToolset
from toolrelay.toolsets.python.function import read_function


def run(function: Callable[..., Any], arguments: dict[str, Any] | None = None, *, max_concurrent: int = 2) -> Any:
    """Return what the toolset's `run` returns for the function."""

    async def story(toolset: PythonToolset) -> Any:
        return await toolset.run(function.__name__, arguments or {}, ToolContext(call_id="call_1"))

    return on_toolset(story, function, max_concurrent=max_concurrent)


def on_toolset(story: Callable[[PythonToolset], Awaitable[Any]], *functions: Callable[..., Any], max_concurrent: int = 2) -> Any:
    async def main() -> Any:
        toolset = PythonToolset([read_function(function) for function in functions], max_concurrent=max_concurrent)
        await toolset.open()
        try:
            return await story(toolset)
        finally:
            await toolset.close()

    return asyncio.run(main())


@tool
def thread_name() -> str:
    return threading.current_thread().name


@tool
async def loop_thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_sync_function_runs_in_a_thread_and_async_on_the_loop() -> None:
    assert run(thread_name) == "toolset tools"
    assert run(loop_thread_name) == threading.current_thread().name


@pytest.mark.parametrize("value", ["text", {"a": [1]}, None, (Text(text="t"), Image(url="data:,"))])
def test_returned_value_is_returned(value: Any) -> None:
    @tool
    def give() -> Any:
        return value

    assert run(give) == value


def test_awaitable_of_a_sync_function_is_awaited() -> None:
    async def later() -> str:
        return "later"

    @tool
    def give() -> Any:
        return later()

    assert run(give) == "later"


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="outside")


def test_thread_has_the_context_variables_of_the_caller() -> None:
    @tool
    def read() -> str:
        return VARIABLE.get()

    async def story(toolset: PythonToolset) -> Any:
        VARIABLE.set("inside")
        return await toolset.run("read", {}, ToolContext(call_id="call_1"))

    assert on_toolset(story, read) == "inside"


ENDINGS = [
    (ValueError("no"), "no"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (asyncio.CancelledError(), "CancelledError"),
    (GeneratorExit(), "GeneratorExit"),
    (StopIteration(1), "StopIteration: 1"),
    (BaseException("base"), "BaseException: base"),
]


@pytest.mark.parametrize(("error", "message"), ENDINGS, ids=[type(error).__name__ for error, _ in ENDINGS])
@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
def test_whatever_a_function_raises_is_an_exception_and_the_toolset_goes_on(
    error: BaseException, message: str, *, is_async: bool
) -> None:
    @tool(name="end")
    def end() -> str:
        raise error

    @tool(name="end")
    async def end_later() -> str:
        await asyncio.sleep(0)
        raise error

    async def story(toolset: PythonToolset) -> Any:
        context = ToolContext(call_id="call_1")
        # Python itself turns StopIteration into RuntimeError where it leaves a coroutine.
        with pytest.raises(Exception, match=message if not (is_async and type(error) is StopIteration) else "StopIteration"):
            await toolset.run("end", {}, context)
        return await toolset.run("thread_name", {}, context)

    assert on_toolset(story, end_later if is_async else end, thread_name, max_concurrent=1) == "toolset tools"


def test_threads_are_bounded_and_reused() -> None:
    names: set[int] = set()
    barrier = threading.Barrier(3)

    @tool
    def meet() -> None:
        barrier.wait()
        names.add(threading.get_ident())

    async def story(toolset: PythonToolset) -> None:
        context = ToolContext(call_id="call_1")
        for _ in range(3):
            await asyncio.gather(*(toolset.run("meet", {}, context) for _ in range(3)))

    on_toolset(story, meet, max_concurrent=3)
    assert len(names) == 3


def test_cancelled_run_lasts_until_its_function_returns() -> None:
    started, release = threading.Event(), threading.Event()

    @tool
    def block() -> None:
        started.set()
        release.wait()

    async def story(toolset: PythonToolset) -> None:
        task = asyncio.ensure_future(toolset.run("block", {}, ToolContext(call_id="call_1")))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    on_toolset(story, block)


def test_second_cancellation_leaves_the_function_behind() -> None:
    started, release = threading.Event(), threading.Event()

    @tool
    def block() -> None:
        started.set()
        release.wait()

    async def story(toolset: PythonToolset) -> None:
        task = asyncio.ensure_future(toolset.run("block", {}, ToolContext(call_id="call_1")))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on_toolset(story, block)
    release.set()


def script(body: str, *, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a function `f` as a tool in a process of its own."""
    program = f"""
import asyncio, os, sys, time, threading
from toolrelay import ToolContext, tool
from toolrelay.toolsets.python import PythonToolset
from toolrelay.toolsets.python.function import read_function

{body}

async def main():
    toolset = PythonToolset([read_function(f)], max_concurrent=2)
    await toolset.open()
    run = asyncio.ensure_future(toolset.run("f", {{}}, ToolContext(call_id="call_1")))
    await asyncio.wait({{run}}, timeout={timeout})
    if run.done():
        print("result", run.result(), flush=True)
    await toolset.close()
asyncio.run(main())
print("end", flush=True)
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("last", ["return 'child'", "sys.exit(5)", "raise ValueError"])
def test_child_of_a_function_that_forks_does_not_go_on_as_a_second_gateway(kind: str, last: str) -> None:
    done = script(f"""
@tool
{kind} f() -> str:
    child = os.fork()
    if child == 0:
        {last}
    return f"child ended with {{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}}"
""")
    assert done.stdout == "result child ended with 0\nend\n"
    assert done.returncode == 0


def test_function_that_never_returns_does_not_keep_the_process_alive() -> None:
    done = script(
        """
@tool
def f() -> str:
    threading.Event().wait()
    return ""
""",
        timeout=0.05,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_process_id_is_that_of_the_gateway() -> None:
    @tool
    def pid() -> int:
        return os.getpid()

    assert run(pid) == os.getpid()
