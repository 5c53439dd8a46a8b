"""What the random schedules and the matrices amounted to, told at the end."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each matrix and one for all random schedules, from whatever process ran the tests."""
    total: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            for name, counted in report.user_properties:
                total.update(counted if name == "storm" and isinstance(counted, dict) else {})
                if name == "matrix":
                    terminalreporter.write_line(str(counted))
    if total:
        terminalreporter.write_line("random faults: " + ", ".join(f"{total[key]} {key}" for key in total) + ", all converged")
