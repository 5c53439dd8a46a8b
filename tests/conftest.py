"""What every test shares: default logging, whatever a test before it decided, hypothesis without a clock, and a small heap to collect garbage in.

A loaded machine takes its time for an example; how long one takes says nothing about the property. The objects of thousands of collected
tests live to the end, so the garbage collector starts after them and leaves them out.
"""

import gc
import pathlib
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

from drakit.telemetry import logs
from fakes import demo, examples, forked_cli, memory_folder

_PROCESS_MODULES = frozenset({"subprocess", "multiprocessing", "driver_process", "demo", "LocalCluster", "clusters", "check_driver"})
"""Names that a test module imports where its tests start processes or a whole cluster."""

hypothesis.settings.register_profile(
    "any-machine", deadline=None, max_examples=examples.count(100), suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any-machine")
gc.disable()


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Logging is global by nature; a command under test sets it up for itself alone."""
    yield
    logs.setup(level=logs.Level.WARNING, style=logs.Style.CONSOLE)


@pytest.fixture
def memory_path() -> Iterator[pathlib.Path]:
    """A folder in memory, in place of ``tmp_path``."""
    with memory_folder.memory_folder() as made:
        yield made


@pytest.fixture
def nodes_in_memory(memory_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that drakit.testing makes lie in memory."""
    monkeypatch.setattr(tempfile, "tempdir", str(memory_path))


@pytest.fixture(scope="session")
def commands() -> Iterator[forked_cli.Commands]:
    """``drakit`` commands that start in milliseconds."""
    with demo.short_folder() as folder:
        made = forked_cli.Commands(folder)
        yield made
        made.close()


@pytest.fixture(scope="session")
def mypy_cache(pytestconfig: pytest.Config) -> pathlib.Path:
    """The cache of strict mypy runs, which all processes share and later test runs use again: mypy checks what has changed since."""
    return pytestconfig.rootpath / ".mypy_cache" / "strict"


def pytest_collection_finish() -> None:
    """Collect garbage from here on."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests whose module starts processes, so that ``make test-fast`` can leave them out."""
    for item in items:
        if isinstance(item, pytest.Function) and ("commands" in item.fixturenames or _PROCESS_MODULES & vars(item.module).keys()):
            item.add_marker("process")
