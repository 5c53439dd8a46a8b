"""Attribute values of a device: text, whole numbers, truth values, versions, and (behind a gate) lists of one of them.

``Version`` is strict semantic versioning 2.0.0, because that is all the API server takes; ``Version.lenient`` makes one from what hardware
reports (``580.95.05`` becomes ``580.95.5``, ``12.4`` becomes ``12.4.0``).
"""

import dataclasses
import re
from typing import Self

from drakit.core import errors

TEXT_MAX_BYTES = 64
_INT64 = range(-(2**63), 2**63)
_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENT = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_IDENT}(?:\.{_IDENT})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_LOOSE = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?")


@dataclasses.dataclass(frozen=True, slots=True, order=False)
class Version:
    """A semantic version; raises InventoryError when the text is not one."""

    text: str

    def __post_init__(self) -> None:
        if len(self.text.encode()) > TEXT_MAX_BYTES or not _SEMVER.fullmatch(self.text):
            raise errors.InventoryError(f"{self.text!r} is not a semantic version such as 1.2.3")

    @classmethod
    def lenient(cls, text: str) -> Self | None:
        """A version from up to three dotted numbers, leading zeros dropped and missing parts zero; None when there are none."""
        match = _LOOSE.fullmatch(text.strip())
        if match is None:
            return None
        return cls(".".join(str(int(part or "0")) for part in match.groups()))

    def __str__(self) -> str:
        return self.text


Scalar = str | int | bool | Version
AttributeValue = Scalar | tuple[str, ...] | tuple[int, ...] | tuple[bool, ...] | tuple[Version, ...]


def check(value: AttributeValue, field: str) -> AttributeValue:
    """Return value, or raise InventoryError naming field: text of at most 64 bytes, int64, no empty or mixed list."""
    if isinstance(value, tuple):
        if not value or len({type(item) for item in value}) != 1:
            raise errors.InventoryError("a list attribute needs at least one value, all of one type", field=field)
        for item in value:
            _check_scalar(item, field)
        return value
    return _check_scalar(value, field)


def _check_scalar(value: Scalar, field: str) -> Scalar:
    if isinstance(value, bool | Version):
        return value
    if isinstance(value, int):
        if value not in _INT64:
            raise errors.InventoryError(f"{value} does not fit 64 bits", field=field)
        return value
    if not isinstance(value, str):
        raise errors.InventoryError(f"{value!r} is not text, a whole number, a truth value or a Version", field=field)
    if len(value.encode()) > TEXT_MAX_BYTES:
        raise errors.InventoryError(f"text of {len(value.encode())} bytes is over the limit of {TEXT_MAX_BYTES}", field=field)
    return value


def cut(text: str) -> str:
    """Text shortened to what the API takes (64 bytes of UTF-8), never inside a character."""
    return text.encode()[:TEXT_MAX_BYTES].decode(errors="ignore")
