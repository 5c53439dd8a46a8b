"""Runs the demo: starts cluster and driver, runs the chapters in order, and stops everything, also after an error."""

import contextlib
import dataclasses
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator

import rich.console

from drakit import settings as values
from drakit.cli import options, output, process
from drakit.core import errors
from drakit.kube import client
from drakit.node import timing
from drakit_cluster.objects import errors as api_errors
from drakit_tools import local_cluster
from drakit_tools.dashboard import cluster_source, server
from drakit_tools.demo import chapters, demo_cluster, driver_process, node_view, stage

NODE = "node-1"
CHAPTERS: tuple[Callable[[demo_cluster.World], None], ...] = (
    chapters.show_publishing,
    chapters.show_partitions,
    chapters.show_whole,
    chapters.show_sharing,
    chapters.show_waiting,
    chapters.show_apart,
    chapters.show_container,
    chapters.show_crash,
    chapters.show_end,
)
_PROFILES = frozenset({"1g.5gb", "2g.10gb", "3g.20gb"})
_INTERFACE = "eth1"
_LOOK_SECONDS = 1.0
_SHOWN = {"10-mig-partitions": ("four-partitions",), "20-whole-gpu": ("whole-gpu",), "30-shared-nic": ("training", "storage", "metrics")}
"""Samples that run again for the page, each with its pods."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The machine and folder of one demo. ``folder`` is empty at first; a folder that the user gave is kept."""

    machine: str
    folder: pathlib.Path
    keep: bool
    web: bool
    as_kubernetes: str | None

    @property
    def node_folder(self) -> pathlib.Path:
        """Return the folder of the node's files."""
        return self.folder / NODE

    @property
    def logs(self) -> tuple[pathlib.Path, pathlib.Path]:
        """Return the paths of the driver's and the cluster's log."""
        return self.folder / "driver.log", self.folder / "cluster.log"


def play(machine: str, folder: pathlib.Path | None, *, keep: bool, web: bool, as_kubernetes: str | None, out: rich.console.Console) -> int:
    """Run the demo, print to ``out`` and return the exit status. Raises SettingsError before anything starts."""
    try:
        with process.interruptible(), local_cluster.workplace(folder, (NODE,)) as place:
            _check_empty(place)
            return _play(Plan(machine=machine, folder=place, keep=keep, web=web, as_kubernetes=as_kubernetes), out)
    except KeyboardInterrupt:
        output.problems().print("\nInterrupted. The driver and the cluster are stopped.", markup=False)
        return process.INTERRUPTED


def _play(plan: Plan, out: rich.console.Console) -> int:
    out_stage = stage.Stage(out, chapters=len(CHAPTERS))
    node = _node(plan)
    try:
        with _scene(plan, out_stage, node) as scene:
            with _state_noted(scene):
                for chapter in CHAPTERS:
                    chapter(scene)
                out_stage.check_alive()
            _end(out_stage)
            if plan.keep:
                _keep(plan, scene)
    except (stage.DemoError, api_errors.ApiError) as error:
        _tell_failure(plan, error)
        return 1
    return 0


@contextlib.contextmanager
def _state_noted(scene: demo_cluster.World) -> Iterator[None]:
    """Add the state of pods and claims to a DemoError."""
    try:
        yield
    except stage.DemoError as error:
        with contextlib.suppress(api_errors.ApiError):
            for line in scene.state():
                error.add_note(line)
        raise


def _node(plan: Plan) -> node_view.NodeView:
    """Return the view of the node; raises SettingsError for a machine on which the samples cannot run."""
    given = {"mock.machine": plan.machine, "node.name": NODE, **options.places(plan.node_folder)}
    node = node_view.NodeView(values.load(given, environ={}))
    if missing := _PROFILES - node.profiles():
        offered = ", ".join(sorted(node.profiles())) or "none"
        raise errors.SettingsError(
            f"the samples need the MIG profiles {', '.join(sorted(missing))}, but {plan.machine} has {offered}; use dgx-a100-40gb-2gpu",
            key="--mock",
        )
    if _INTERFACE not in node.interfaces() or len(node.interfaces()) < 2:
        raise errors.SettingsError(
            f"the samples need two NICs, one of them {_INTERFACE}, which {plan.machine} does not have; use dgx-a100-40gb-2gpu", key="--mock"
        )
    return node


@contextlib.contextmanager
def _scene(plan: Plan, out_stage: stage.Stage, node: node_view.NodeView) -> Iterator[demo_cluster.World]:
    """Run cluster and driver, and stop them at the end; signals cannot interrupt the stop."""
    driver_log, cluster_log = plan.logs
    with contextlib.ExitStack() as stack:
        stack.enter_context(local_cluster.logging_to(cluster_log))
        out_stage.say("Starting a local cluster (API server, scheduler, controllers and kubelet in this process) and one node driver ...")
        cluster = stack.enter_context(
            local_cluster.running(plan.folder, nodes=(NODE,), gates=chapters.GATES, as_kubernetes=plan.as_kubernetes)
        )
        kubeconfig = cluster.driver_kubeconfig(NODE)
        command = driver_process.command(machine=plan.machine, node=NODE, folder=plan.node_folder, kubeconfig=kubeconfig)
        driver = driver_process.Child(command, driver_log, plan.folder / "tmp")
        stack.callback(driver.stop)
        api = stack.enter_context(cluster.client())
        scene = demo_cluster.World(stage=out_stage, cluster=cluster, api=api, driver=driver, node=node, node_name=NODE)
        if plan.web:
            address = stack.enter_context(_dashboard(cluster.kubeconfig))
            output.for_scripts(address)
            out_stage.say(f"Watch it in a browser: {address}")
        scene.create([*demo_cluster.classes(), *demo_cluster.load("00-namespace")])
        driver.start()
        out_stage.check_alive = driver.check_alive
        stack.callback(process.ignore)
        yield scene


@contextlib.contextmanager
def _dashboard(kubeconfig: pathlib.Path) -> Iterator[str]:
    """Serve the dashboard of the cluster inside the block; yield its address."""
    with contextlib.closing(client.connect(kubeconfig)) as api:
        source = cluster_source.ClusterSource(api, timing.SystemClock(), "the demo's cluster")
        with contextlib.closing(source), server.serving(server.Dashboard(source.state), 0) as address:
            yield address


def _end(out_stage: stage.Stage) -> None:
    drakit = process.invocation()
    out_stage.chapterless(f"All {out_stage.checks} checks held, in {out_stage.seconds:.1f} s.")
    out_stage.say("What to try next:")
    out_stage.table(
        ["COMMAND", "SHOWS"],
        [
            (f"{drakit} demo --keep", "this demo, with a cluster that keeps running for your kubectl"),
            (f"{drakit} demo --web", "this demo, also in a browser, until Ctrl-C"),
            (f"{drakit} slices --mock dgx-h100", "the slices of another machine"),
            (f"{drakit} show --mock dgx-a100-40gb-2gpu", "devices, memory-slice maps and bandwidth"),
            (f"{drakit} prepare --help", "how to prepare a claim from a file, without a cluster"),
            (f"ls {shlex.quote(str(demo_cluster.folder()))}", "the claims that you saw"),
        ],
    )


def _keep(plan: Plan, scene: demo_cluster.World) -> None:
    """Keep everything running until Ctrl-C."""
    node = f"--mock {plan.machine} --node {NODE} --folder {shlex.quote(str(plan.node_folder))}"
    subject = "cluster and the page keep" if plan.web else "cluster keeps"
    output.for_scripts(scene.cluster.kubeconfig)
    if plan.web:
        _run_again(scene)
    scene.stage.chapterless(f"The {subject} running until Ctrl-C.")
    scene.stage.commands(
        f"export KUBECONFIG={shlex.quote(str(scene.cluster.kubeconfig))}",
        "kubectl get resourceslices",
        *([] if plan.web else [f"kubectl apply -f {shlex.quote(str(demo_cluster.folder()))}"]),
        f"kubectl -n {demo_cluster.NAMESPACE} get pods,resourceclaims",
        f"{process.invocation()} show {node}",
        f"tail -f {shlex.quote(str(plan.logs[0]))}",
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            scene.stage.check_alive()
            time.sleep(_LOOK_SECONDS)
    scene.stage.chapterless("Stopping the driver and the cluster.")


def _run_again(scene: demo_cluster.World) -> None:
    """Run the pods of some chapters again, so that the page shows claims while it stays up."""
    for sample, pods in {"00-namespace": (), **_SHOWN}.items():
        scene.create(demo_cluster.load(sample))
        scene.run(*pods)
    scene.stage.chapterless("The pods of chapters 2, 3 and 4 run again, so that the page shows their claims.")


def _tell_failure(plan: Plan, error: Exception) -> None:
    out = output.problems()
    out.print()
    output.say(out, f"FAILED: {error}", style="bold red")
    for note in getattr(error, "__notes__", ()):
        output.say(out, note, indent=2, hang=2)
    for log in plan.logs:
        driver_process.print_tail(out, log)
    out.print("\nRun it with --folder DIR to keep every file.", markup=False)


def _check_empty(place: pathlib.Path) -> None:
    if any(entry.name != local_cluster.LOCK for entry in place.iterdir()):
        raise errors.SettingsError(f"{place} is not empty, but the demo needs an empty folder; choose a new one", key="--folder")
