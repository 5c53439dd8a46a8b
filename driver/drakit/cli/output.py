"""Results on standard output: tables that fit a terminal, one line for each row in a pipe, JSON or YAML for machines."""

import contextlib
import contextvars
import dataclasses
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import rich.console

from drakit.cli import options, process, terminal
from drakit.inputs import documents as yaml_documents
from drakit.telemetry import escaping

# A pipe has no width; a table in it must not be cut.
PIPE_WIDTH = 2000
SLOW_SECONDS = 2.0
"""How long a search may take before a person at a terminal is told what it does."""
_GAP = 2
_RULE = 4
_GOES_ON = " \\"


def console() -> rich.console.Console:
    """Return a console on standard output; in a pipe it is so wide that no line is cut."""
    out = terminal.console()
    return out if terminal.is_terminal(out) else terminal.console(width=PIPE_WIDTH)


def prose() -> rich.console.Console:
    """Return a console for explanations: standard output, or nothing with --quiet."""
    return terminal.console(quiet=True) if terminal.QUIET.get() else console()


def problems() -> rich.console.Console:
    """Return the console on which the demo reports failures: standard output, or standard error with --quiet."""
    return terminal.console(stderr=True) if terminal.QUIET.get() else console()


def for_scripts(text: object) -> None:
    """With --quiet, print the one value that a script needs, because the explanation that contains it is left out."""
    if terminal.QUIET.get():
        print(text, flush=True)


def note(text: str) -> None:
    """Write a note to standard error, unless it is empty or --quiet is given."""
    if not terminal.QUIET.get():
        warn(text)


def warn(text: str) -> None:
    """Write a warning to standard error, unless it is empty."""
    if text:
        terminal.complain(process.PROGRAM.get(), text)


@contextlib.contextmanager
def progress(text: Callable[[], str], after: float = SLOW_SECONDS) -> Iterator[None]:
    """Note once what the block does if it takes longer than ``after`` seconds: on a terminal only, and not with --quiet."""
    if not terminal.is_terminal(terminal.console(stderr=True)):
        yield
        return
    context = contextvars.copy_context()  # A thread starts without --quiet and the name of the program.
    timer = threading.Timer(after, lambda: context.run(note, text()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # A note that is being written comes before the result.


def width(out: rich.console.Console) -> int | None:
    """Return the width of a terminal; None for a pipe, which has any width."""
    return out.width if terminal.is_terminal(out) else None


def say(out: rich.console.Console, text: str, *, indent: int = 0, hang: int = 0, style: str = "") -> None:
    """Print one paragraph: on a terminal wrapped between words, in a pipe as one line."""
    for line in terminal.wrapped(text, width(out), indent=indent, hang=hang):
        out.print(line, markup=False, soft_wrap=True, style=style)


def command(out: rich.console.Console, text: str, *, indent: int = 2) -> None:
    """Print a command to copy. On a narrow terminal it is broken into lines that end with a backslash."""
    room = width(out)
    *first, last = terminal.wrapped(text, None if room is None else room - len(_GOES_ON), indent=indent, hang=indent)
    for line in [*(f"{line}{_GOES_ON}" for line in first), last]:
        out.print(line, markup=False, soft_wrap=True)


def heading(out: rich.console.Console, title: str) -> None:
    """Print a title, with a rule on a terminal that is wide enough."""
    if terminal.is_terminal(out) and len(title) + _RULE <= out.width:
        out.rule(escaping.escaped(title), align="left", style="dim")
    else:
        say(out, f"== {title}", hang=_GAP + 1)


def document(content: object, form: options.Format) -> None:
    """Write one JSON or YAML document."""
    if form is options.Format.JSON:
        print(json.dumps(content, indent=2))
    else:
        print(yaml_documents.dump(content), end="")


def documents(contents: Iterable[object], form: options.Format) -> None:
    """Write several objects as a JSON List, or as separate YAML documents."""
    items = list(contents)
    if form is options.Format.JSON:
        document({"apiVersion": "v1", "kind": "List", "items": items}, form)
    else:
        print(yaml_documents.dump_all(items), end="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a header. Columns without content are left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self, width: int | None = None) -> list[str]:
        """Return the table as lines. If it is wider than ``width``, each row is a paragraph; None means any width.

        A cell is broken only between words, and only if it is wider than a line.
        """
        used = [place for place in range(len(self.columns)) if not self.rows or any(row[place] for row in self.rows)]
        columns, rows = [self.columns[place] for place in used], [[row[place] for place in used] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        if width is not None and sum(widths) + _GAP * (len(widths) - 1) > width:
            return [line for row in rows for line in _paragraph(columns, row, width)]
        return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in [columns, *rows]]


def _paragraph(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """Return one row as a paragraph: its first cell, and below it the others, each after the name of its column."""
    made, line = terminal.wrapped(row[0], width, hang=2 * _GAP), ""
    for name, cell in zip(columns[1:], row[1:], strict=True):
        piece = f"{name.lower()} {cell}".strip() if cell else ""
        if piece and line and len(line) + len(piece) + _GAP <= width:
            line = f"{line}{'':{_GAP}}{piece}"
        elif piece:
            made += [line] if line else []
            *whole, line = terminal.wrapped(piece, width if " " in cell else None, indent=_GAP, hang=_GAP)
            made += whole
    return made + ([line] if line else [])


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table with all cells as escaped text."""
    return Table(title=title, columns=tuple(columns), rows=tuple(tuple(escaping.escaped(str(cell)) for cell in row) for row in rows))


def put(out: rich.console.Console, shown: Table, *, indent: int = 0) -> None:
    """Print a table: on a terminal as wide as that is, in a pipe one line for each row."""
    if shown.title:
        out.print(shown.title, markup=False, soft_wrap=True)
    for number, line in enumerate(shown.lines(None if width(out) is None else out.width - indent)):
        is_header = not number and line.split()[:1] == shown.columns[0].split()[:1]
        out.print(f"{'':{indent}}{line}", markup=False, soft_wrap=True, style="bold" if is_header else "")
