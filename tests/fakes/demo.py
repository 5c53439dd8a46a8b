"""The demo and the local cluster as processes of their own, in a short folder of the test's own."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

import yaml

from fakes import forked_cli, waits

NOBODY = 65534
ROOT = pathlib.Path("/")


@contextlib.contextmanager
def short_folder(owner: int = -1) -> Iterator[pathlib.Path]:
    """A folder whose path leaves room for sockets, which pytest's own would not."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="dk-"))
    try:
        os.chown(made, owner, owner)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def environment(folder: pathlib.Path) -> dict[str, str]:
    """An environment whose temporary files and state lie in the folder, so that a test sees what stays behind."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "PYTHONPATH", "LANG", "LC_ALL"}}
    return kept | {"TMPDIR": str(folder), "HOME": str(folder)}


def drakit(*arguments: str) -> list[str]:
    """The command line that runs drakit from this checkout."""
    return [sys.executable, "-m", "drakit", *arguments]


def finished(
    folder: pathlib.Path, *arguments: str, prefix: Sequence[str] = (), commands: forked_cli.Commands | None = None, namespace: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: by ``commands`` in a network namespace, or as a program of its own after ``prefix``."""
    if commands is not None:
        return commands.run(*arguments, folder=ROOT, environment=environment(folder), seconds=waits.SECONDS, namespace=namespace)
    command = [*prefix, *drakit(*arguments)]
    return subprocess.run(command, cwd="/", env=environment(folder), capture_output=True, text=True, timeout=waits.SECONDS, check=False)


class Running:
    """A command that runs while it is being read. ``out`` is what it wrote so far, errors included; ``prefix`` must end by executing the rest.

    It is forked by ``commands`` where these are given, and a program of its own otherwise.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *arguments: str,
        prefix: Sequence[str] = (),
        commands: forked_cli.Commands | None = None,
        namespace: str = "",
    ) -> None:
        self.out = ""
        variables = environment(folder) | {"PYTHONUNBUFFERED": "1"}
        reader, writer = os.pipe()
        self._process: forked_cli.Started | subprocess.Popen[bytes]
        if commands is not None:
            self._process = commands.start(*arguments, out=writer, folder=ROOT, environment=variables, namespace=namespace, session=True)
        else:
            command = [*prefix, *drakit(*arguments)]
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdout=writer, stderr=subprocess.STDOUT, start_new_session=True
            )
        os.close(writer)
        self._output = os.fdopen(reader, encoding="utf-8")
        self._alarm = threading.Timer(waits.SECONDS, self._process.kill)
        self._alarm.start()

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches; fails when the command ends before."""
        for line in self._output:
            self.out += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without {pattern!r}:\n{self.out}")

    @property
    def pid(self) -> int:
        """The command's process."""
        return self._process.pid

    def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal, if one is given, read to the end, and return the exit status."""
        if number is not None:
            self._process.send_signal(number)
        self.out += self._output.read()
        return self._process.wait()

    def close(self) -> None:
        """Make sure that it is gone."""
        self._alarm.cancel()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._output.close()


@contextlib.contextmanager
def running(
    folder: pathlib.Path, *arguments: str, prefix: Sequence[str] = (), commands: forked_cli.Commands | None = None, namespace: str = ""
) -> Iterator[Running]:
    """A running command that is gone afterwards."""
    started = Running(folder, *arguments, prefix=prefix, commands=commands, namespace=namespace)
    try:
        yield started
    finally:
        started.close()


def as_ordinary_user() -> tuple[list[str], int]:
    """A prefix that runs a command without root's powers, and the user it runs as.

    As nobody, where nobody can read this checkout and this Python; as root without a single capability otherwise. Empty for an ordinary user.
    """
    if os.geteuid() != 0:
        return [], os.geteuid()
    readable = all(_passable(pathlib.Path(path)) for path in (__file__, sys.executable, os.path.realpath(sys.executable), yaml.__file__))
    if readable:
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"], NOBODY
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"], 0


def _passable(path: pathlib.Path) -> bool:
    return path.stat().st_mode & 0o004 != 0 and all(parent.stat().st_mode & 0o001 for parent in path.parents)


def is_running(pid: int) -> bool:
    """Whether a process still runs, as far as /proc says."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
