"""Settings for all tests: in CI, Hypothesis is deterministic and a skipped test fails."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Generator
from typing import TypeVar

import pytest
from httpx import _config
from httpx._transports import default as httpx_transport
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI") == "true"

# The duration of an example depends more on the machine than on the code.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("dev", _UNTIMED)
settings.register_profile("ci", _UNTIMED, derandomize=True, print_blob=True)
settings.register_profile("soak", _UNTIMED, max_examples=1000, print_blob=True)
settings.load_profile("ci" if IN_CI else "dev")

# A shell starts commands in the background with SIGINT ignored, which their children inherit: no test of Ctrl-C would end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every client of httpx, also those of OpenAI's SDK, reads the system's certificates: 30 ms of CPU each.
httpx_transport.create_ssl_context = functools.cache(_config.create_ssl_context)  # type: ignore[attr-defined]  # not exported

# Importing the tests and the SDKs makes a million objects that live as long as the process: collecting them again and again is
# a tenth of the time of an import, and later of every collection.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _fail_if_skipped(report: Report) -> Report:
    """In CI, turn the report of a skipped test into a failure: nobody would notice it there. Expected failures stay."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: nothing may be skipped in CI: {reason}"
    return report


# Both hooks are outermost, so that they get the report after all other plug-ins.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _fail_if_skipped((yield))


KILLS = 5  # of one gateway, in tests/test_crash.py


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crashes", type=int, default=KILLS, help="how many times tests/test_crash.py kills the gateway")
    parser.addoption("--prompts", type=int, default=10, help="how many forced calls tests/backends/local asks for, 100 at most")
    parser.addoption("--screenshots", default="", help="the folder for the pictures of tests/web/console/test_screenshots.py")
    parser.addoption("--turns", type=int, default=50, help="how many turns tests/test_many_turns.py runs at once")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "crash_seed" in metafunc.fixturenames:
        metafunc.parametrize("crash_seed", range(metafunc.config.getoption("--crashes") // KILLS))


@pytest.fixture
def kills() -> int:
    return KILLS
