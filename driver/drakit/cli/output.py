"""Results on standard output: rich tables on a terminal, plain ones in a pipe, JSON or YAML for machines."""

import json
import sys
from collections.abc import Iterable, Sequence

import rich.console
import rich.table
import rich.text
import yaml

from drakit.cli import options

# A pipe has no width; a table in it must not be cut.
PIPE_WIDTH = 2000


def console() -> rich.console.Console:
    """Standard output, as wide as a pipe needs."""
    out = rich.console.Console(highlight=False)
    return out if out.is_terminal else rich.console.Console(highlight=False, width=PIPE_WIDTH)


def note(text: str) -> None:
    """Tell a person something beside the result, on standard error; nothing to tell is fine."""
    if text:
        print(f"drakit: {text}", file=sys.stderr)


def heading(out: rich.console.Console, title: str) -> None:
    """A title: ruled on a terminal, a plain line in a pipe."""
    if out.is_terminal:
        out.rule(title, align="left", style="dim")
    else:
        out.print(f"== {title}", markup=False)


def document(content: object, form: options.Format) -> None:
    """Write one JSON or YAML document."""
    if form is options.Format.JSON:
        print(json.dumps(content, indent=2))
    else:
        print(yaml.safe_dump(content, sort_keys=False, width=120), end="")


def documents(contents: Iterable[object], form: options.Format) -> None:
    """Write several objects: a JSON List, or YAML documents apart."""
    items = list(contents)
    if form is options.Format.JSON:
        document({"apiVersion": "v1", "kind": "List", "items": items}, form)
    else:
        print(yaml.safe_dump_all(items, sort_keys=False, width=120, explicit_start=True), end="")


def put(out: rich.console.Console, shown: rich.console.RenderableType) -> None:
    """Print something laid out, such as a table; in a pipe without the blanks that fill its lines."""
    if out.is_terminal:
        out.print(shown)
        return
    with out.capture() as captured:
        out.print(shown)
    for line in captured.get().splitlines():
        out.print(line.rstrip(), markup=False, soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> rich.table.Table:
    """A table with a header; cells are shown as they are, whatever brackets they hold."""
    made = rich.table.Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*(rich.text.Text(str(cell), overflow="fold") for cell in row))
    return made
