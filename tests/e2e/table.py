"""The summary at the end: one row for each check, for people on the terminal and as Markdown for docs/reference/tested.md."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One check. ``note`` says why it was skipped, or why it failed."""

    theme: str
    shown: str
    result: str
    seconds: float
    note: str = ""


def title(name: str) -> str:
    """Return the name of a check, or of a module of checks, as words."""
    plain, bracket, parameter = name.removeprefix("test_").removeprefix("check_").partition("[")
    words = plain.replace("_", " ")
    return f"{words[:1].upper()}{words[1:]}" + (f" ({parameter.rstrip(']')})" if bracket else "")


def counted(rows: Sequence[Row]) -> str:
    """Return how many checks came to which end."""
    kinds = list(dict.fromkeys(row.result for row in rows))
    return ", ".join(f"{sum(row.result == kind for row in rows)} {kind}" for kind in kinds)


def terminal(rows: Iterable[Row]) -> Iterable[str]:
    """Yield a line for each check."""
    for row in rows:
        end = row.note if row.result == "skipped" else f"{row.seconds:.1f} s"
        yield f"{row.result:8} {row.theme}: {row.shown} ({end})"


def markdown(rows: Sequence[Row], facts: Mapping[str, str]) -> str:
    """Return the table as Markdown, below what was tested."""
    lines = [f"| {name} | {value} |" for name, value in facts.items()]
    head = ["| What | Version |", "| --- | --- |", *lines, "", f"{counted(rows)}.", "", "| Theme | Check | Result | Seconds, or why not |"]
    body = [
        f"| {row.theme} | {row.shown} | {row.result} | {_cell(row.note) if row.result == 'skipped' else format(row.seconds, '.1f')} |"
        for row in rows
    ]
    return "\n".join((*head, "| --- | --- | --- | --- |", *body)) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
