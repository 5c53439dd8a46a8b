"""What every test shares: the logging it finds is the default, whatever a test before it decided."""

from collections.abc import Iterator

import pytest

from drakit.telemetry import logs


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Logging is global by nature; a command under test sets it up for itself alone."""
    yield
    logs.setup(level=logs.Level.WARNING, style=logs.Style.CONSOLE)
