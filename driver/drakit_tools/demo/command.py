"""The command ``drakit demo``."""

import importlib.util
import pathlib
from typing import Annotated

import typer

from drakit import extras
from drakit.cli import options, output
from drakit.core import errors


@options.quietly
def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the cluster running at the end, without the demo's pods, until Ctrl-C.")
    ] = False,
    web: Annotated[
        bool,
        typer.Option(
            "--web", help="Also show the cluster on the web page of drakit dashboard. It stays up at the end, with the demo's pods."
        ),
    ] = False,
    folder: Annotated[
        pathlib.Path | None, typer.Option("--folder", metavar="DIR", help="Folder for all files, new or empty, which is kept.")
    ] = None,
    kubernetes: Annotated[
        str | None,
        typer.Option("--kubernetes", metavar="VERSION", help="Kubernetes version of the cluster, with the gates that the demo needs on."),
    ] = None,
) -> None:
    """See a node work: GPUs are partitioned, a NIC is shared, and a driver that is killed in the middle of a prepare loses nothing.

    Starts a local cluster, and a node driver with mock hardware as a separate process. Needs no root, no GPU and no Kubernetes. The demo checks every
    statement that it prints: the exit status is 0 only if all checks held.

    [bold]Examples[/bold]

      drakit demo

      drakit demo --web

      drakit demo --keep --folder ~/demo
    """
    extras.require_local_cluster()
    missing = [name for name in ("drakit-gpu", "drakit-nic") if importlib.util.find_spec(name.replace("-", "_")) is None]
    if missing:
        raise errors.SettingsError(f"the demo needs {' and '.join(missing)}; run: {extras.command('gpu', 'nic', 'tools')}")
    from drakit_tools.demo import story

    raise typer.Exit(story.play(folder, keep=keep, web=web, kubernetes=kubernetes, out=output.prose()))
