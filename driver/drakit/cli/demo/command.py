"""The command ``drakit demo``."""

import pathlib
from typing import Annotated

import typer

from drakit.cli import hosting, output

DEFAULT_MACHINE = "dgx-a100-40gb-2gpu"


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up at the end, with a kubeconfig, until Ctrl-C.")] = False,
    folder: Annotated[
        pathlib.Path | None, typer.Option("--folder", metavar="DIR", help="Work in DIR (new or empty) and leave every file there.")
    ] = None,
    mock: Annotated[str, typer.Option("--mock", metavar="MACHINE", help="The machine to pretend.")] = DEFAULT_MACHINE,
) -> None:
    """Watch it all work: GPUs partitioned, NICs shared, a driver killed and nothing lost.

    Starts a local cluster and a node driver as a process of its own, with pretended hardware; needs no root, no GPU and no Kubernetes. Everything
    that is claimed is checked: the exit status is 0 only if all of it held.

    [bold]Examples[/bold]

      drakit demo

      drakit demo --keep --folder /tmp/demo

      drakit demo --mock dgx-a100-40gb
    """
    hosting.check_installed()
    from drakit.cli.demo import story

    raise typer.Exit(story.play(mock, folder, keep=keep, out=output.console()))
