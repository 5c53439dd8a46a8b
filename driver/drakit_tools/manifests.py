"""Reads Kubernetes objects from files and live clusters, for the commands that check them before they are applied."""

import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit.core import errors
from drakit.inputs import files as inputs
from drakit.kube import client

if TYPE_CHECKING:
    from drakit_cluster import manifests
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource
    from drakit_cluster.scheduling.allocator.known_errors import KnownErrors

STANDARD_INPUT = "-"
LIST_SECONDS = 30.0
SIZE_MAX = 64 << 20
"""Bytes of one file."""
_NAMED = 3
_ABSENT = (403, 404)
"""The status for a kind that the server does not serve, or that this user may not list."""
_SUFFIXES = (".yaml", ".yml", ".json")

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="YAML or JSON file with objects, a folder with such files, or - for standard input. May be repeated.",
    ),
]
Given = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="The same as -f FILE.", show_default=False),
]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="NAME=true|false", help="State of a Kubernetes feature gate of the cluster. May be repeated."),
]

AsKubernetes = Annotated[
    str | None,
    typer.Option(
        "--as-kubernetes", metavar="VERSION", help="Reproduce the known errors of the scheduler of this Kubernetes version: 1.36 or 1.37."
    ),
]


def read(files: Sequence[str], *, samples: bool = False) -> "list[manifests.Document]":
    """Return the objects of all files; raises ConfigError with the file's name. With ``samples``, the objects may be incomplete."""
    from drakit_cluster import manifests

    documents = []
    for file in _expanded(files):
        try:
            documents += manifests.read(_shown(file), _text(file), samples=samples)
        except manifests.ManifestError as error:
            raise errors.ConfigError(str(error)) from error
    return documents


def _expanded(files: Sequence[str]) -> list[str]:
    """Return the files, with each folder replaced by the files in it and below, except hidden ones."""
    if files.count(STANDARD_INPUT) > 1:
        raise errors.ConfigError(f"{STANDARD_INPUT}: standard input can be read only once")
    found: list[str] = []
    for file in files:
        path = pathlib.Path(file)
        inside = _below(path) if path.is_dir() else [file]
        if not inside:
            raise errors.ConfigError(f"{file}: the folder has no {', '.join(_SUFFIXES)} file")
        found += inside
    return list(dict.fromkeys(found))


def _below(folder: pathlib.Path) -> list[str]:
    """Return the YAML and JSON files in a folder and below, except hidden ones; raises ConfigError if a folder cannot be read."""

    def refuse(error: OSError) -> None:
        raise errors.ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error

    files: list[str] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [str(pathlib.Path(place, name)) for name in names if name.endswith(_SUFFIXES) and not name.startswith(".")]
    return sorted(files)


def _text(file: str) -> str:
    try:
        if file != STANDARD_INPUT:
            return inputs.read_text(pathlib.Path(file), limit=SIZE_MAX, encoding="utf-8-sig")
        content = sys.stdin.buffer.read(SIZE_MAX + 1)
    except OSError as error:
        raise errors.ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    if len(content) > SIZE_MAX:
        raise errors.ConfigError(f"{_shown(file)}: has more than {SIZE_MAX} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.ConfigError(f"{_shown(file)}: is not UTF-8 text (byte {error.start + 1})") from error


def _shown(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def gates(texts: Sequence[str]) -> dict[str, bool]:
    """Return gates by name; raises ConfigError for a text that is not NAME=true or NAME=false."""
    states: dict[str, bool] = {}
    for text in texts:
        name, _, state = text.partition("=")
        if state.lower() not in ("true", "false"):
            raise errors.ConfigError(f"--gate {text}: write NAME=true or NAME=false")
        states[name] = state.lower() == "true"
    return states


def feature_gates(texts: Sequence[str]) -> "FeatureGates":
    """Return the feature gates of a cluster; raises ConfigError for an unknown gate."""
    from drakit_cluster.objects import features

    try:
        return features.FeatureGates.of(gates(texts))
    except ValueError as error:
        raise errors.ConfigError(f"--gate: {error}") from error


def errors_of(version: str | None) -> "KnownErrors":
    """Return the known errors of a version, none without a version; raises SettingsError for an unknown version."""
    from drakit_cluster.scheduling.allocator import known_errors

    try:
        return known_errors.of_version(version or "")
    except ValueError as error:
        raise errors.SettingsError(str(error), key="--as-kubernetes") from error


def skip_notice(skipped: "Sequence[manifests.Document]") -> str:
    """Return a note that names the skipped objects; empty if there are none."""
    if not skipped:
        return ""
    named = [f"{document.label} ({document.place()})" for document in skipped[:_NAMED]]
    more = f" and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
    return f"skipped: {', '.join(named)}{more}"


def live(
    kubeconfig: pathlib.Path | None, kinds: "Sequence[Resource]", *, optional: "Sequence[Resource]" = ()
) -> "Mapping[Resource, list[Object]]":
    """Return all objects of some kinds of a cluster; raises ApiError or SettingsError. ``optional`` kinds may be missing or forbidden."""
    api = client.connect(kubeconfig)
    try:
        by_kind: dict[Resource, list[Object]] = {}
        for kind in (*kinds, *optional):
            items = _items(api, kind, needed=kind in kinds)
            by_kind[kind] = [entry for entry in items if isinstance(entry, dict)] if isinstance(items, list) else []
        return by_kind
    finally:
        api.close()


def _items(api: client.Client, kind: "Resource", *, needed: bool) -> object:
    try:
        return api.request("GET", kind.path(), timeout=LIST_SECONDS).get("items")
    except errors.ApiError as error:
        if needed or error.status not in _ABSENT:
            raise
        return None
