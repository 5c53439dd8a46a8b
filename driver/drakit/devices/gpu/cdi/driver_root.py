"""The folder below which the NVIDIA driver is installed: the machine's root, or a folder where a container carries the driver.

A file of the driver has three paths: as this process sees it (below ``path``), as the host's container runtime sees it (below ``on_host``), and as
the container sees it (below ``/``). ``run`` starts one of its programs without a shell and without this process's environment, and limits its time
and its output.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.core import errors

PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin", "opt/bin", "usr/local/nvidia/toolkit", "usr/local/nvidia/bin")
LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
)
_ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverRoot:
    """The folder below which the driver is installed; ``on_host`` is its path on the host, where that differs."""

    path: pathlib.Path = _ROOT
    on_host: pathlib.Path | None = None

    def program(self, name: str) -> pathlib.Path | None:
        """Return the path of a program of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in PROGRAM_FOLDERS)

    def library(self, name: str) -> pathlib.Path | None:
        """Return the path of a library of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in LIBRARY_FOLDERS)

    def first(self, places: Iterable[str]) -> pathlib.Path | None:
        """Return the first of these files that exists."""
        return next((file for place in places if (file := self.path / place).is_file()), None)

    def library_folders(self) -> Iterator[pathlib.Path]:
        """Return the existing library folders, each once: ``lib64`` is often a link to ``usr/lib64``."""
        seen: set[pathlib.Path] = set()
        for place in LIBRARY_FOLDERS:
            folder = self.path / place
            if folder.is_dir() and (real := folder.resolve()) not in seen:
                seen.add(real)
                yield folder

    def host(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver on the host."""
        return str((self.on_host or self.path) / file.relative_to(self.path))

    def inside(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver in a container."""
        return str(_ROOT / file.relative_to(self.path))


OUTPUT_MAX = 4 << 20
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MESSAGE_MAX = 300


class ProgramError(errors.HardwareError):
    """A program that failed, was too slow or printed too much; ``status`` is its exit status, None where it has none."""

    def __init__(self, program: str, message: str, *, status: int | None = None) -> None:
        super().__init__(program, message)
        self.status = status


def run(
    program: pathlib.Path,
    *arguments: str,
    seconds: float,
    env: Mapping[str, str] | None = None,
    words: str = "",
    before: Sequence[str] = (),
) -> str:
    """Run a program and return its output. ``words`` is its input, ``before`` a command line that starts it.

    Raises ProgramError; a program that is too slow is killed with all its children.
    """
    command = [*before, str(program), *arguments]
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, **(env or {})},
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(program.name, f"cannot run {program}: {error.strerror}") from error
    with running:
        try:
            output, error_output = running.communicate(words, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            _kill(running)
            raise ProgramError(program.name, f"did not end within {seconds:g} s") from error
    if running.returncode:
        raise ProgramError(program.name, f"failed with {running.returncode}: {_short(error_output or output)}", status=running.returncode)
    if len(output) > OUTPUT_MAX:
        raise ProgramError(program.name, f"printed over {OUTPUT_MAX} characters")
    return output


def _kill(running: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def _short(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_MAX]
