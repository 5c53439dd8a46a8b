"""The version of a release: one, in every file that has it."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping

PLACES: Mapping[str, str] = {
    "pyproject.toml": r'^version = "(.+)"$',
    "cluster/pyproject.toml": r'^version = "(.+)"$|"drakit==(.+)"',
    "driver/drakit_gpu/pyproject.toml": r'^version = "(.+)"$|"drakit==(.+)"',
    "driver/drakit_nic/pyproject.toml": r'^version = "(.+)"$|"drakit==(.+)"',
    "driver/drakit_tools/pyproject.toml": r'^version = "(.+)"$|"drakit(?:-cluster)?==(.+)"',
    "daemonset/chart/Chart.yaml": r'^(?:version|appVersion): "?([^"\n]+)"?$',
    "daemonset/base/kustomization.yaml": r'newTag: "(.+)"',
    "daemonset/gpu/kustomization.yaml": r'newTag: "(.+)"',
    "daemonset/webhook/kustomization.yaml": r'newTag: "(.+)"',
}
"""Files of the repository, and where they have the version of drakit."""
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class ReleaseError(Exception):
    """A release that cannot be cut. The message says what to change."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A version in a file."""

    file: str
    version: str


def found(root: pathlib.Path) -> list[Place]:
    """Return every version of drakit in the files that have it."""
    places = []
    for file, pattern in PLACES.items():
        matches = list(re.finditer(pattern, (root / file).read_text("utf-8"), re.MULTILINE))
        if not matches:
            raise ReleaseError(f"{file}: has no version where {pattern} looks for it; correct PLACES in tests/release/versions.py")
        places += [Place(file=file, version=next(filter(None, match.groups()))) for match in matches]
    return places


def agreed(root: pathlib.Path) -> str:
    """Return the version that all files agree on. Raises ReleaseError, which names the files that do not."""
    places = found(root)
    version = places[0].version
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{places[0].file}: {version!r} is no version such as 0.2.0 or 0.2.0rc1")
    others = sorted({f"{place.file} has {place.version}" for place in places if place.version != version})
    if others:
        raise ReleaseError(f"pyproject.toml has version {version}, but {', '.join(others)}")
    return version
