"""``drakit cluster``: runs a local cluster for your own drivers and claims."""

import pathlib
import shlex
import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import extras
from drakit.cli import options, output, process
from drakit.core import errors
from drakit.telemetry import logs
from drakit_tools import local_cluster

if TYPE_CHECKING:
    from drakit_cluster import cluster as clusters

DEFAULT_NODE = "node-1"
_MACHINE = "dgx-a100-40gb-2gpu"
_TRUTH = {"true": True, "false": False}


@options.quietly
def cluster(
    folder: Annotated[
        pathlib.Path | None,
        typer.Option("--folder", metavar="DIR", help="Folder for the cluster's files, which is kept. Default: a temporary folder."),
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="Name of a node. May be repeated. Default: node-1.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the API server on 127.0.0.1; 0 chooses a free port.")] = 0,
    gates: Annotated[
        list[str] | None,
        typer.Option(
            "--gate",
            metavar="[COMPONENT:]NAME=true|false",
            help="A Kubernetes feature gate, for all components or for one of apiserver, scheduler, controllers, kubelet.",
        ),
    ] = None,
    keep_state: Annotated[
        bool,
        typer.Option("--keep-state", help="Keep the API objects in the folder and load them at the next start; needs --folder."),
    ] = False,
    kubernetes: Annotated[
        str | None,
        typer.Option(
            "--kubernetes",
            metavar="VERSION",
            help="Serve and decide as this Kubernetes version, with its defaults and known errors: 1.34 to 1.37, or 1.38 as planned. "
            "Default: 1.37, without known errors, and with DRAReservedForWorkloads and DRAResourcePoolStatus on.",
        ),
    ] = None,
    run_pods: Annotated[
        bool,
        typer.Option("--run-pods", help="Run each container's command as a process of your user on this host; images are ignored."),
    ] = False,
    events: Annotated[bool, typer.Option("--events", help="Print events.")] = False,
) -> None:
    """Run a local cluster for DRA: API server, scheduler, controllers, and a kubelet for each node, until Ctrl-C or SIGTERM.

    It needs no root and no Kubernetes, and listens on 127.0.0.1 only. Start the drivers yourself, with the commands that it prints. When the cluster
    stops, its API objects are lost unless --keep-state is given. With --folder, the drivers' files are kept.

    [bold]Examples[/bold]

      drakit cluster --events

      drakit cluster --folder ~/dra --node node-1 --node node-2 --port 6443

      drakit cluster --gate DRAResourceSliceMixins=true

      drakit cluster --folder ~/dra --keep-state

      drakit cluster --gate scheduler:DRAConsumableCapacity=false

      drakit cluster --kubernetes 1.36 --gate DRADeviceTaintRules=true
    """
    extras.require_local_cluster()
    names, switched = list(nodes or [DEFAULT_NODE]), _gates(gates or [])
    if len(set(names)) != len(names):
        raise errors.SettingsError("each node needs a different name", key="--node")
    if keep_state and folder is None:
        raise errors.SettingsError("needs --folder DIR; add it", key="--keep-state")
    logs.setup(level=logs.Level.WARNING, style=logs.Style.CONSOLE)
    stop = threading.Event()
    process.at_signals(stop, (*process.SIGNALS, signal.SIGQUIT))
    with (
        local_cluster.workplace(folder, names) as place,
        local_cluster.running(
            place, nodes=names, port=port, gates=switched, keep_state=keep_state, kubernetes=kubernetes, run_pods=run_pods
        ) as running,
    ):
        _introduce(running, place, names)
        if events:
            threading.Thread(target=_follow, args=(running,), name="events", daemon=True).start()
        stop.wait()


def _gates(texts: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Return gates by component and name; gates of all components are under ""."""
    gates_of: dict[str, dict[str, bool]] = {}
    for text in texts:
        where, _, state = text.partition("=")
        component, colon, name = where.rpartition(":")
        if state.lower() not in _TRUTH:
            raise errors.SettingsError("write NAME=true or NAME=false", key=f"--gate {text}")
        if colon and component not in local_cluster.COMPONENTS:
            raise errors.SettingsError(
                f"unknown component {component!r}; known are {', '.join(local_cluster.COMPONENTS)}", key=f"--gate {text}"
            )
        gates_of.setdefault(component, {})[name] = _TRUTH[state.lower()]
    return gates_of


def _introduce(running: "clusters.LocalCluster", folder: pathlib.Path, nodes: Sequence[str]) -> None:
    """Print the commands that use the cluster and start its drivers."""
    from drakit_tools.demo import samples

    output.for_scripts(running.kubeconfig)
    out = output.prose()
    output.say(out, f"The cluster is running with {', '.join(nodes)}. Use it:")
    out.print()
    output.command(out, f"export KUBECONFIG={shlex.quote(str(running.kubeconfig))}")
    output.command(out, "kubectl get nodes")
    output.command(out, f"kubectl apply -f {shlex.quote(str(samples.classes_file()))} -f {shlex.quote(str(samples.folder()))}")
    out.print()
    output.say(out, "Start a driver in another terminal:")
    out.print()
    for node in nodes:
        places = f"--folder {shlex.quote(str(folder / node))} --kubeconfig {shlex.quote(str(running.driver_kubeconfig(node)))}"
        output.command(out, f"{process.invocation()} run --mock {_MACHINE} --node {node} {places}")
    out.print()
    output.say(out, "Press Ctrl-C to stop it.")


def _follow(running: "clusters.LocalCluster") -> None:
    """Print events until the cluster stops."""
    out = output.console()
    for event in running.events():
        place = "/".join(part for part in (event.namespace, event.name) if part)
        times = f" (x{event.count})" if event.count > 1 else ""
        kind = "Warning" if event.warning else "Normal"
        line = f"{event.time[11:19]}  {kind:<7}  {event.reason}  {event.kind} {place}: {event.message}{times}"
        output.say(out, line, hang=2, style="yellow" if event.warning else "")
