"""``drakit new``: a driver project that works at once, to be changed into a driver of one's own."""

import dataclasses
import importlib.resources
import keyword
import pathlib
import re
from collections.abc import Iterator
from importlib.resources import abc as resources_abc
from typing import Annotated

import typer

from drakit.cli import output
from drakit.core import errors, names

TEMPLATE = "template"
SUFFIX = ".tmpl"
_FIELD = re.compile(r"\{\{(\w+)\}\}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """Every name a project is known by, made from the driver's name."""

    name: str

    @property
    def short(self) -> str:
        """The first label: ``fpga`` of ``fpga.example.com``."""
        return self.name.partition(".")[0]

    @property
    def package(self) -> str:
        """The Python package, such as ``fpga_driver``."""
        return f"{self.short.replace('-', '_')}_driver"

    @property
    def fields(self) -> dict[str, str]:
        """What the template's fields stand for."""
        return {
            "name": self.name,
            "project": f"{self.short}-driver",
            "package": self.package,
            "class": "".join(part.capitalize() for part in self.short.split("-")),
            "upper": self.short.upper().replace("-", "_"),
        }


def new(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist, or be empty.")],
    name: Annotated[str, typer.Option("--name", metavar="DRIVER", help="The driver's name, a DNS subdomain of yours: fpga.example.com.")],
) -> None:
    r"""Make a driver project: code, tests, DaemonSet, Dockerfile. Its tests pass at once.

    The project offers made-up boards that live in a folder of text files. Replace hardware.py by calls to your device, and keep the tests green.

    [bold]Examples[/bold]

      drakit new fpga --name fpga.example.com

      cd fpga && pip install -e '.\[dev]' && pytest
    """
    chosen = checked(name)
    write(folder, chosen)
    out = output.console()
    out.print(f"Made {folder}, a driver named {name}. Go on with:\n", markup=False, soft_wrap=True)
    out.print(f"  cd {folder}\n  pip install -e '.[dev]'\n  pytest\n  python -m {chosen.package} --help", markup=False, soft_wrap=True)


def checked(name: str) -> Names:
    """The names of a project; raises SettingsError for a driver name that Kubernetes or Python would not take."""
    try:
        names.check_driver(name, "--name")
    except errors.DrakitError as error:
        raise errors.SettingsError(str(error).removeprefix("--name: "), key="--name") from error
    chosen = Names(name=name)
    if "." not in name or not chosen.package.isidentifier() or keyword.iskeyword(chosen.package):
        raise errors.SettingsError(f"{name!r} must be a domain of yours that starts with a letter, such as fpga.example.com", key="--name")
    return chosen


def write(folder: pathlib.Path, chosen: Names) -> None:
    """Write the project; raises SettingsError, and writes nothing, where something is in the way."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise errors.SettingsError(f"{folder} is not empty; name a new folder", key="DIR")
        for path, text in rendered(chosen):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
    except OSError as error:
        raise errors.SettingsError(f"cannot write {folder}: {error.strerror}", key="DIR") from error


def rendered(chosen: Names) -> Iterator[tuple[pathlib.PurePosixPath, str]]:
    """The project's files: path within it, and text."""
    for path, file in _files(importlib.resources.files("drakit.cli") / TEMPLATE, pathlib.PurePosixPath()):
        yield pathlib.PurePosixPath(_fill(str(path), chosen).removesuffix(SUFFIX)), _fill(file.read_text("utf-8"), chosen)


def _files(
    folder: resources_abc.Traversable, at: pathlib.PurePosixPath
) -> Iterator[tuple[pathlib.PurePosixPath, resources_abc.Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            yield from _files(entry, at / entry.name)
        elif entry.name.endswith(SUFFIX):
            yield at / entry.name, entry


def _fill(text: str, chosen: Names) -> str:
    return _FIELD.sub(lambda match: chosen.fields[match[1]], text)
