"""The command ``drakit demo``."""

import pathlib
from typing import Annotated

import typer

from drakit import extras
from drakit.cli import manifests as sources
from drakit.cli import options, output
from drakit.core import errors

DEFAULT_MACHINE = "dgx-a100-40gb-2gpu"


@options.quietly
def demo(
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave everything up at the end until Ctrl-C: the cluster, with a kubeconfig, or the shares of --nic."),
    ] = False,
    folder: Annotated[
        pathlib.Path | None, typer.Option("--folder", metavar="DIR", help="Work in DIR (new or empty) and leave every file there.")
    ] = None,
    mock: Annotated[
        str | None, typer.Option("--mock", metavar="MACHINE", help=f"The mock machine; {DEFAULT_MACHINE} if not given.")
    ] = None,
    as_kubernetes: sources.AsKubernetes = None,
    nic: Annotated[
        str | None, typer.Option("--nic", metavar="IFNAME", help="Share this real interface instead of a mock one; needs root.")
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            "--speed", metavar="RATE", help="With --nic: its speed, such as 1G, where the kernel knows none or less is to be used."
        ),
    ] = None,
    traffic: Annotated[
        bool,
        typer.Option("--traffic", help="With --nic: send for a few seconds on the real network, and measure. Without it no frame is sent."),
    ] = False,
    yes_take_over: Annotated[
        bool, typer.Option("--yes-take-over", help="With --nic: take an interface that has an address or the default route of this host.")
    ] = False,
    web: Annotated[
        bool, typer.Option("--web", help="Show the cluster on a local web page, as drakit dashboard does; implies --keep.")
    ] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="With --nic: only restore the interface after a demo that was killed.")
    ] = False,
) -> None:
    """Watch it all work: GPUs partitioned, NICs shared, a driver killed and nothing lost.

    Starts a local cluster and a node driver in a process of its own, on mock hardware; needs no root, no GPU and no Kubernetes. Every statement
    is checked: the exit status is 0 only if all checks held.

    With --nic the interface is real: three claims share it, the kernel limits each to its rate, and pods (network namespaces) get interfaces of
    their own. The demo first prints what it will change, and restores it all at the end, after an error and at Ctrl-C; if it was killed, at the
    next start. Until then the host's own traffic through this interface is limited to a reserve.

    [bold]Examples[/bold]

      drakit demo

      drakit demo --keep --folder ~/demo

      drakit demo --mock dgx-a100-40gb

      drakit demo --nic eth1

      drakit demo --nic eth1 --speed 1G --traffic

      drakit demo --nic eth1 --restore
    """
    extras.require_local_cluster()
    if nic is None:
        _check_not_given({"--speed": speed, "--traffic": traffic, "--yes-take-over": yes_take_over, "--restore": restore})
        from drakit.cli.demo import story

        raise typer.Exit(
            story.play(mock or DEFAULT_MACHINE, folder, keep=keep or web, web=web, as_kubernetes=as_kubernetes, out=output.prose())
        )
    if as_kubernetes:
        raise errors.SettingsError("no cluster is started for a real interface: leave out --nic", key="--as-kubernetes")
    if web:
        raise errors.SettingsError("no cluster is started for a real interface: leave out --nic", key="--web")
    if mock is not None:
        raise errors.SettingsError("give either --mock (a mock machine) or --nic (a real interface), not both", key="--mock")
    from drakit.cli.demo.nic import eligibility_check
    from drakit.cli.demo.nic import story as real

    wanted = eligibility_check.DemoOptions(
        interface=nic, speed=speed, folder=folder, traffic=traffic, take_over=yes_take_over, keep=keep, restore=restore
    )
    raise typer.Exit(real.play(wanted, output.prose()))


def _check_not_given(given: dict[str, str | bool | None]) -> None:
    """Raise SettingsError for an option that only --nic uses."""
    for name, value in given.items():
        if value:
            raise errors.SettingsError("needs a real interface: name it with --nic", key=name)
