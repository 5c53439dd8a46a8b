"""The sub-commands of other installed distributions, found by entry points of the group ``drakit.commands``.

An entry point names a function for typer. A command that is known but not installed is listed with what to install.
"""

import functools
import importlib.metadata
from collections.abc import Callable, Mapping

import typer

from drakit import entry_points, extras
from drakit.core import errors

GROUP = "drakit.commands"
KNOWN = ("allocate", "cluster", "dashboard", "demo", "free", "lint", "new", "plan", "simulate", "top")
"""The commands of drakit-tools."""

Command = Callable[..., None]


@functools.cache
def installed() -> Mapping[str, Command]:
    """Return the installed commands by name. One that cannot be loaded says so when it is run, so that the others work."""
    return {point.name: _loaded(point) for point in entry_points.of(GROUP)}


def is_installed(name: str) -> bool:
    """Return whether a command is installed, without loading it."""
    return any(point.name == name for point in entry_points.of(GROUP))


def find(name: str) -> Command | None:
    """Return one installed command without loading the others, None if it is not installed."""
    return next((_loaded(point) for point in entry_points.of(GROUP) if point.name == name), None)


def _loaded(point: importlib.metadata.EntryPoint) -> Command:
    try:
        loaded: Command = entry_points.load(point)
    except errors.SettingsError as error:
        return _failing(error)
    return loaded


def add(app: typer.Typer) -> None:
    """Add the installed commands to a program, and for each missing one of drakit-tools a command that says what to install."""
    commands = installed()
    for name, command in commands.items():
        app.command(name)(command)
    for name in KNOWN:
        if name not in commands:
            # Without a help option, --help too gets the error.
            settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
            error = errors.SettingsError(f"drakit {name} is not installed; run: {extras.command('tools')}")
            app.command(name, hidden=True, context_settings=settings)(_failing(error))


def _failing(error: errors.SettingsError) -> Command:
    """Return a command that raises an error. It has no parameters, which typer would read from a ``functools.partial`` wrongly."""

    def command() -> None:
        raise error

    return command
