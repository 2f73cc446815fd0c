"""What holds for all tests: Hypothesis repeats itself in CI, and there nothing may be skipped."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI") == "true"

# How long an example takes says more about the machine than about the code.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("dev", _UNTIMED)
settings.register_profile("ci", _UNTIMED, derandomize=True, print_blob=True)
settings.load_profile("ci" if IN_CI else "dev")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _unless_skipped(report: Report) -> Report:
    """The same report, or in CI a failure, since there nobody would notice what was not tested. An expected failure is none."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: nothing may be skipped in CI: {reason}"
    return report


# Both hooks come first, so that they see the report as the other plug-ins leave it.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _unless_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _unless_skipped((yield))
