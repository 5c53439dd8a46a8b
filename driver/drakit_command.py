"""The command ``drakit`` from its first line to its last: what Ctrl-C does before, while and after its sub-commands run.

This module is outside the package ``drakit`` because importing anything of that takes a tenth of a second. However and whenever a command is
interrupted, it writes one line and ends with status 130. The interpreter itself starts before any of this: Ctrl-C in those few milliseconds ends
it as it ends any Python program.
"""

try:
    import atexit
    import contextlib
    import gc
    import os
    import signal
    import sys
    import threading
    import types
    from collections.abc import Iterator
except KeyboardInterrupt:
    # Whichever import failed, this module is one of those that every interpreter has at hand.
    import posix

    posix.write(2, b"drakit: interrupted\n")
    posix._exit(130)  # noqa: SLF001 - the name of the standard library's os._exit

STATUS = 128 + signal.SIGINT


class Interrupts:
    """What SIGINT does in one program. Only one line says so, however often a person presses Ctrl-C."""

    def __init__(self, program: str) -> None:
        self.is_told = False
        self.is_raised = False
        self._program = program

    def end(self, *_: object) -> None:
        """End the process at once. The line goes to the descriptor, because the interrupted code may be inside ``sys.stderr``."""
        if not self.is_told:
            self.is_told = True
            with contextlib.suppress(OSError):
                os.write(2, f"{self._program}: interrupted\n".encode())
        os._exit(STATUS)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for a first SIGINT inside the block; a second one ends the process at once.

        Nothing changes where the process does something else about SIGINT: a shell's background job ignores it.
        """
        before = signal.getsignal(signal.SIGINT)
        if not self.is_ours():
            yield
            return
        signal.signal(signal.SIGINT, self._raise)
        try:
            yield
        finally:
            if self.is_ours():
                signal.signal(signal.SIGINT, before)

    def is_ours(self) -> bool:
        """Return whether SIGINT does what Python or this object made it do."""
        is_main = threading.current_thread() is threading.main_thread()
        return is_main and signal.getsignal(signal.SIGINT) in {signal.default_int_handler, self.end, self._raise}

    def _raise(self, _number: int, _frame: types.FrameType | None) -> None:
        signal.signal(signal.SIGINT, self.end)
        self.is_raised = True
        raise KeyboardInterrupt


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Do not collect garbage while the body imports a program, and never search the imported objects later. This saves a third of a start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def main() -> None:
    """Run the command ``drakit`` with the process's arguments; ends the process where it fails."""
    interrupts = Interrupts("drakit")
    if interrupts.is_ours():
        signal.signal(signal.SIGINT, interrupts.end)
        # Registered first, so it runs last: what the interpreter does after that can be neither interrupted nor long.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        sys.unraisablehook = lambda lost: _end_if_lost(interrupts, lost)
    with without_collections():
        from drakit.cli import app

    app.main(interrupts)


def _end_if_lost(interrupts: Interrupts, lost: "sys.UnraisableHookArgs") -> None:
    """End the process where the exception of an interrupt was raised in a finalizer, from which none can come out."""
    if interrupts.is_raised and lost.exc_type is KeyboardInterrupt:
        interrupts.end()
    sys.__unraisablehook__(lost)
