"""Runs the demo: starts cluster and driver, runs the chapters in order, and stops everything, also after an error."""

import contextlib
import dataclasses
import pathlib
import shlex
import time
from collections.abc import Iterator

import rich.console

from drakit import exits
from drakit import settings as values
from drakit.cli import options, output, process
from drakit.core import errors
from drakit.kube import client
from drakit.node import timing
from drakit_cluster.objects import errors as api_errors
from drakit_tools import local_cluster
from drakit_tools.dashboard import cluster_source, server
from drakit_tools.demo import chapters, demo_cluster, driver_process, node_view, samples, stage

NODE = "node-1"
MACHINE = "dgx-a100-40gb-2gpu"
CHAPTERS = (chapters.show_publishing, chapters.show_partitions, chapters.show_sharing, chapters.show_crash, chapters.show_end)
_LOOK_SECONDS = 1.0


_GATES = {"": dict.fromkeys(("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"), True)}
"""What the demo shows; older versions have these gates off by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The folder of one demo, which is empty at first, whether cluster and page stay up at the end, and the cluster's version."""

    folder: pathlib.Path
    keep: bool
    web: bool
    kubernetes: str | None

    @property
    def node_folder(self) -> pathlib.Path:
        """Return the folder of the node's files."""
        return self.folder / NODE

    @property
    def logs(self) -> tuple[pathlib.Path, pathlib.Path]:
        """Return the paths of the driver's and the cluster's log."""
        return self.folder / "driver.log", self.folder / "cluster.log"


def play(folder: pathlib.Path | None, *, keep: bool, web: bool, kubernetes: str | None, out: rich.console.Console) -> exits.Exit:
    """Run the demo, print to ``out`` and return the exit status. Raises SettingsError before anything starts."""
    try:
        with process.interruptible(), local_cluster.workplace(folder, (NODE,)) as place:
            if any(entry.name != local_cluster.LOCK for entry in place.iterdir()):
                raise errors.SettingsError(f"{place} is not empty, but the demo needs an empty folder; choose a new one", key="--folder")
            return _play(Plan(folder=place, keep=keep, web=web, kubernetes=kubernetes), out)
    except KeyboardInterrupt:
        output.problems().print("\nInterrupted. The driver and the cluster are stopped.", markup=False)
        return exits.Exit.INTERRUPTED


def _play(plan: Plan, out: rich.console.Console) -> exits.Exit:
    # The page shows the claims of the pods, so the last chapter, which deletes them, is left out.
    played = CHAPTERS[:-1] if plan.web else CHAPTERS
    out_stage = stage.Stage(out, chapters=len(played))
    try:
        with _world(plan, out_stage) as world:
            with _state_noted(world):
                for chapter in played:
                    chapter(world)
                out_stage.check_alive()
            _end(out_stage)
            if plan.keep or plan.web:
                _keep(plan, world)
    except (stage.DemoError, api_errors.ApiError) as error:
        _report_failure(plan, error)
        return exits.Exit.NEGATIVE
    return exits.Exit.OK


@contextlib.contextmanager
def _state_noted(world: demo_cluster.World) -> Iterator[None]:
    """Add the state of pods and claims to a DemoError."""
    try:
        yield
    except stage.DemoError as error:
        with contextlib.suppress(api_errors.ApiError):
            for line in world.state():
                error.add_note(line)
        raise


@contextlib.contextmanager
def _world(plan: Plan, out_stage: stage.Stage) -> Iterator[demo_cluster.World]:
    """Run cluster and driver, and stop them at the end; signals cannot interrupt the stop."""
    driver_log, cluster_log = plan.logs
    node = node_view.NodeView(values.load({"mock.machine": MACHINE, "node.name": NODE, **options.places(plan.node_folder)}, environ={}))
    with contextlib.ExitStack() as stack:
        stack.enter_context(local_cluster.logging_to(cluster_log))
        out_stage.say("Starting a local cluster (API server, scheduler, controllers and kubelet in this process) and one node driver ...")
        cluster = stack.enter_context(local_cluster.running(plan.folder, nodes=(NODE,), gates=_GATES, kubernetes=plan.kubernetes))
        arguments = ("run", *_node_options(plan), "--kubeconfig", str(cluster.driver_kubeconfig(NODE)))
        driver = driver_process.DriverProcess(arguments, driver_log, plan.folder / "tmp")
        stack.callback(driver.stop)
        api = stack.enter_context(cluster.client())
        page = stack.enter_context(_dashboard(cluster.kubeconfig)) if plan.web else ""
        if page:
            output.for_scripts(page)
            out_stage.say(f"Watch it in a browser: {page}")
        world = demo_cluster.World(stage=out_stage, cluster=cluster, api=api, driver=driver, node=node, node_name=NODE, page=page)
        world.create([*samples.classes(), *samples.load("00-namespace")])
        driver.start()
        out_stage.check_alive = driver.check_alive
        stack.callback(process.ignore)
        yield world


def _node_options(plan: Plan) -> tuple[str, ...]:
    return ("--mock", MACHINE, "--node", NODE, "--folder", str(plan.node_folder))


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
            (f"{drakit} show --mock {MACHINE}", "devices, memory-slice maps and bandwidth"),
            (f"{drakit} prepare --help", "how to prepare a claim from a file, without a cluster"),
            (f"ls {shlex.quote(str(samples.folder()))}", "the claims that you saw, and more"),
        ],
    )


def _keep(plan: Plan, world: demo_cluster.World) -> None:
    """Keep everything running until Ctrl-C."""
    output.for_scripts(world.cluster.kubeconfig)
    world.stage.chapterless(f"The {'cluster and the page keep' if plan.web else 'cluster keeps'} running until Ctrl-C.")
    world.stage.commands(
        f"export KUBECONFIG={shlex.quote(str(world.cluster.kubeconfig))}",
        "kubectl get resourceslices",
        *([] if plan.web else [f"kubectl apply -f {shlex.quote(str(samples.folder()))}"]),
        f"kubectl -n {demo_cluster.NAMESPACE} get pods,resourceclaims",
        f"{process.invocation()} show {shlex.join(_node_options(plan))}",
        f"tail -f {shlex.quote(str(plan.logs[0]))}",
    )
    if world.page:
        world.stage.chapterless("The page:")
        world.stage.commands(world.page)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            world.stage.check_alive()
            time.sleep(_LOOK_SECONDS)
    world.stage.chapterless("Stopping the driver and the cluster.")


def _report_failure(plan: Plan, error: Exception) -> None:
    out = output.problems()
    out.print()
    output.say(out, f"FAILED: {error}", style="bold red")
    for note in getattr(error, "__notes__", ()):
        output.say(out, note, indent=2, hang=2)
    for log in plan.logs:
        driver_process.print_tail(out, log)
    out.print("\nRun it with --folder DIR to keep every file.", markup=False)
