"""Semantic versions, as the library `blang/semver` that Kubernetes uses reads and orders them (semver.org 2.0.0)."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value

NUMBER_MAX: Final = 2**64 - 1
_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
_FULL: Final = 3

Identifier = tuple[int, int, str]
"""A pre-release identifier in a form that sorts: numbers before words, numbers by value, words by their bytes."""


@functools.total_ordering
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A version. Build metadata is validated, then ignored: it affects neither order nor equality."""

    major: int
    minor: int
    patch: int
    pre: tuple[Identifier, ...] = ()

    @property
    def rank(self) -> tuple[int, int, int, bool, tuple[Identifier, ...]]:
        """Return the sort key of a version: a release comes after its pre-releases."""
        return (self.major, self.minor, self.patch, not self.pre, self.pre)

    def __str__(self) -> str:
        pre = ".".join(text or str(number) for _, number, text in self.pre)
        return f"{self.major}.{self.minor}.{self.patch}{f'-{pre}' if pre else ''}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.rank == other.rank

    def __lt__(self, other: object) -> bool:
        return self.rank < other.rank if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rank)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Semver:
    """Parse a version strictly. Raises ValueError."""
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != _FULL:
        raise ValueError("No Major.Minor.Patch elements found")
    rest, _, build = parts[2].partition("+")
    has_build = "+" in parts[2]
    patch, dash, pre = rest.partition("-")
    for identifier in build.split(".") if has_build else ():
        _identifier(identifier, "Build meta data")
    return Semver(
        _number(parts[0], "major"),
        _number(parts[1], "minor"),
        _number(patch, "patch"),
        tuple(_pre_release(part) for part in pre.split(".")) if dash else (),
    )


def normalize(text: str) -> str:
    """Return the text with a leading `v` and leading zeros removed and missing parts filled with 0. Raises ValueError."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < _FULL:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (_FULL - len(parts))
    return ".".join(parts)


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in {*"0123456789"} else "0" + stripped


def _number(text: str, what: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in {what} number {text!r}")
    if len(text) > 1 and text.startswith("0"):
        raise ValueError(f"{what.capitalize()} number must not contain leading zeroes {text!r}")
    value = int(text)
    if value > NUMBER_MAX:
        raise ValueError(f"{what.capitalize()} number {text!r} is out of range")
    return value


def _identifier(text: str, what: str) -> str:
    if not text:
        raise ValueError(f"{what} is empty")
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in {what} {text!r}")
    return text


def _pre_release(text: str) -> Identifier:
    _identifier(text, "prerelease")
    if not _DIGITS.fullmatch(text):
        return (1, 0, text)
    return (0, _number(text, "prerelease"), "")


def _to_semver(text: str, normalized: bool = False) -> Semver:  # noqa: FBT001, FBT002 - an argument of CEL
    try:
        return parse(normalize(text) if normalized else text)
    except ValueError as error:
        raise errors.EvalError(str(error)) from error


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "semver": _to_semver,
    "isSemver": lambda *args: values.is_accepted(_to_semver, *args),
    "major": lambda version: version.major,
    "minor": lambda version: version.minor,
    "patch": lambda version: version.patch,
}
