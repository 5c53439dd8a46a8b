"""The command ``drakit demo``."""

import pathlib
from typing import Annotated

import typer

from drakit import extras
from drakit.cli import options, output
from drakit.core import errors
from drakit_tools import manifests as sources

DEFAULT_MACHINE = "dgx-a100-40gb-2gpu"


@options.quietly
def demo(
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep everything running at the end until Ctrl-C: the cluster, or the shares of --nic."),
    ] = False,
    folder: Annotated[
        pathlib.Path | None, typer.Option("--folder", metavar="DIR", help="Folder for all files, new or empty, which is kept.")
    ] = None,
    mock: Annotated[str | None, typer.Option("--mock", metavar="MACHINE", help=f"Mock machine. Default: {DEFAULT_MACHINE}.")] = None,
    as_kubernetes: sources.AsKubernetes = None,
    nic: Annotated[
        str | None, typer.Option("--nic", metavar="IFNAME", help="Share this real interface instead of a mock one; needs root.")
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option("--speed", metavar="RATE", help="With --nic: its speed, such as 1G, if the kernel reports none or to use less."),
    ] = None,
    traffic: Annotated[
        bool,
        typer.Option(
            "--traffic", help="With --nic: send on the real network for a few seconds, and measure. Without it, no frame is sent."
        ),
    ] = False,
    yes_take_over: Annotated[
        bool, typer.Option("--yes-take-over", help="With --nic: allow an interface that has an address or the default route of this host.")
    ] = False,
    web: Annotated[bool, typer.Option("--web", help="Also show the cluster on the web page of drakit dashboard; implies --keep.")] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="With --nic: only restore the interface after a demo that was killed.")
    ] = False,
) -> None:
    """See everything work: partitioned GPUs, shared NICs, and a driver that is killed without losing state.

    Starts a local cluster, and a node driver with mock hardware as a separate process. Needs no root, no GPU and no Kubernetes. The demo checks every
    statement that it prints: the exit status is 0 only if all checks held.

    With --nic the interface is real: three claims share it, the kernel limits each to its rate, and each pod (a network namespace) gets its own
    interface. The demo first prints what it will change. It restores everything at the end, after an error and at Ctrl-C; if it was killed, at the
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
        from drakit_tools.demo import story

        raise typer.Exit(
            story.play(mock or DEFAULT_MACHINE, folder, keep=keep or web, web=web, as_kubernetes=as_kubernetes, out=output.prose())
        )
    if as_kubernetes:
        raise errors.SettingsError("needs a cluster, which --nic does not start; remove --nic", key="--as-kubernetes")
    if web:
        raise errors.SettingsError("needs a cluster, which --nic does not start; remove --nic", key="--web")
    if mock is not None:
        raise errors.SettingsError("cannot be combined with --nic; remove one of the two", key="--mock")
    from drakit_tools.demo.nic import eligibility_check
    from drakit_tools.demo.nic import story as real

    wanted = eligibility_check.DemoOptions(
        interface=nic, speed=speed, folder=folder, traffic=traffic, take_over=yes_take_over, keep=keep, restore=restore
    )
    raise typer.Exit(real.play(wanted, output.prose()))


def _check_not_given(given: dict[str, str | bool | None]) -> None:
    """Raise SettingsError for an option that only --nic uses."""
    for name, value in given.items():
        if value:
            raise errors.SettingsError("needs a real interface; add --nic IFNAME", key=name)
