"""The order of the demo: everything is set up, shown chapter by chapter, and taken down again whatever happens."""

import contextlib
import dataclasses
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator

import rich.console

from drakit import settings as values
from drakit.cli import local_cluster, options, process
from drakit.cli.demo import chapters, driver_process, observer, stage, world
from drakit.core import errors
from drakit_cluster.objects import errors as api_errors

NODE = "node-1"
CHAPTERS: tuple[Callable[[world.World], None], ...] = (
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What the demo is played on. ``folder`` is empty at first, and is left as the demo left it when the user gave it."""

    machine: str
    folder: pathlib.Path
    keep: bool
    as_kubernetes: str | None

    @property
    def node_folder(self) -> pathlib.Path:
        """Where the node keeps everything."""
        return self.folder / NODE

    @property
    def logs(self) -> tuple[pathlib.Path, pathlib.Path]:
        """The logs of the driver and of the cluster."""
        return self.folder / "driver.log", self.folder / "cluster.log"


def play(machine: str, folder: pathlib.Path | None, *, keep: bool, as_kubernetes: str | None, out: rich.console.Console) -> int:
    """Show everything; returns the exit status. What is printed goes to ``out``. Raises SettingsError before anything begins."""
    try:
        with process.interruptible(), local_cluster.workplace(folder, (NODE,)) as place:
            _check_empty(place)
            return _play(Plan(machine=machine, folder=place, keep=keep, as_kubernetes=as_kubernetes), out)
    except KeyboardInterrupt:
        out.print("\nInterrupted. The driver and the cluster are stopped.", markup=False)
        return process.INTERRUPTED


def _play(plan: Plan, out: rich.console.Console) -> int:
    told = stage.Stage(out, chapters=len(CHAPTERS))
    node = _node(plan)
    try:
        with _scene(plan, told, node) as scene:
            with _state_noted(scene):
                for chapter in CHAPTERS:
                    chapter(scene)
                told.check_alive()
            _end(told)
            if plan.keep:
                _keep(plan, scene)
    except (stage.DemoError, api_errors.ApiError) as error:
        _tell_failure(plan, out, error)
        return 1
    return 0


@contextlib.contextmanager
def _state_noted(scene: world.World) -> Iterator[None]:
    """Add to a failure how the pods and claims stood at that moment."""
    try:
        yield
    except stage.DemoError as error:
        with contextlib.suppress(api_errors.ApiError):
            for line in scene.state():
                error.add_note(line)
        raise


def _node(plan: Plan) -> observer.Onlooker:
    """The node's onlooker; raises SettingsError for a machine on which the samples cannot run."""
    given = {"mock.machine": plan.machine, "node.name": NODE, **options.places(plan.node_folder)}
    node = observer.Onlooker(values.load(given, environ={}))
    if missing := _PROFILES - node.profiles():
        known = ", ".join(sorted(node.profiles())) or "none"
        raise errors.SettingsError(
            f"the samples ask for the MIG profiles {', '.join(sorted(missing))}, and {plan.machine} has {known}; take dgx-a100-40gb-2gpu",
            key="--mock",
        )
    if _INTERFACE not in node.interfaces() or len(node.interfaces()) < 2:
        raise errors.SettingsError(f"the samples ask for two NICs, one of them {_INTERFACE}; {plan.machine} offers fewer", key="--mock")
    return node


@contextlib.contextmanager
def _scene(plan: Plan, told: stage.Stage, node: observer.Onlooker) -> Iterator[world.World]:
    """Cluster and driver, running; stopped at the end, and not to be interrupted in that."""
    driver_log, cluster_log = plan.logs
    with contextlib.ExitStack() as stack:
        stack.enter_context(local_cluster.logging_to(cluster_log))
        told.say("Starting a local cluster (API server, scheduler, controllers and kubelet in this process) and one node driver ...")
        cluster = stack.enter_context(
            local_cluster.running(plan.folder, nodes=(NODE,), gates=chapters.GATES, as_kubernetes=plan.as_kubernetes)
        )
        kubeconfig = cluster.driver_kubeconfig(NODE)
        command = driver_process.command(machine=plan.machine, node=NODE, folder=plan.node_folder, kubeconfig=kubeconfig)
        driver = driver_process.Child(command, driver_log, plan.folder / "tmp")
        stack.callback(driver.stop)
        api = stack.enter_context(cluster.client())
        scene = world.World(stage=told, cluster=cluster, api=api, driver=driver, node=node, node_name=NODE)
        scene.create([*world.classes(), *world.load("00-namespace")])
        driver.start()
        told.check_alive = driver.check_alive
        stack.callback(process.ignore)
        yield scene


def _end(told: stage.Stage) -> None:
    told.chapterless(f"All {told.checks} checks held, in {told.seconds:.1f} s.")
    told.say("What to try next:")
    told.show(
        [
            "drakit demo --keep                        the same, and the cluster stays up for your own kubectl",
            "drakit slices --mock dgx-h100             what another machine would publish, and what mixins save",
            "drakit show --mock dgx-a100-40gb-2gpu     devices, memory-slice maps and bandwidth in the terminal",
            "drakit prepare --help                     prepare a claim from a file, with no cluster at all",
            f"ls {shlex.quote(str(world.folder()))}",
        ]
    )


def _keep(plan: Plan, scene: world.World) -> None:
    """Leave everything up until Ctrl-C."""
    node = f"--mock {plan.machine} --node {NODE} --folder {shlex.quote(str(plan.node_folder))}"
    scene.stage.chapterless("The cluster stays up until Ctrl-C.")
    scene.stage.show(
        [
            f"export KUBECONFIG={shlex.quote(str(scene.cluster.kubeconfig))}",
            "kubectl get resourceslices",
            f"kubectl apply -f {shlex.quote(str(world.folder()))}",
            f"kubectl -n {world.NAMESPACE} get pods,resourceclaims",
            f"drakit show {node}",
            f"tail -f {shlex.quote(str(plan.logs[0]))}",
        ]
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            scene.stage.check_alive()
            time.sleep(_LOOK_SECONDS)
    scene.stage.chapterless("Stopping the driver and the cluster.")


def _tell_failure(plan: Plan, out: rich.console.Console, error: Exception) -> None:
    out.print(f"\nFAILED: {error}", markup=False, style="bold red", soft_wrap=True)
    for note in getattr(error, "__notes__", ()):
        out.print(f"  {note}", markup=False, soft_wrap=True)
    for log in plan.logs:
        lines = driver_process.tail(log)
        if lines:
            out.print(f"\nThe end of {log.name}:", markup=False)
            out.print("\n".join(f"  {line}" for line in lines), markup=False, soft_wrap=True)
    out.print("\nRun it with --folder DIR to keep every file.", markup=False)


def _check_empty(place: pathlib.Path) -> None:
    if any(entry.name != local_cluster.LOCK for entry in place.iterdir()):
        raise errors.SettingsError(f"{place} is not empty, and the demo begins with an empty node; give a new folder", key="--folder")
