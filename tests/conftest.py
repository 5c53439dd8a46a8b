"""What every test shares: default logging, whatever a test before it decided, hypothesis without a clock, and a small heap to collect garbage in.

A loaded machine takes its time for an example; how long one takes says nothing about the property. The objects of thousands of collected
tests live to the end, so the garbage collector starts after them and leaves them out; it runs rarely, because it goes through what all tests made.
"""

import contextlib
import gc
import itertools
import os
import pathlib
import secrets
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

from drakit.telemetry import logs
from fakes import demo, examples, forked_cli, log_lines, run_folder

_PROCESS_MODULES = frozenset({"subprocess", "multiprocessing", "driver_process", "demo", "LocalCluster", "clusters", "check_driver"})
"""Names that a test module imports where its tests start processes or a whole cluster."""

_MEMORY = "/dev/shm"

_WAITING = 4
"""How many processes begin with long tests."""

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
def logged(default_logging: None) -> log_lines.LogLines:
    """The warnings and errors that the code under test logs."""
    return log_lines.LogLines()


@pytest.fixture(scope="session")
def commands() -> Iterator[forked_cli.Commands]:
    """``drakit`` commands that start in milliseconds."""
    if forked_cli.SHARED in os.environ:
        yield forked_cli.Commands(os.environ[forked_cli.SHARED])
        return
    with demo.short_folder() as folder, contextlib.closing(forked_cli.ForkServer(folder)) as made:
        yield made


@pytest.fixture(scope="session")
def mypy_cache(pytestconfig: pytest.Config) -> pathlib.Path:
    """The cache of strict mypy runs, which all processes share and later test runs use again: mypy checks what has changed since."""
    return pytestconfig.rootpath / ".mypy_cache" / "strict"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files of tests, and of the processes that they start, in memory, because waits for the disk make a test run slow.

    The workers of xdist inherit both folders, the seed of the run, and the socket of a process that forks commands for all of them. With
    ``--basetemp DIR`` all files are on disk, and those in DIR stay for a look at a failed test.
    """
    os.environ.setdefault(examples.SEED, str(secrets.randbelow(10**6)))
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC would say between tests that a server was stopped
    # A run of kubectl or helm ends before it has filled its memory: without garbage collections it takes three quarters of the time.
    os.environ.setdefault("GOGC", "off")
    os.environ.setdefault("GOMEMLIMIT", "512MiB")
    if config.option.basetemp is None and _has_memory():
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY
        folder = tempfile.TemporaryDirectory(prefix="dk")
        config.add_cleanup(folder.cleanup)
        config.option.basetemp = f"{folder.name}/t"
        os.environ[run_folder.VARIABLE] = folder.name
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder.name  # for pytest in the projects that tests make
    if getattr(config.option, "numprocesses", None) and forked_cli.SHARED not in os.environ:
        with contextlib.ExitStack() as stack:
            server = forked_cli.ForkServer(stack.enter_context(demo.short_folder()))
            stack.callback(server.close)
            os.environ[forked_cli.SHARED] = server.server
            config.add_cleanup(stack.pop_all().close)


def _has_memory() -> bool:
    """Whether programs may run in the folder in memory, and the environments of tests of examples fit into it."""
    if not os.access(_MEMORY, os.W_OK):
        return False
    stat = os.statvfs(_MEMORY)
    return not stat.f_flag & os.ST_NOEXEC and stat.f_bavail * stat.f_frsize >= 4 * 2**30


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """Name the failed tests of a run that an internal error ended, for instance because a process of xdist died: pytest leaves them out."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.INTERNAL_ERROR and reporter is not None:
        reporter.summary_errors()
        reporter.summary_failures()
        reporter.short_test_summary()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to draw the same points of matrices again where a test failed."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"points of matrices were drawn by {examples.SEED}={os.environ[examples.SEED]}")


def pytest_collection_finish() -> None:
    """Collect garbage from here on."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests whose module starts processes, so that ``make test-fast`` can leave them out, and start long tests first."""
    for item in items:
        if isinstance(item, pytest.Function) and ("commands" in item.fixturenames or _PROCESS_MODULES & vars(item.module).keys()):
            item.add_marker("process")
    yield
    _start_long_tests_first(items)


def _start_long_tests_first(items: list[pytest.Item]) -> None:
    """Put long tests at the start of the tests of the first processes: xdist gives each an equal part of the list, and at the end all would wait.

    A long test mostly waits; the other processes use the processors meanwhile.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = iter([item for item in items if not item.get_closest_marker("long")])
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    waiting = min(_WAITING, processes)
    ordered: list[pytest.Item] = []
    for number in range(waiting):
        begun = long[number::waiting]
        ordered += [*begun, *itertools.islice(others, max(len(items) // processes - len(begun), 0))]
    items[:] = [*ordered, *others]
