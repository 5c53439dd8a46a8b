"""Run a program of the NVIDIA driver: without a shell and without this process's environment, with limits on its time and its output."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

import drakit

OUTPUT_MAX = 4 << 20
_SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MESSAGE_MAX = 300
_KILL_SECONDS = 2.0


class ProgramError(drakit.HardwareError):
    """A program that failed, was too slow or printed too much; ``status`` is its exit status, None if it has none."""

    def __init__(self, program: str, message: str, *, status: int | None = None) -> None:
        super().__init__(program, message)
        self.status = status


def run_program(
    program: pathlib.Path,
    *arguments: str,
    seconds: float,
    env: Mapping[str, str] | None = None,
    standard_input: str = "",
    before: Sequence[str] = (),
) -> str:
    """Run a program and return its output. ``before`` is a command line that starts it.

    Raises ProgramError; a program that is too slow is killed with all its children.
    """
    command = [*before, str(program), *arguments]
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _SEARCH_PATH, **(env or {})},
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(program.name, f"cannot run {program}: {error.strerror}") from error
    try:
        output, error_output = running.communicate(standard_input, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        ending = "" if _kill(running) else f"; process {running.pid} does not end, so the kernel's driver may hang"
        raise ProgramError(program.name, f"did not end within {seconds:g} s{ending}") from error
    if running.returncode:
        raise ProgramError(
            program.name, f"failed with {running.returncode}: {_one_line(error_output or output)}", status=running.returncode
        )
    if len(output) > OUTPUT_MAX:
        raise ProgramError(program.name, f"printed over {OUTPUT_MAX} characters")
    return output


def _kill(running: "subprocess.Popen[str]") -> bool:
    """Kill a program with its children, and return whether it has ended. One that hangs in the kernel does not end; it is left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    try:
        running.communicate(timeout=_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        for stream in (running.stdin, running.stdout, running.stderr):
            if stream is not None:
                stream.close()
        return running.poll() is not None
    return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_MAX]
