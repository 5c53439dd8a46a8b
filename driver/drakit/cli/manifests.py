"""Files and live clusters as sources of Kubernetes objects, for the commands that judge them before a cluster does."""

import importlib.util
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit.core import errors
from drakit.kube import client

if TYPE_CHECKING:
    from drakit.cluster import manifests
    from drakit.cluster.json_types import Object
    from drakit.cluster.resources import Resource

STANDARD_INPUT = "-"
LIST_SECONDS = 30.0
_LIBRARIES = ("re2",)

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="YAML or JSON with objects; a folder for all files in it, - for standard input. May be repeated.",
    ),
]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="NAME=true|false", help="A feature gate of the cluster, by Kubernetes' name. May be repeated."),
]


def check_installed() -> None:
    """Raise SettingsError when the libraries that decide as a cluster does are not installed."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.SettingsError(f"this command needs {', '.join(missing)}; install it with: pip install 'drakit[cluster]'")


def read(files: Sequence[str]) -> "list[manifests.Document]":
    """Return the objects of all files; raises ConfigError that names the file."""
    from drakit.cluster import manifests

    documents = []
    for file in _expanded(files):
        try:
            documents += manifests.read(file, _text(file))
        except manifests.ManifestError as error:
            raise errors.ConfigError(str(error)) from error
    return documents


def _expanded(files: Sequence[str]) -> list[str]:
    found: list[str] = []
    for file in files:
        path = pathlib.Path(file)
        inside = sorted(str(one) for one in path.iterdir() if one.suffix in (".yaml", ".yml", ".json")) if path.is_dir() else [file]
        if not inside:
            raise errors.ConfigError(f"{file}: the folder has no .yaml, .yml or .json file")
        found += inside
    return found


def _text(file: str) -> str:
    if file == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise errors.ConfigError(f"{file}: cannot be read: {reason}") from error


def gates(texts: Sequence[str]) -> dict[str, bool]:
    """Return gates by name; raises ConfigError for anything but NAME=true or NAME=false."""
    found: dict[str, bool] = {}
    for text in texts:
        name, _, state = text.partition("=")
        if state.lower() not in ("true", "false"):
            raise errors.ConfigError(f"--gate {text}: write NAME=true or NAME=false")
        found[name] = state.lower() == "true"
    return found


def live(kubeconfig: pathlib.Path | None, kinds: "Sequence[Resource]") -> "Mapping[Resource, list[Object]]":
    """Return all objects of some kinds from a cluster; raises ApiError or SettingsError."""
    api = client.connect(kubeconfig)
    try:
        found: dict[Resource, list[Object]] = {}
        for kind in kinds:
            listing = api.request("GET", kind.path(), timeout=LIST_SECONDS)
            items = listing.get("items")
            found[kind] = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
        return found
    finally:
        api.close()
