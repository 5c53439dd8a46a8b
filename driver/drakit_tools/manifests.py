"""Reads Kubernetes objects from files and live clusters, for the commands that check them before they are applied."""

import contextlib
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import exits
from drakit.cli import output
from drakit.core import errors
from drakit.inputs import files as inputs
from drakit.kube import client
from drakit.telemetry import plurals

if TYPE_CHECKING:
    from drakit_cluster import manifests
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.scheduling.allocator.known_errors import KnownErrors

STANDARD_INPUT = "-"
LIST_SECONDS = 30.0
SIZE_MAX = 64 << 20
"""Bytes of one file."""
_NAMED = 3
_LINE = re.compile(r"\bline ([0-9]+)")
_CHART = "Chart.yaml"
_OF_CHARTS = frozenset({"templates", "charts"})
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

Kubernetes = Annotated[
    str | None,
    typer.Option(
        "--kubernetes",
        metavar="VERSION",
        help="Decide as this Kubernetes version, with its gates, fields, rules and known errors: 1.34 to 1.37, or 1.38 as planned. "
        "Default: the rules of the server's version, or else of 1.37, without known errors.",
    ),
]

Live = Annotated[
    bool,
    typer.Option("--live", help="Read slices, classes, claims, nodes and pods from a cluster: that of --kubeconfig or KUBECONFIG."),
]
Kubeconfig = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="The cluster to read; implies --live. Default: KUBECONFIG, or the pod's service account."
    ),
]


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """End a command with BAD_INPUT after an error, because there is no answer then."""
    try:
        yield
    except errors.DrakitError as error:
        output.warn(str(error))
        raise typer.Exit(exits.Exit.BAD_INPUT) from error


def read(files: Sequence[str], *, samples: bool = False) -> "list[manifests.Document]":
    """Return the objects of all files; raises ConfigError with the file's name. With ``samples``, the objects may be incomplete."""
    from drakit_cluster import manifests

    documents: list[manifests.Document] = []
    without: list[str] = []
    for file in _expanded(files):
        try:
            text, is_named = _text(file), file in files
            in_file = manifests.read(_shown(file), text, samples=samples, others=not is_named)
            documents += in_file
            without += [file] if not in_file and not is_named else []
        except manifests.ManifestError as error:
            raise errors.ConfigError(f"{error}{_hint(str(error).removeprefix(_shown(file)), text)}") from error
    if without:
        output.note(f"skipped: {plurals.counted(len(without), 'file')} without Kubernetes objects: {_first(without)}")
    return documents


def _hint(message: str, text: str) -> str:
    """Return what to do if a line that an error names is of a template of Helm."""
    lines = text.split("\n")
    named = [int(number) for number in _LINE.findall(message)]
    is_template = any("{{" in line for number in named for line in lines[number - 1 : number])
    return "; if this is a template of Helm, check what helm template CHART writes" if is_template else ""


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
    """Return the YAML and JSON files in a folder and below, except hidden ones and those of Helm; raises ConfigError if a folder cannot be read."""

    def refuse(error: OSError) -> None:
        raise errors.ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error

    files: list[str] = []
    charts: list[str] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if _CHART in names:
            charts.append(place)
            folders[:] = [name for name in folders if name not in _OF_CHARTS]
        read = [name for name in names if not (_CHART in names and (name == _CHART or name.startswith("values.")))]
        files += [str(pathlib.Path(place, name)) for name in read if name.endswith(_SUFFIXES) and not name.startswith(".")]
    if charts and not files:
        raise errors.ConfigError(f"{folder}: is a Helm chart; check what it makes: helm template {charts[0]} | drakit lint -")
    for chart in charts:
        output.note(f"skipped: templates and values of the Helm chart {chart}; check what helm template {chart} writes")
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


def feature_gates(texts: Sequence[str], version: str | None = None) -> "FeatureGates":
    """Return a Kubernetes version, by default the newest, with gates; raises ConfigError for an unknown version or gate."""
    from drakit_cluster.objects import features, versions

    known = known_version(version or versions.NEWEST)
    try:
        return features.FeatureGates.of(gates(texts), known)
    except ValueError as error:
        raise errors.ConfigError(f"--gate: {error}") from error


def known_version(text: str) -> str:
    """Return a Kubernetes version; raises ConfigError for one that is not in the table."""
    from drakit_cluster.objects import versions

    try:
        return versions.known(text)
    except ValueError as error:
        raise errors.ConfigError(f"--kubernetes: {error}") from error


def errors_of(version: str | None) -> "KnownErrors":
    """Return the known errors of a version, none without a version. Raises ConfigError for a version that is not in the table."""
    from drakit_cluster.scheduling.allocator import known_errors

    return known_errors.BY_VERSION[known_version(version)] if version is not None else known_errors.NONE


def compared_errors(version: str | None) -> "KnownErrors":
    """Return the known errors that correct decisions are compared with: those of a version, by default of 1.36."""
    from drakit_cluster.scheduling.allocator import known_errors

    return known_errors.KUBERNETES_1_36 if version is None else known_errors.BY_VERSION[version]


def server_version(kubeconfig: pathlib.Path | None) -> str:
    """Return the version of the table that is nearest to a server's own, with a note if it differs; raises ApiError or SettingsError."""
    from drakit_cluster.objects import versions

    api = client.connect(kubeconfig)
    try:
        text = str(api.request("GET", "/version", timeout=LIST_SECONDS).get("gitVersion", ""))
    finally:
        api.close()
    nearest = versions.nearest(text)
    if not text.startswith(f"v{nearest}."):
        output.note(f"the server reports version {text or 'none'} and is judged as Kubernetes {nearest}; choose another with --kubernetes")
    return nearest


def skip_notice(skipped: "Sequence[manifests.Document]") -> str:
    """Return a note that names the skipped objects; empty if there are none."""
    if not skipped:
        return ""
    return f"skipped: {_first([f'{document.label} ({document.place()})' for document in skipped])}"


def _first(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
