"""The output of the demo: chapters, explanations, pictures, and checks that end the demo when they fail.

On a terminal with colour and a spinner; in a pipe plain lines without control characters.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import rich.console

from drakit.cli import output, terminal
from drakit.core import errors

Result = TypeVar("Result")

POLL_SECONDS = 0.03
PATIENCE_SECONDS = 20.0
_QUIET_SECONDS = 1.0
_WIDTH = 110
_INDENT = 2
_OK = 4


class DemoError(errors.DrakitError):
    """A check of the demo failed."""


class Stage:
    """The demo's output. ``wait`` calls ``check_alive``, which raises if the event can no longer happen."""

    def __init__(self, console: rich.console.Console, *, chapters: int, check_alive: Callable[[], None] = lambda: None) -> None:
        self.checks = 0
        self.check_alive = check_alive
        self._console = console
        self._chapters = chapters
        self._chapter = 0
        self._began = time.monotonic()

    @property
    def room(self) -> int | None:
        """Return the maximum width of a picture; None in a pipe, which has no limit."""
        width = output.width(self._console)
        return None if width is None else width - _INDENT - 2

    @property
    def seconds(self) -> float:
        """Return the seconds since the demo began."""
        return time.monotonic() - self._began

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
        self._chapter += 1
        self._console.print()
        output.say(self._console, f"[{self._chapter}/{self._chapters}] {title}", hang=_INDENT, style="bold cyan")

    def chapterless(self, text: str) -> None:
        """Print a line that belongs to no chapter."""
        self._console.print()
        output.say(self._console, text, style="bold")

    def say(self, text: str, *, style: str = "") -> None:
        """Print an explanation, wrapped to the console's width."""
        for line in terminal.wrapped(text, min(self._console.width, _WIDTH), indent=_INDENT):
            self._console.print(line, markup=False, style=style, soft_wrap=True)

    def lines(self, *lines: str) -> None:
        """Print lines of text below an explanation, each wrapped on a terminal."""
        for line in lines:
            output.say(self._console, line, indent=_INDENT + 2, hang=_INDENT)

    def commands(self, *lines: str) -> None:
        """Print commands to be copied."""
        for line in lines:
            output.command(self._console, line, indent=_INDENT + 2)

    def show(self, lines: Sequence[str]) -> None:
        """Print the lines of a picture or a file unchanged."""
        for line in lines:
            self._console.print(f"{'':{_INDENT + 2}}{line}".rstrip(), markup=False, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows under a header."""
        output.put(self._console, output.table("", columns, rows), indent=_INDENT + 2)

    def check(self, promise: str, actual: object, wanted: object = True) -> None:
        """Print the promise if it holds; raise DemoError with the expected and the actual value otherwise."""
        if actual != wanted:
            raise DemoError(f"{promise}: expected {wanted!r}, found {actual!r}")
        self.checks += 1
        output.say(self._console, f"{'ok':{_OK}}{promise}", indent=_INDENT, hang=_OK, style="green")

    def wait(self, event: str, look: Callable[[], Result | None], *, patience: float = PATIENCE_SECONDS) -> Result:
        """Call ``look`` until its result is true and return that; raises DemoError after ``patience`` seconds."""
        value = look()
        if value:
            return value
        ticks = self._ticks(event, patience)
        if terminal.is_terminal(self._console):
            with self._console.status(f"waiting until {event}"):
                return _first(look, ticks)
        return _first(look, ticks)

    def _ticks(self, event: str, patience: float) -> Iterator[None]:
        """Yield each time ``look`` is to be called again; in a pipe, print once what the demo waits for."""
        began, is_written = time.monotonic(), terminal.is_terminal(self._console)
        while (waited := time.monotonic() - began) < patience:
            if waited > _QUIET_SECONDS and not is_written:
                is_written = True
                self.say(f"... waiting until {event}")
            self.check_alive()
            time.sleep(POLL_SECONDS)
            yield
        raise DemoError(f"timed out after {patience:.0f} s waiting until {event}")


def _first(look: Callable[[], Result | None], ticks: Iterator[None]) -> Result:
    for _ in ticks:
        value = look()
        if value:
            return value
    raise AssertionError("ticks end by raising")
