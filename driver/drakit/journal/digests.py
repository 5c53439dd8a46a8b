"""Digests of the journal's content, so that a changed bit in a value is detected although the value can still be decoded.

A claim has two: of what ``begin`` writes and nothing changes afterwards, and of what ``complete`` and ``refresh`` write. So no change reads content
that it leaves alone. The claim's state is in neither: a changed state cannot be decoded. A digest is a checksum against damage, not against forgery:
a number from 1 to 2**32, so that the sum over all claims of a node fits SQLite's integers; 0 means unknown. The sum detects claims that vanished from
a file or returned to it, for example because its pages are of different age.
"""

import operator
import zlib
from collections.abc import Callable, Iterable, Sequence

from drakit.journal import codec

UNKNOWN = 0
Prepared = tuple[int, str, str | None]
"""Position, record and edits of a grant."""
_POSITION = operator.itemgetter(0)
_NUMBERS = tuple(map(codec.GrantRow._fields.index, ("position", "admin_access")))
_OPTIONAL = tuple(map(codec.GrantRow._fields.index, ("parameters", "config_source", "edits")))
_MUTABLE = ("record", "edits")
_fixed = operator.itemgetter(*(index for index, name in enumerate(codec.GrantRow._fields) if name not in _MUTABLE))


def of_claim(claim: codec.ClaimRow, grants: Sequence[codec.GrantRow]) -> tuple[int, int]:
    """Return both digests of a claim. Raises UnicodeEncodeError for text that is not Unicode."""
    fixed: list[object] = [claim.uid, claim.namespace, claim.name]
    for grant in sorted(grants, key=_POSITION):
        fixed += _fixed(grant)
    return _digest(fixed), of_prepared(claim.boot_id, [(grant.position, grant.record, grant.edits) for grant in grants])


def of_prepared(boot_id: str, grants: Iterable[Prepared]) -> int:
    """Return the digest of what ``complete`` writes: the boot, and each grant's record and edits. Raises UnicodeEncodeError as ``of_claim``."""
    values: list[object] = [boot_id]
    for grant in sorted(grants, key=_POSITION):
        values += grant
    return _digest(values)


def of_state(position: int, key: str, record: str) -> int:
    """Return the digest of a record of the driver's state. Raises UnicodeEncodeError as ``of_claim``."""
    return _digest((position, key, record))


def of_name(name: str) -> str:
    """Return the digest of a name, as text."""
    return str(zlib.crc32(name.encode(errors="surrogateescape")))


def check_claim(stored: tuple[int, int], claim: codec.ClaimRow, grants: Sequence[codec.GrantRow]) -> None:
    """Raise UnreadableError where a claim's content is not Unicode, or does not have its known digests."""
    path = f"claim {claim.uid}"
    check_text(path, *claim)
    for grant in grants:
        check_text(
            path, *(value for index, value in enumerate(grant) if index not in _NUMBERS and (value is not None or index not in _OPTIONAL))
        )
        if not all(isinstance(grant[index], int) for index in _NUMBERS):
            raise codec.UnreadableError(f"{path}: not a number")
    _check(path, stored, lambda: of_claim(claim, grants))


def check_state(stored: int, position: int, key: str, record: str, path: str) -> None:
    """Raise UnreadableError where a record of the driver's state is not Unicode, or does not have its known digest."""
    check_text(path, key, record)
    _check(path, (stored,), lambda: (of_state(position, key, record),))


def check_text(path: str, *texts: object) -> None:
    """Raise UnreadableError for a value that is no text, as a damaged file may have one in any column, and for text that was not UTF-8."""
    if not all(isinstance(text, str) for text in texts):
        raise codec.UnreadableError(f"{path}: not text")
    try:
        "".join(map(str, texts)).encode()
    except UnicodeEncodeError as error:
        raise codec.UnreadableError(f"{path}: not UTF-8") from error


def _check(path: str, stored: Sequence[int], compute: Callable[[], Sequence[int]]) -> None:
    try:
        present = compute()
    except UnicodeEncodeError as error:
        raise codec.UnreadableError(f"{path}: not UTF-8") from error
    if any(known not in {UNKNOWN, now} for known, now in zip(stored, present, strict=True)):
        raise codec.UnreadableError(f"{path}: its content was changed since it was written")


def _digest(values: Iterable[object]) -> int:
    # No value has a zero byte: names have none, and JSON escapes it.
    return zlib.crc32("\0".join(map(str, values)).encode()) + 1
