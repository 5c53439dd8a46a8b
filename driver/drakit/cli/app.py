"""The command ``drakit``: its sub-commands, its version, and how it reports errors."""

import functools
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer
import typer.main

import drakit_command
from drakit.cli import process, terminal, tools, usage

COMMANDS: Mapping[str, str] = {
    "run": "drakit.cli.commands.run:run",
    "publish": "drakit.cli.commands.publish:publish",
    "slices": "drakit.cli.commands.slices:slices",
    "show": "drakit.cli.commands.show:show",
    "prepare": "drakit.cli.commands.prepare:prepare",
    "unprepare": "drakit.cli.commands.prepare:unprepare",
    "uninstall-node": "drakit.cli.commands.uninstall:uninstall_node",
    "webhook": "drakit.cli.commands.webhook:webhook",
    "doctor": "drakit.cli.doctor.command:doctor",
    "journal": "drakit.cli.commands.journal:app",
}
"""The commands of the framework: each a function, or a group of commands. A process loads only the command that it runs."""

app = typer.Typer(
    name="drakit",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(name: str) -> None:
    command = pkgutil.resolve_name(COMMANDS[name])
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _complete(commands: typer.Typer) -> None:
    """Flow the help of all commands, and let their errors show the usage."""
    for command in commands.registered_commands:
        command.cls = usage.Command
        command.help = terminal.flowed(inspect.getdoc(command.callback) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _complete(group.typer_instance)


def _load(word: str) -> None:
    """Add the command ``word``, or all commands if there is no such command; importing all of them takes twice as long as one."""
    if word in COMMANDS:
        _add(word)
    elif word in tools.KNOWN:
        tools.add(app, word)
    elif word != "--version":
        for name in COMMANDS:
            _add(name)
        tools.add(app)


_load(sys.argv[1] if len(sys.argv) > 1 else "")
_complete(app)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(importlib.metadata.version("drakit"))
        raise typer.Exit


@app.callback()
def drakit(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Kubernetes DRA node drivers: those installed for GPUs, network interfaces or other hardware, and tools for them.

    [bold]Start here[/bold]

      drakit demo                               run everything on mock hardware

      drakit slices --mock dgx-a100-40gb-2gpu   the slices that a node would publish

      drakit show --mock dgx-a100-40gb-2gpu     its devices and their claims

      drakit cluster                            run a local cluster

      drakit free --live                        what is free on your cluster
    """
    del version


@functools.cache
def program() -> Callable[[], object]:
    """Return what runs the command line. It takes 10 ms to make, and a process of tests runs many commands."""
    return typer.main.get_command(app)


def main(interrupts: drakit_command.Interrupts) -> None:
    """Run the command line; ``interrupts`` handles Ctrl-C."""
    process.guarded(program(), "drakit", interrupts)
