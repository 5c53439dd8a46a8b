"""The driver answers the probes of its own pod on a unix socket, whoever has the address of its metrics."""

import contextlib
import io
import pathlib
import resource
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

from drakit import settings as values
from drakit.cli import probes as served
from drakit.cli.doctor import pages
from drakit.core import errors
from drakit.serving import checks
from drakit.serving import http as serving
from drakit.telemetry import logs
from fakes import waits

BUILD = pathlib.Path(__file__).parents[3] / "driver" / "attach" / "build"


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        yield pathlib.Path(made)


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    logs.setup(stream=stream)
    return stream


@pytest.fixture(scope="module", params=["C", "Python"])
def program(request: pytest.FixtureRequest) -> Iterator[pathlib.Path]:
    """The probe of drakit's image, and the one that the wheel installs."""
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        path = pathlib.Path(made) / "drakit-probe"
        if request.param == "C":
            subprocess.run([BUILD, path, "probe"], check=True)
        else:
            path.write_text(BUILD.with_name("probe.py").read_text().replace("#!python", f"#!{sys.executable}", 1))
            path.chmod(0o755)
        yield path


def probe(program: pathlib.Path, path: pathlib.Path, page: str = "/readyz") -> tuple[int, str, str]:
    ran = subprocess.run([program, path, page], capture_output=True, text=True, timeout=waits.SECONDS, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@contextlib.contextmanager
def answering(path: pathlib.Path, readiness: checks.Checks) -> Iterator[None]:
    server = serving.HttpServer(path, {"/readyz": serving.checks_page(readiness)}, key="serve.socket")
    server.start()
    try:
        yield
    finally:
        server.stop()


def test_the_probe_succeeds_when_healthy_and_prints_failed_checks(program: pathlib.Path, folder: pathlib.Path) -> None:
    readiness, path = checks.Checks(), folder / "run" / "health.sock"
    with answering(path, readiness):
        assert probe(program, path) == (0, "ok\n", "")
        readiness.add("registered", lambda: "the kubelet has not registered the driver")
        assert probe(program, path) == (1, "registered: the kubelet has not registered the driver\n", "")
        assert probe(program, path, "/nothing")[0] == 1
    assert probe(program, path) == (1, "", f"drakit-probe: {path}: Connection refused\n")
    assert probe(program, folder / "none")[2] == f"drakit-probe: {folder / 'none'}: No such file or directory\n"
    assert probe(program, folder / ("x" * 200))[2].startswith("usage: drakit-probe SOCKET PATH")


def test_the_probe_gives_up_on_a_driver_that_does_not_answer(program: pathlib.Path, folder: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(folder / "s"))
        silent.listen()
        assert probe(program, folder / "s") == (1, "", f"drakit-probe: {folder / 's'}: no answer in time\n")


def processor_time(call: Callable[[], object]) -> float:
    """Return the least processor time, of twenty tries, of the programs that a call runs."""
    spent = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        call()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


def test_a_probe_costs_little_more_processor_time_than_starting_its_interpreter(program: pathlib.Path, folder: pathlib.Path) -> None:
    interpreter = [sys.executable, "-c", ""] if program.read_bytes().startswith(b"#!") else ["true"]
    floor = processor_time(lambda: subprocess.run(interpreter, capture_output=True, check=True))
    with answering(folder / "s", checks.Checks()):
        assert processor_time(lambda: probe(program, folder / "s")) < 4 * floor + 0.001


def test_only_the_drivers_user_may_use_the_probe_socket(folder: pathlib.Path) -> None:
    with answering(folder / "run" / "health.sock", checks.Checks()):
        assert stat.S_IMODE((folder / "run" / "health.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700


def test_a_restarted_container_reuses_its_socket(program: pathlib.Path, folder: pathlib.Path) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
        killed.listen()
    with answering(path, checks.Checks()):
        assert probe(program, path)[0] == 0
        with pytest.raises(errors.SettingsError, match=r"serve\.socket: cannot listen on .*the path is in use by a listening socket"):
            serving.HttpServer(path, {}, key="serve.socket").start()
        assert probe(program, path)[0] == 0, "the one that serves was not disturbed"
    path.unlink()
    path.write_text("mine")
    with pytest.raises(errors.SettingsError, match=r"serve\.socket: cannot listen on"):
        serving.HttpServer(path, {}, key="serve.socket").start()
    assert path.read_text() == "mine"


@contextlib.contextmanager
def instance(port: int, path: pathlib.Path) -> Iterator[served.Probes]:
    """One pod of the driver: metrics on an address that it has with another, probes on a socket of its own."""
    probes = served.Probes()
    probes.is_started = True
    with served.served(values.Serve(address=f"127.0.0.1:{port}", socket=path), probes):
        yield probes


def is_listening(probes: served.Probes, port: int) -> bool:
    return f'drakit_listening{{address="127.0.0.1:{port}"}} 1.0' in probes.metrics.text().decode()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_two_pods_share_one_address_and_each_answers_its_own_probes(program: pathlib.Path, folder: pathlib.Path, log: io.StringIO) -> None:
    port = free_port()
    with contextlib.ExitStack() as older:
        first = older.enter_context(instance(port, folder / "1"))
        assert is_listening(first, port)
        with instance(port, folder / "2") as second:
            assert not is_listening(second, port)
            second.is_started = False
            assert probe(program, folder / "1")[0] == 0
            assert probe(program, folder / "2") == (1, "start: the drivers are still starting\n", "")
            assert waits.eventually(lambda: "address held by another instance of the driver" in log.getvalue())
            older.close()
            assert waits.eventually(lambda: is_listening(second, port))


def test_a_taken_address_is_a_warning_and_the_driver_continues(program: pathlib.Path, folder: pathlib.Path, log: io.StringIO) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = int(foreign.getsockname()[1])
        with instance(port, folder / "1") as probes:
            assert waits.eventually(lambda: "address held by another process" in log.getvalue())
            assert not is_listening(probes, port)
            assert probe(program, folder / "1")[0] == 0
            foreign.close()
            assert waits.eventually(lambda: is_listening(probes, port))


def test_the_file_of_a_socket_that_cannot_be_made_is_named(folder: pathlib.Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(errors.SettingsError, match=rf"serve\.socket: cannot listen on {folder}/file/s"):
        serving.HttpServer(folder / "file" / "s", {}, key="serve.socket").start()
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_the_doctor_names_the_owner_of_the_address_and_readiness(folder: pathlib.Path) -> None:
    def examined(port: int) -> list[tuple[str, str]]:
        wanted = values.Settings(serve=values.Serve(address=f"127.0.0.1:{port}", socket=folder / "1"))
        return [(one.verdict.value, one.message) for one in pages.examine(wanted)]

    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = int(foreign.getsockname()[1])
        assert examined(port) == [
            ("ok", "no driver is running"),
            ("warning", "another process uses this address, so the driver serves no metrics"),
        ]
    assert examined(port)[1] == ("ok", "no driver is running")
    with instance(port, folder / "1") as probes:
        assert examined(port) == [("ok", "the driver is ready"), ("ok", "the driver serves its metrics")]
        probes.is_started = False
        assert examined(port)[0] == ("warning", "the driver is not ready: start: the drivers are still starting")
