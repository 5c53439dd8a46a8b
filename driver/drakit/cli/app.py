"""The command ``drakit``: its sub-commands, its version, and how it reports errors."""

import importlib.metadata
import inspect
import sys
from typing import Annotated

import typer

import drakit_command
from drakit.cli import process, terminal, tools
from drakit.cli.commands import journal, prepare, publish, run, show, slices, uninstall, webhook
from drakit.cli.doctor import command as doctor

app = typer.Typer(
    name="drakit",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.run)
app.command()(publish.publish)
app.command()(slices.slices)
app.command()(show.show)
app.command()(prepare.prepare)
app.command()(prepare.unprepare)
app.command("uninstall-node")(uninstall.uninstall_node)
app.command()(webhook.webhook)
app.command()(doctor.doctor)
app.add_typer(journal.app, name="journal")
if not tools.is_of_framework(app, sys.argv[1:]):
    tools.add(app)
for _command in (*app.registered_commands, *journal.app.registered_commands):
    _command.help = terminal.flowed(inspect.getdoc(_command.callback) or "")


def _version(wanted: bool) -> None:
    if wanted:
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
    """
    del version


def main(interrupts: drakit_command.Interrupts) -> None:
    """Run the command line; ``interrupts`` handles Ctrl-C."""
    process.guarded(app, "drakit", interrupts)
