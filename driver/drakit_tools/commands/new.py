"""``drakit new``: creates a driver project that works at once, as a start for a new driver."""

import dataclasses
import importlib.resources
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import abc as resources_abc
from typing import Annotated

import typer

from drakit import families
from drakit.cli import options, output
from drakit.core import errors, names
from drakit_tools.commands import new_wheels

TEMPLATE = "template"
SUFFIX = ".tmpl"
WHEELS = "wheels"
LABEL_MOST = 63
"""Characters that Kubernetes takes in the name of a Service."""
DOMAIN = ".drakit.dev"
"""The domain of the drivers that drakit has."""
_FIELD = re.compile(r"\{\{(\w+)\}\}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """The names of a project: the driver's name, and ``word``, made from the folder's name, from which all other names are derived."""

    driver: str
    word: str

    @property
    def package(self) -> str:
        """Return the name of the Python package, such as ``fpga_driver``."""
        return f"{self.word.replace('-', '_')}_driver"

    @property
    def name(self) -> str:
        """Return the name of the project, its image and its namespace, such as ``fpga-driver``."""
        return f"{self.word}-driver"

    def fields(self, wheels: new_wheels.Wheels) -> Mapping[str, str]:
        """Return the values of the template's fields."""
        return {
            "name": self.driver,
            "project": self.name,
            "package": self.package,
            "class": "".join(part.capitalize() for part in self.word.split("-")),
            "upper": self.word.upper().replace("-", "_"),
            "prefix": families.group_of(self.driver).upper(),
            "drakit_wheel": wheels.drakit.name,
            "drakit_version": wheels.version,
            "family": families.group_of(self.driver),
        }


@options.quietly
def new(
    folder: Annotated[
        pathlib.Path,
        typer.Argument(metavar="DIR", help="Folder to create. It must not exist or must be empty. The package is named after it."),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="DRIVER", help="Name of the driver: a DNS subdomain that you own, such as fpga.example.com.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            new_wheels.OPTION,
            metavar="PATH|WHEEL|GIT-URL",
            help="Source of drakit for the project: a checkout, a wheel or a git URL. Default: the source of this installation.",
            show_default=False,
        ),
    ] = None,
) -> None:
    r"""Create a driver project with code, tests, manifests and a Dockerfile. Its tests pass without changes.

    The project serves mock boards, which are text files in a folder. Replace hardware.py with calls to your device, and keep the tests passing.
    The project contains the wheels of drakit, so pip downloads only the libraries that drakit needs.

    [bold]Examples[/bold]

      drakit new fpga --name fpga.example.com

      cd fpga && pip install wheels/*.whl -e '.\[dev]' && pytest
    """
    project = checked(folder, name)
    check_free(folder)
    with new_wheels.found(source) as wheels:
        write(folder, project, wheels)
    out = output.prose()
    output.say(out, f"Created the driver {name} in {folder}. Next:")
    out.print()
    for command in (
        f"cd {shlex.quote(str(folder))}",
        "pip install wheels/*.whl -e '.[dev]'",
        "pytest",
        f"python -m {project.package} --help",
    ):
        output.command(out, command)


def checked(folder: pathlib.Path, name: str) -> Project:
    """Return the names of a project; raises SettingsError for names that are not valid in Kubernetes or Python."""
    try:
        names.check_driver(name, "--name")
    except errors.DrakitError as error:
        raise errors.SettingsError(str(error).removeprefix("--name: "), key="--name") from error
    if "." not in name:
        raise errors.SettingsError(f"{name!r} must be a DNS subdomain, such as fpga.example.com", key="--name")
    if f".{name}".endswith(DOMAIN):
        raise errors.SettingsError(f"{name} is in the domain of drakit's own drivers; choose a subdomain that you own", key="--name")
    word = re.sub(r"[^a-z0-9]+", "-", options.resolved(folder, "DIR").name.lower()).strip("-").removesuffix("-driver")
    project = Project(driver=name, word=word)
    if not word[:1].isalpha() or len(f"{project.name}-webhook") > LABEL_MOST:
        raise errors.SettingsError(f"{folder.name!r} is no name for a package: it must start with a letter and be short", key="DIR")
    return project


def check_free(folder: pathlib.Path) -> None:
    """Raise SettingsError if the folder is not empty, or cannot be read."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise errors.SettingsError(f"{folder} is not empty; choose a new folder", key="DIR")
    except OSError as error:
        raise _unwritable(folder, error) from error


def write(folder: pathlib.Path, project: Project, wheels: new_wheels.Wheels) -> None:
    """Write the project; raises SettingsError if a file cannot be written, and before the first file if the folder is not empty."""
    check_free(folder)
    try:
        for path, text in rendered(project.fields(wheels)):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
        new_wheels.copy(wheels, folder / WHEELS)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: pathlib.Path, error: OSError) -> errors.SettingsError:
    return errors.SettingsError(f"cannot write {folder}: {error.strerror}", key="DIR")


def rendered(fields: Mapping[str, str]) -> Iterator[tuple[pathlib.PurePosixPath, str]]:
    """Yield the path and the text of each file of the project."""
    for path, file in _files(importlib.resources.files("drakit_tools") / TEMPLATE, pathlib.PurePosixPath()):
        yield pathlib.PurePosixPath(_fill(str(path), fields).removesuffix(SUFFIX)), _fill(file.read_text("utf-8"), fields)


def _files(
    folder: resources_abc.Traversable, at: pathlib.PurePosixPath
) -> Iterator[tuple[pathlib.PurePosixPath, resources_abc.Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            yield from _files(entry, at / entry.name)
        elif entry.name.endswith(SUFFIX):
            yield at / entry.name, entry


def _fill(text: str, fields: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda match: fields[match[1]], text)
