"""``drakit`` commands as processes that start in milliseconds: each is forked from one process that has imported the command line.

A command has descriptors, a folder and an environment of its own, and runs ``drakit_command.main`` as ``python -m drakit`` does, or the test
kit as ``python -m drakit.testing`` does; the half second of imports is paid once in a run of tests. It may run in a network namespace, as
``ip netns exec`` would run it, and with a folder sealed. It ends without freeing its objects one by one, because each free copies a page that the
processes share. A test about starts or about the end of the interpreter wants the real start.

``python -m fakes.forked_cli DESCRIPTOR MODULES...`` imports modules and serves on that socket; ``forked_client`` runs one command with its own
descriptors. Its program is ``drakit``, ``kit`` for the test kit, or ``python`` for any script, module or text.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import marshal
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NotRequired, TextIO, TypedDict

from fakes import forked_client

SECONDS = 300.0
"""As ``waits.SECONDS``."""
SHARED = "TEST_FORK_SERVER"
"""The variable with the socket of a fork server that the processes of a test run share (tests/conftest.py)."""
_DESCRIPTORS = 3
_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
LATE = (
    "drakit.cli.app",
    "drakit.cli.composition",
    "drakit.testing.__main__",
    "drakit_tools.demo.story",
    *(f"drakit_tools.commands.{command}" for command in ("allocate", "free", "lint", "plan", "simulate")),
    "kubernetes.config",
    *("drakit_gpu.family", "drakit_gpu.assembly", "tpu_driver.family", "tpu_driver.machines"),
    *(f"drakit_nic.{module}" for module in ("family", "driver", "kernel_port", "mock_port", "attach.sandboxes", "attach.service")),
    *("rich.markdown", "pydantic.type_adapter", "pyroute2", "grpc._server", "typer._adapters", "pytest"),
    *("fakes.crash_node", "fakes.gpu_node"),
)
"""The modules that commands import late, and those of scripts. None of them reads the environment, which is not that of a command."""
NODE = ("drakit.cli.process", "drakit.cli.composition", "drakit.cli.options", "typer", "rich.table")
"""Modules of every installation, which leave open what is installed beside the framework."""
_MS_RDONLY, _MS_REC, _MS_SLAVE, _MNT_DETACH = 1, 0x4000, 0x80000, 2


class Order(TypedDict):
    """What is to be run, and where."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    namespace: str
    session: bool
    program: NotRequired[str]
    sealed: NotRequired[str]


class CommandError(Exception):
    """The process that forks commands is gone, or a command did not end in time."""


class Started:
    """A command that runs, with what a test needs of ``subprocess.Popen``."""

    def __init__(self, asking: forked_client.Socket, words: Sequence[str]) -> None:
        self._asking, self._words = asking, words
        self._status: int | None = None
        self._waiting = threading.Lock()
        pid = asking.recv(64)
        if not pid:
            raise CommandError(f"no answer about drakit {' '.join(words)}")
        self.pid = int(pid)

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end; return its exit status, as ``subprocess`` gives it. Raises ``subprocess.TimeoutExpired`` as it does."""
        with self._waiting:
            if self._status is None:
                self._status = self._ended(seconds)
            return self._status

    def _ended(self, seconds: float | None) -> int:
        self._asking.settimeout(seconds)
        try:
            status = self._asking.recv(64)
        except TimeoutError as error:
            raise subprocess.TimeoutExpired(["drakit", *self._words], seconds or 0) from error
        if not status:
            raise CommandError(f"no answer about drakit {' '.join(self._words)}")
        self._asking.close()
        return int(status)

    def poll(self) -> int | None:
        """Return its exit status; None while it runs, as far as this thread can know while another waits for its end."""
        if not self._waiting.acquire(blocking=False):
            return None
        try:
            if self._status is None and select.select([self._asking], [], [], 0)[0]:
                self._status = self._ended(None)
            return self._status
        finally:
            self._waiting.release()

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens where it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Talk:
    """A program that runs and is talked to: ``stdin`` is what it reads, ``stdout`` what it writes."""

    def __init__(self, started: Started, stdin: TextIO, stdout: TextIO) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._started = started

    def say(self, line: str) -> None:
        """Write a line for it."""
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def ask(self, line: str) -> str:
        """Write a line for it; return the line that it answers."""
        self.say(line)
        return self.stdout.readline()

    def kill(self) -> None:
        """Send SIGKILL; returns once it is gone."""
        self._started.kill()
        self.wait()

    def wait(self) -> int:
        """Wait for its end; return its exit status."""
        return self._started.wait(SECONDS)

    def close(self) -> int:
        """End its input, wait for its end, and return its exit status."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        try:
            return self.wait()
        finally:
            self.stdout.close()


def request(server: str, order: Order, descriptors: list[int]) -> Started:
    """Have a command run with these descriptors as standard input, output and error."""
    asking = forked_client.send(server, order, descriptors)
    try:
        return Started(asking, order["words"])
    except BaseException:
        asking.close()
        raise


class Commands:
    """Runs commands; ``server`` is the socket of the process that forks them."""

    def __init__(self, server: str) -> None:
        self.server = server

    def run(
        self,
        *words: str,
        stdin: bytes = b"",
        folder: pathlib.Path | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
        namespace: str = "",
        program: str = "drakit",
        sealed: pathlib.Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with files for what it reads and writes. Raises CommandError where it does not end in time.

        The folder ``sealed`` is empty and read-only for this command; that needs root.
        """
        with tempfile.TemporaryFile() as read, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            read.write(stdin)
            read.seek(0)
            files = [read.fileno(), out.fileno(), err.fileno()]
            order = self._order(words, folder, environment, namespace) | {"program": program, "sealed": str(sealed or "")}
            started = request(self.server, order, files)
            try:
                status = started.wait(seconds)
            except subprocess.TimeoutExpired as error:
                started.kill()
                raise CommandError(f"drakit {' '.join(words)} did not end in {seconds} s") from error
            for written in (out, err):
                written.seek(0)
            return subprocess.CompletedProcess(["drakit", *words], status, out.read().decode(), err.read().decode())

    def start(
        self,
        *words: str,
        out: int,
        folder: pathlib.Path,
        environment: Mapping[str, str],
        namespace: str = "",
        session: bool = False,
        program: str = "drakit",
    ) -> Started:
        """Start a command that writes its output and errors to a descriptor."""
        with pathlib.Path(os.devnull).open("rb") as nothing:
            order = self._order(words, folder, environment, namespace) | {"session": session, "program": program}
            return request(self.server, order, [nothing.fileno(), out, out])

    @contextlib.contextmanager
    def talk(self, *words: str, error: int | None = None) -> Iterator[Talk]:
        """Run ``python WORDS...``, which ends with its input. Its errors go to the descriptor ``error``, or else to this process's standard error."""
        read, write = os.pipe(), os.pipe()
        order = self._order(words, None, None, "") | {"program": "python"}
        try:
            started = request(self.server, order, [read[0], write[1], 2 if error is None else error])
        finally:
            os.close(read[0])
            os.close(write[1])
        talk = Talk(started, os.fdopen(read[1], "w"), os.fdopen(write[0]))
        try:
            yield talk
        except BaseException:
            started.kill()
            raise
        finally:
            talk.close()

    def code(self, text: str, *words: object, out: int = 2) -> Started:
        """Start ``python -c TEXT WORDS...``, which writes its output and errors to a descriptor."""
        return self.start("-c", text, *map(str, words), out=out, folder=pathlib.Path.cwd(), environment=os.environ, program="python")

    @staticmethod
    def _order(words: Sequence[str], folder: pathlib.Path | None, environment: Mapping[str, str] | None, namespace: str) -> Order:
        place = str(folder or pathlib.Path.cwd())
        return Order(words=list(words), folder=place, environment=dict(environment or os.environ), namespace=namespace, session=False)

    def script(self, folder: pathlib.Path) -> None:
        """Write programs ``drakit`` and ``python`` into a folder, which run by this server; for shells."""
        for name in ("drakit", "python"):
            program = folder / name
            forked = f'exec {sys.executable} -I -S {forked_client.__file__} {self.server} {name} "$@"'
            program.write_text(f"#!/bin/sh\n{forked}\n")
            program.chmod(0o755)


class ForkServer(Commands):
    """Commands with the process that forks them.

    It runs ``python``, imports ``modules`` for the first command, and finds other modules in ``paths`` too. ``before`` is code that it runs first.
    It ends with this process, however that ends.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        python: str | os.PathLike[str] = sys.executable,
        modules: Sequence[str] = LATE,
        paths: Sequence[str | os.PathLike[str]] = (),
        before: str = "",
    ) -> None:
        super().__init__(str(folder / "cli.sock"))
        tests = pathlib.Path(__file__).parents[1]
        found = os.pathsep.join(map(str, filter(None, (tests, *paths, os.environ.get("PYTHONPATH")))))
        program = ("-c", f"{before}\nfrom fakes import forked_cli; forked_cli.main()") if before else ("-m", "fakes.forked_cli")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self.server)
            listening.listen()
            self._serving = subprocess.Popen(
                [python, *program, str(listening.fileno()), *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": found},
                start_new_session=True,
                pass_fds=[listening.fileno()],
            )

    def close(self) -> None:
        """End the process that forks; commands that still run are killed with it."""
        os.killpg(self._serving.pid, signal.SIGKILL)
        self._serving.wait()
        assert self._serving.stdin is not None
        self._serving.stdin.close()


def _enter(namespace: str) -> None:
    """Enter a network namespace, with its /sys, as ``ip netns exec`` does."""
    libc = ctypes.CDLL(None, use_errno=True)
    with pathlib.Path("/run/netns", namespace).open("rb") as space:
        done = [libc.setns(space.fileno(), _CLONE_NEWNET), libc.unshare(_CLONE_NEWNS)]
    done.append(libc.mount(b"", b"/", b"none", _MS_SLAVE | _MS_REC, None))
    done.append(libc.umount2(b"/sys", _MNT_DETACH))
    done.append(libc.mount(namespace.encode(), b"/sys", b"sysfs", 0, None))
    if any(done):
        raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")


def _seal(folder: str) -> None:
    """Mount an empty read-only folder there, in a mount namespace of this process's own."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = [libc.unshare(_CLONE_NEWNS), libc.mount(b"", b"/", b"none", _MS_SLAVE | _MS_REC, None)]
    done.append(libc.mount(b"none", folder.encode(), b"tmpfs", _MS_RDONLY, None))
    if any(done):
        raise OSError(ctypes.get_errno(), f"cannot seal {folder}")


def _command(order: Order, descriptors: list[int]) -> None:
    """Become the command: returns where its main program would end."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if order["session"]:
        os.setsid()
    if order["namespace"]:
        _enter(order["namespace"])
    if order.get("sealed"):
        _seal(order["sealed"])
    os.environ.clear()
    os.environ.update(order["environment"])
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(2)
    os.chdir(order["folder"])
    _find_more([path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path])
    sys.argv = ["drakit", *order["words"]]
    sys.modules["__main__"].__package__ = None  # As in the program that pip installs, whose help calls it "drakit".
    buffering = 1 if os.environ.get("PYTHONUNBUFFERED") else -1
    sys.stdin, sys.stdout = open(0), open(1, "w", buffering=buffering)  # noqa: SIM115 - the command's own, until it ends
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115

    if order.get("program") == "kit":
        from drakit.testing import __main__ as kit

        kit.app()
    if order.get("program") == "python":
        _python(order["words"])
        return

    import drakit_command

    drakit_command.main()


def _python(words: list[str]) -> None:
    """Run ``python FILE WORDS...``, ``python -m MODULE WORDS...`` or ``python -c TEXT WORDS...``."""
    importlib.invalidate_caches()
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as the option says
        return
    is_module = words[0] == "-m"
    name, *sys.argv[1:] = words[1:] if is_module else words
    sys.argv[0] = name
    sys.path.insert(0, str(pathlib.Path.cwd()))
    if is_module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(pathlib.Path(name).resolve().parent)
    runpy.run_path(name, run_name="__main__")


def _end(work: Callable[[], None]) -> None:
    """Run the command and end its process as Python does, but leave its memory to the kernel. Output that cannot be written is left to Python."""
    status = 0
    try:
        work()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        status = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined] # the interpreter's own wait for threads
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)
    sys.exit(status)


def _import(modules: Sequence[str]) -> None:
    """Import modules, and keep the garbage collector of every command from going through all of them."""
    gc.disable()
    for name in modules:
        module = importlib.import_module(name)
        if name == "drakit.cli.app":
            module.program()
            _settings().current()
    gc.freeze()
    gc.enable()


def _settings() -> types.ModuleType:
    return importlib.import_module("drakit.settings.schema")


def _find_more(paths: list[str]) -> None:
    """Find modules and installed families in these places too."""
    is_new = not set(paths) <= set(sys.path)
    sys.path[:0] = paths
    if is_new and "drakit.settings.schema" in sys.modules:
        importlib.import_module("drakit.families").installed.cache_clear()
        _settings()._of_drakit.cache_clear()


class _Server:
    """Forks a process for each request, and reports its end on the connection that made the request. The first request waits for imports."""

    def __init__(self, listening: socket.socket, modules: Sequence[str]) -> None:
        self._listening = listening
        self._modules = modules
        self._running: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.poll()
        self._poll.register(self._listening, select.POLLIN)
        self._poll.register(0, 0)  # which reports that nobody has the other end

    def serve(self) -> Callable[[], None]:
        """Return in the process of a command only, with what is to be done there."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == 0:
                    os.killpg(os.getpid(), signal.SIGKILL)
                elif descriptor in self._running:
                    self._report(descriptor)
                elif (command := self._fork()) is not None:
                    return command

    def _fork(self) -> Callable[[], None] | None:
        _import(self._modules)
        self._modules = ()
        connection, _ = self._listening.accept()
        order, descriptors, _, _ = socket.recv_fds(connection, forked_client.MESSAGE, _DESCRIPTORS)
        if not order:  # Whoever asked was killed.
            connection.close()
            return None
        pid = os.fork()
        if not pid:
            for process, (_, other) in self._running.items():
                os.close(process)
                other.close()
            connection.close()
            self._listening.close()
            return lambda: _command(marshal.loads(order), descriptors)  # noqa: S302 - from this user's own processes
        for descriptor in descriptors:
            os.close(descriptor)
        ended = os.pidfd_open(pid)
        self._running[ended] = (pid, connection)
        self._poll.register(ended, select.POLLIN)
        _tell(connection, pid)
        return None

    def _report(self, ended: int) -> None:
        pid, connection = self._running.pop(ended)
        self._poll.unregister(ended)
        os.close(ended)
        _, status = os.waitpid(pid, 0)
        _tell(connection, os.waitstatus_to_exitcode(status))
        connection.close()


def _tell(connection: socket.socket, number: int) -> None:
    """Answer a request, unless whoever made it has gone."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(str(number).encode())


def main() -> None:
    """Serve."""
    _end(_Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]).serve())


if __name__ == "__main__":
    main()
