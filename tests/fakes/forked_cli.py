"""``drakit`` commands as processes that start in milliseconds: each is forked from one process that has imported the command line.

A command has descriptors, a folder and an environment of its own, and runs ``drakit.cli.main`` as ``python -m drakit`` does; the half second of
imports is paid once in a process of tests. It is for commands that a test waits for; a test about starts
or signals wants the real start.

``python -m fakes.forked_cli SOCKET`` serves; ``python -I -S forked_cli.py SOCKET WORDS...`` runs one command with its own descriptors.
"""

import array
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

SECONDS = 100.0
_MESSAGE = 1 << 20
_DESCRIPTORS = 3


class CommandError(Exception):
    """The process that forks commands is gone, or a command did not end in time."""


def request(
    server: str, words: list[str], folder: str, environment: Mapping[str, str], descriptors: list[int], seconds: float | None
) -> int:
    """Have a command run with these descriptors as standard input, output and error; return its exit status, as ``subprocess`` gives it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.settimeout(seconds)
        asking.connect(server)
        order = json.dumps({"words": words, "folder": folder, "environment": dict(environment)}).encode()
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE)
        asking.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
        pid = asking.recv(64)
        try:
            status = asking.recv(64) if pid else b""
        except TimeoutError as error:
            os.kill(int(pid), signal.SIGKILL)
            raise CommandError(f"drakit {' '.join(words)} did not end in {seconds} s") from error
        if not status:
            raise CommandError(f"no answer about drakit {' '.join(words)}")
        return int(status)


class Commands:
    """Runs commands; ``server`` is the socket of the process that forks them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.server = str(folder / "cli.sock")
        tests = str(pathlib.Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
        self._serving = subprocess.Popen(
            [sys.executable, "-m", "fakes.forked_cli", self.server],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        assert self._serving.stdout is not None
        assert self._serving.stdout.readline() == b"ready\n"

    def run(
        self,
        *words: str,
        stdin: bytes = b"",
        folder: pathlib.Path | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with files for what it reads and writes. Raises CommandError where it does not end in time."""
        with tempfile.TemporaryFile() as read, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            read.write(stdin)
            read.seek(0)
            files = [read.fileno(), out.fileno(), err.fileno()]
            status = request(self.server, list(words), str(folder or pathlib.Path.cwd()), environment or os.environ, files, seconds)
            for written in (out, err):
                written.seek(0)
            return subprocess.CompletedProcess(["drakit", *words], status, out.read().decode(), err.read().decode())

    def script(self, folder: pathlib.Path) -> None:
        """Write a program ``drakit`` into a folder, which runs commands by this server; for shells."""
        program = folder / "drakit"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {self.server} "$@"\n')
        program.chmod(0o755)

    def close(self) -> None:
        """End the process that forks; commands that still run are killed with it."""
        os.killpg(self._serving.pid, signal.SIGKILL)
        self._serving.wait()
        assert self._serving.stdout is not None
        self._serving.stdout.close()


def _command(order: Mapping[str, object], descriptors: list[int]) -> None:
    """Become the command: returns where its main program would end."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    words, environment = order["words"], order["environment"]
    assert isinstance(words, list)
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(order["folder"]))
    sys.argv = ["drakit", *words]
    sys.modules["__main__"].__package__ = None  # As in the program that pip installs, whose help calls it "drakit".
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115 - the command's own, until it ends
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115

    from drakit import cli

    cli.main()


def _answer(connection: socket.socket) -> Callable[[], None] | None:
    """Fork the command and report its end; in the command's process, return what it is to do."""
    order, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, _DESCRIPTORS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        connection.close()
        return lambda: _command(json.loads(order), descriptors)
    connection.send(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    return None


def _serve(path: str) -> Callable[[], None] | None:
    """Fork a process for each request; returns in those only, with what is to be done."""
    import drakit.cli.app
    import drakit.cli.composition
    import drakit.testing  # noqa: F401

    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"ready\n")
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            listening.close()
            return _answer(connection)
        connection.close()


def main() -> None:
    """Serve, or run one command."""
    if len(sys.argv) == 2:
        if (work := _serve(sys.argv[1])) is not None:
            work()
        return
    sys.exit(request(sys.argv[1], sys.argv[2:], os.getcwd(), os.environ, [0, 1, 2], None) & 0xFF)  # noqa: PTH109


if __name__ == "__main__":
    main()
