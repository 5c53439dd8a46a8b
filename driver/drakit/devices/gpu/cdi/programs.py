"""Running a program of the driver: no shell, no inherited environment, a bound on its time and on what it says."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

from drakit.core import errors

OUTPUT_MAX = 4 << 20
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_TOLD_MAX = 300


class ProgramError(errors.HardwareError):
    """A program that failed, was too slow or said too much; ``status`` is its exit status, None where it has none."""

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
    """What a program prints; ``words`` is its input, ``before`` a command that becomes it.

    Raises ProgramError; a program that is too slow is killed with all it started.
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
            told, complaint = running.communicate(words, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            _kill(running)
            raise ProgramError(program.name, f"did not end within {seconds:g} s") from error
    if running.returncode:
        raise ProgramError(program.name, f"failed with {running.returncode}: {_short(complaint or told)}", status=running.returncode)
    if len(told) > OUTPUT_MAX:
        raise ProgramError(program.name, f"printed over {OUTPUT_MAX} characters")
    return told


def _kill(running: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def _short(text: str) -> str:
    return " ".join(text.split())[:_TOLD_MAX]
