"""The command ``drakit`` itself: its sub-commands, its version, and how errors leave it."""

import errno
import importlib.metadata
import os
import sys
from typing import Annotated

import typer

from drakit.cli import allocate, cluster, lint, local, run, show, slices
from drakit.cli.demo import command as demo
from drakit.core import errors

app = typer.Typer(
    name="drakit",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(run.run)
app.command()(cluster.cluster)
app.command()(slices.slices)
app.command()(show.show)
app.command()(local.prepare)
app.command()(local.unprepare)
app.command()(allocate.allocate)
app.command()(lint.lint)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(importlib.metadata.version("drakit"))
        raise typer.Exit


@app.callback()
def drakit(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Kubernetes DRA drivers for GPUs and network interfaces, and a local cluster to run them on.

    [bold]Start here[/bold]

      drakit demo                               watch it all work, with no hardware

      drakit slices --mock dgx-a100-40gb-2gpu   what a node would publish

      drakit show --mock dgx-a100-40gb-2gpu     what it has, and who has it

      drakit cluster                            a local cluster to play with
    """
    del version


def main() -> None:
    """Run the command line; an error that a person can mend is one line and status 1, never a trace."""
    try:
        app()
    except errors.DrakitError as error:
        print(f"drakit: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        # What is still buffered cannot be written either; without this the interpreter would say so once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"drakit: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)
