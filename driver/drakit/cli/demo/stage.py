"""How the demo tells its story: chapters, explanations, pictures, and checks that end it when they fail.

Lively on a terminal; in a pipe, plain lines without control characters, in the order in which things happen.
"""

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import rich.console

from drakit.cli import output
from drakit.core import errors

Found = TypeVar("Found")

POLL_SECONDS = 0.03
PATIENCE_SECONDS = 20.0
_QUIET_SECONDS = 1.0
_WIDTH = 110
_INDENT = 2
_OK = 4
_ENDLESS = 10_000


class DemoError(errors.DrakitError):
    """Something that the demo promised did not happen."""


class Stage:
    """Where the demo is shown. ``check_alive`` is called while it waits, and raises when waiting is in vain."""

    def __init__(self, console: rich.console.Console, *, chapters: int, check_alive: Callable[[], None] = lambda: None) -> None:
        self.checks = 0
        self.check_alive = check_alive
        self._console = console
        self._chapters = chapters
        self._chapter = 0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the curtain rose."""
        return time.monotonic() - self._began

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
        self._chapter += 1
        self._console.print()
        self._console.print(f"[{self._chapter}/{self._chapters}] {title}", markup=False, style="bold cyan")

    def chapterless(self, text: str) -> None:
        """A line that belongs to no chapter."""
        self._console.print(f"\n{text}", markup=False, style="bold")

    def say(self, text: str, *, style: str = "") -> None:
        """Explain in a sentence or two."""
        for line in textwrap.wrap(text, min(self._console.width, _WIDTH) - _INDENT, break_long_words=False, break_on_hyphens=False):
            self._console.print(f"{'':{_INDENT}}{line}", markup=False, style=style, soft_wrap=True)

    def show(self, lines: Sequence[str]) -> None:
        """Show a picture or a file as it is."""
        for line in lines:
            self._console.print(f"{'':{_INDENT + 2}}{line}".rstrip(), markup=False, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show rows under a header."""
        output.put(self._console, output.table("", columns, rows), indent=_INDENT + 2)

    def check(self, promise: str, found: object, wanted: object = True) -> None:
        """Hold the demo to its promise; raises DemoError that says what was found instead."""
        if found != wanted:
            raise DemoError(f"{promise}: expected {wanted!r}, found {found!r}")
        self.checks += 1
        width = self._console.width - _INDENT - _OK if self._console.is_terminal else _ENDLESS
        for number, line in enumerate(textwrap.wrap(promise, width, break_long_words=False, break_on_hyphens=False)):
            self._console.print(f"{'':{_INDENT}}{'' if number else 'ok':{_OK}}{line}", markup=False, style="green", soft_wrap=True)

    def wait(self, event: str, look: Callable[[], Found | None], *, patience: float = PATIENCE_SECONDS) -> Found:
        """Look until something is found; raises DemoError after ``patience`` seconds."""
        found = look()
        if found:
            return found
        ticks = self._ticks(event, patience)
        if self._console.is_terminal:
            with self._console.status(f"waiting until {event}"):
                return _first(look, ticks)
        return _first(look, ticks)

    def _ticks(self, event: str, patience: float) -> Iterator[None]:
        """A tick whenever it is time to look again; tells a pipe once what is being waited for."""
        began, told = time.monotonic(), self._console.is_terminal
        while (waited := time.monotonic() - began) < patience:
            if waited > _QUIET_SECONDS and not told:
                told = True
                self.say(f"... waiting until {event}")
            self.check_alive()
            time.sleep(POLL_SECONDS)
            yield
        raise DemoError(f"waited {patience:.0f} s in vain until {event}")


def _first(look: Callable[[], Found | None], ticks: Iterator[None]) -> Found:
    for _ in ticks:
        found = look()
        if found:
            return found
    raise AssertionError("ticks end by raising")
