"""``drakit.run``: the command line of an author's driver, with drakit's commands for this driver."""

import dataclasses
import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from drakit import families
from drakit import settings as values
from drakit.cli import driver_commands, options, process, terminal, usage
from drakit.core import advanced
from drakit.core import driver as drivers
from drakit.settings import schema
from drakit.telemetry import logs

Make = Callable[..., drivers.Driver[Any]]
Command = Callable[..., None]

_HIDDEN = ("mock", "families", "family", "every")
# The help of these options elsewhere is about a program that serves several families.
_RETOLD: Mapping[str, object] = {
    "folder": Annotated[
        pathlib.Path | None,
        typer.Option("--folder", metavar="DIR", help="Keep all files (journal, CDI files) below DIR instead of the system folders."),
    ],
    "assignments": Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one setting to a YAML value: --set publish.rescan=30. May be repeated."),
    ],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """The author's additions to the program: a class of settings, its group, and commands by name."""

    settings: type | None = None
    group: str = ""
    commands: Mapping[str, Command] = dataclasses.field(default_factory=dict)


def serve(make: Make, arguments: Sequence[str] | None = None, extras: Extras | None = None) -> None:
    """Run the command line of the driver that ``make`` makes, with these arguments or the process's own, and exit the process.

    ``make`` receives the settings if ``extras`` has a class for them.
    """
    program = pathlib.Path(sys.argv[0]).name
    if program == "__main__.py":
        program = f"python -m {pathlib.Path(sys.argv[0]).parent.name}"
    process.guarded(lambda: _serve(make, program, arguments, extras or Extras()), program)


def _serve(make: Make, program: str, arguments: Sequence[str] | None, extras: Extras) -> None:
    _follow_loggers(make)
    family = families.DriverFamily(make, options=extras.settings, name=extras.group)
    kind, name = family.kind_and_name
    _follow_loggers(kind)
    token = schema.CURRENT.set(schema.of_driver(family, publishes=issubclass(kind, advanced.ClusterPools)))
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        app = _app(kind, name, program, extras, family, word=given[0] if given else "")
        app(args=given, prog_name=program)
    finally:
        schema.CURRENT.reset(token)


def _follow_loggers(author: object) -> None:
    """Apply ``--log-level`` to the loggers of the author's package and program."""
    modules = (str(getattr(author, "__module__", "")), "__main__", str(getattr(sys.modules["__main__"], "__package__", None) or ""))
    logs.follow(*(package for module in modules if (package := module.partition(".")[0])))


def _app(
    kind: type[drivers.Driver[Any]], name: str, program: str, extras: Extras, family: families.DriverFamily, *, word: str
) -> typer.Typer:
    """Return the program with the command ``word``, or with all commands if it has no such command."""
    commands = driver_commands.of_driver(has_cluster_pools=issubclass(kind, advanced.ClusterPools))
    chosen = {word: commands[word]} if word in commands else commands
    app = _group(f"{name}, a Kubernetes DRA driver written on drakit.", chosen, program)
    if word not in commands:
        app.add_typer(_group(driver_commands.JOURNAL_MEANING, driver_commands.JOURNAL, program), name="journal")
    for own, command in extras.commands.items():
        if own in commands or own == "journal":
            raise TypeError(f"commands has {own!r}, which every driver's program has; choose another name")
        if not callable(command):
            raise TypeError(f"commands[{own!r}] is {type(command).__name__}; give a function")
        app.command(own, cls=usage.Command)(command if extras.settings is None else _for_any_driver(_with_settings(command, family)))
    return app


def _with_settings(command: Command, family: families.DriverFamily) -> Command:
    """Return an author's command with the options for settings; its first parameter is the author's settings."""

    def call(settings: values.Settings, /, **given: object) -> None:
        command(schema.options_of(settings, family), **given)

    functools.update_wrapper(call, command)
    return options.on_a_node(call)


def _group(meaning: str, commands: Mapping[str, driver_commands.Offered], program: str) -> typer.Typer:
    app = typer.Typer(
        help=terminal.flowed(meaning),
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)  # Without a callback, typer makes no group of a single command.
    for name, command in commands.items():
        help_text = f"{terminal.flowed(inspect.cleandoc(command.meaning))}\n\n[bold]Example[/bold]\n\n  {program} {command.example}"
        app.command(name, cls=usage.Command, help=help_text)(_for_any_driver(command.load()))
    return app


def _for_any_driver(command: Command) -> Command:
    """Return the command without the options for drakit's own drivers, and with help for the others that fits any driver."""

    @functools.wraps(command)
    def call(**given: object) -> None:
        command(**given)

    signature = inspect.signature(command, eval_str=True)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name not in _HIDDEN]
    parameters = [parameter.replace(annotation=_RETOLD.get(parameter.name, parameter.annotation)) for parameter in kept]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # what inspect reads first
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
