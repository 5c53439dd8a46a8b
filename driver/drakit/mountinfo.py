"""The mounts of this process's namespace, from /proc/self/mountinfo (proc(5)).

Any user who may mount something can write odd characters into it, so only a newline ends a line and only a space ends a field.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator

FILE = pathlib.Path("/proc/self/mountinfo")
_POINT = 4  # from the seventh field to the lone hyphen there are tags, one of them shared:N; the type follows the hyphen
_TAGS = 6
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mount:
    """One mount: where, the type of its file system, and whether what is mounted below it is seen beyond this namespace."""

    point: str
    kind: str
    is_shared: bool


def read() -> str:
    """Return the file's text; raises OSError."""
    return FILE.read_bytes().decode("utf-8", "surrogateescape")


def parse(text: str) -> Iterator[Mount]:
    """Yield the mounts in the file's order: a later one hides an earlier one at the same point."""
    for fields in (line.split(" ") for line in text.split("\n") if line):
        end = fields.index("-", _TAGS)
        yield Mount(
            point=_ESCAPED.sub(lambda escape: chr(int(escape[1], 8)), fields[_POINT]),
            kind=fields[end + 1],
            is_shared=any(tag.startswith("shared:") for tag in fields[_TAGS:end]),
        )
