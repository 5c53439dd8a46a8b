"""The sub-commands of other installed distributions, found by entry points of the group ``drakit.commands``.

An entry point names a function for typer. A command that is known but not installed is listed with what to install.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from drakit import entry_points, extras
from drakit.core import errors

if TYPE_CHECKING:
    import importlib.metadata

GROUP = "drakit.commands"
KNOWN = ("allocate", "cluster", "dashboard", "demo", "free", "lint", "new", "plan", "simulate", "top")
"""The commands of drakit-tools."""

Command = Callable[..., None]


def is_installed(name: str) -> bool:
    """Return whether a command is installed, without loading it."""
    return any(point.name == name for point in entry_points.of(GROUP))


def find(name: str) -> Command | None:
    """Return one installed command without loading the others, None if it is not installed."""
    return next((_loaded(point) for point in entry_points.of(GROUP) if point.name == name), None)


def add(app: typer.Typer, only: str = "") -> None:
    """Add the installed commands to a program, and for each missing one of drakit-tools a command that says what to install.

    If ``only`` names a command, it is added without loading the others.
    """
    points = {point.name: point for point in entry_points.of(GROUP)}
    for name in [only] if only else dict.fromkeys([*points, *KNOWN]):
        if name in points:
            app.command(name)(_loaded(points[name]))
            continue
        # Without a help option, --help too gets the error.
        settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        error = errors.SettingsError(f"drakit {name} is not installed; run: {extras.command('tools')}")
        app.command(name, hidden=True, context_settings=settings)(_failing(error))


def _loaded(point: "importlib.metadata.EntryPoint") -> Command:
    """Return the command of an entry point. One that cannot be loaded says so when it is run, so that the others work."""
    try:
        loaded: Command = entry_points.load(point)
    except errors.SettingsError as error:
        return _failing(error)
    return loaded


def _failing(error: errors.SettingsError) -> Command:
    """Return a command that raises an error. It has no parameters, which typer would read from a ``functools.partial`` wrongly."""

    def command() -> None:
        raise error

    return command
