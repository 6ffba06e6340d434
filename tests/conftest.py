"""Rules for the whole test run."""

import os
import shutil

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A machine with Go and root has all that the tests need: there, a skipped test is a failed one."""
    complete = shutil.which("go") is not None and os.geteuid() == 0
    if _skipped and complete and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped and shutil.which("go") is not None and os.geteuid() == 0:
        terminalreporter.write_line("a test was skipped although this machine has Go and root", red=True)
