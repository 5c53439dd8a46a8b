"""The wheels of drakit that ``drakit new`` puts into a project, so that pip can install it although no package index has drakit."""

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from drakit.cli import options
from drakit.core import errors

OPTION = "--drakit"
FOLDERS = {"drakit": "", "drakit_cluster": "cluster", "drakit_tools": "driver/drakit_tools"}
"""The folder in a checkout of each distribution that a project gets."""
_GIT = "git+"
_REASON_MOST = 300
_HATCHLING = """
import os, sys
from hatchling.cli import hatchling

for project in sys.argv.pop(1).split(os.pathsep):
    os.chdir(project)
    hatchling()
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wheels:
    """The wheel of drakit, and those of its local cluster and tools, which tests use."""

    drakit: pathlib.Path
    cluster: pathlib.Path
    tools: pathlib.Path

    @property
    def version(self) -> str:
        """Return the version of drakit, without the local part, which no index has."""
        return self.drakit.name.split("-")[1].partition("+")[0]


@contextmanager
def found(source: str | None) -> Iterator[Wheels]:
    """Yield the wheels of a checkout, a wheel or a git URL; None means the source of this installation. Raises SettingsError."""
    source = source or _own_origin()
    if source.endswith(".whl") and "://" not in source:
        yield _beside(pathlib.Path(source))
        return
    with tempfile.TemporaryDirectory(prefix="drakit-") as folder:
        requirements = _requirements(source)
        ran = _built(requirements, pathlib.Path(folder))
        if ran.returncode != 0:
            raise errors.SettingsError(f"cannot build wheels of {requirements[0]}: {_reason(ran.stderr)}", key=OPTION)
        yield _beside(next(pathlib.Path(folder).glob("drakit-*.whl")))


def copy(wheels: Wheels, folder: pathlib.Path) -> None:
    """Copy the wheels into a folder; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in (wheels.drakit, wheels.cluster, wheels.tools):
        shutil.copyfile(wheel, folder / wheel.name)


class Installed(Protocol):
    """The parts of an installed distribution that are read."""

    @property
    def version(self) -> str:
        """Return its version."""
        ...

    def read_text(self, filename: str, /) -> str | None:
        """Return a file of its record; None if it is missing."""
        ...


def origin(installed: Installed) -> str:
    """Return the source of an installed distribution (PEP 610) as a value of ``--drakit``; its version if it came from an index."""
    text = installed.read_text("direct_url.json")
    if text is None:
        return f"drakit=={installed.version}"
    record = json.loads(text)
    url = str(record["url"])
    if "vcs_info" in record:
        return f"{_GIT}{url}@{record['vcs_info']['commit_id']}"
    parts = urllib.parse.urlsplit(url)
    return urllib.request.url2pathname(parts.path) if parts.scheme == "file" else url


def _own_origin() -> str:
    try:
        return origin(importlib.metadata.distribution("drakit"))
    except (importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError) as error:
        raise errors.SettingsError(
            "cannot find the source of this installation; add --drakit with a checkout, a wheel or a git URL", key=OPTION
        ) from error


def _requirements(source: str) -> Sequence[str]:
    """Return the requirements of which pip builds the wheels."""
    if source.startswith("drakit=="):
        return [source.replace("drakit", name.replace("_", "-"), 1) for name in FOLDERS]
    if source.endswith(".whl"):
        return [source.replace("/drakit-", f"/{name}-") for name in FOLDERS]
    if source.startswith(_GIT) or "://" in source:
        url = source if source.startswith(_GIT) else f"{_GIT}{source}"
        return [f"{url}#subdirectory={folder}" if folder else url for folder in FOLDERS.values()]
    checkout = options.resolved(pathlib.Path(source).expanduser(), OPTION)
    folders = [checkout / folder for folder in FOLDERS.values()]
    for folder in folders:
        if not (folder / "pyproject.toml").is_file():
            raise errors.SettingsError(f"{source} is not a checkout of drakit: {folder / 'pyproject.toml'} is missing", key=OPTION)
    return [str(folder) for folder in folders]


def _built(requirements: Sequence[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Build wheels into a folder."""
    # A development environment has the build back end; elsewhere pip downloads it.
    if importlib.util.find_spec("hatchling"):
        if all(map(os.path.isabs, requirements)):
            return build(requirements, folder, "-t", "wheel")
        isolation = ["--no-build-isolation"]
    else:
        isolation = []
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", *isolation]
    return subprocess.run([*command, "--wheel-dir", str(folder), *requirements], capture_output=True, text=True, check=False)


def build(
    projects: Sequence[str], folder: pathlib.Path, *options: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Build the distributions of projects in folders by one process with hatchling, in a quarter of the time that pip takes."""
    command = [sys.executable, "-c", _HATCHLING, os.pathsep.join(projects), "build", "-d", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def _reason(text: str) -> str:
    """Return the line of pip's or git's output that has the reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = (line for mark in ("fatal: ", "ERROR: ", "error: ") for line in lines if line.startswith(mark))
    return next(named, lines[-1] if lines else "no reason given")[:_REASON_MOST]


def _beside(wheel: pathlib.Path) -> Wheels:
    """Return a wheel of drakit and the other wheels in the same folder; raises SettingsError if one is missing."""
    if not wheel.is_file():
        raise errors.SettingsError(f"{wheel} does not exist; choose a checkout, a wheel or a git URL", key=OPTION)
    name, _, rest = wheel.name.partition("-")
    if name != "drakit":
        raise errors.SettingsError(f"{wheel.name} is not a wheel of drakit, which is named drakit-VERSION-py3-none-any.whl", key=OPTION)
    cluster, tools = (wheel.with_name(f"{other}-{rest}") for other in ("drakit_cluster", "drakit_tools"))
    for beside in (cluster, tools):
        if not beside.is_file():
            raise errors.SettingsError(f"{beside} is missing; put all wheels of `make dist` in one folder", key=OPTION)
    return Wheels(drakit=wheel, cluster=cluster, tools=tools)
