"""The cluster on which a fault schedule runs: one node, and the driver's process on it. ``act`` does one step, ``clear`` ends every fault."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from drakit.core import lifecycle
from drakit.journal import inspection, journal
from drakit_cluster.api import apiserver
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.faults import ApiFault, FaultKind
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, POD, SLICE
from fakes import forked_cli
from fakes.fault_schedule import hardware, process, supervisor
from fakes.fault_schedule.schedule import Action, Step
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QUICK, QuickCluster

TIMING = dataclasses.replace(
    QUICK, call=0.6, health_retry=0.1, unprepare_retry=(0.02, 0.1), prepare_retry=(0.02, 0.1), container_retry=(0.02, 0.1)
)
AGENT = "drakit"
CLASSES = {"whole": "whole", "half": "half", "pipe": "pipe", "board": "board"}
RIVAL = "00000000-0000-4000-8000-000000000002"
"""The UID of the pod that a rolling update starts beside the old one."""
PAIR = "-too"
MEDDLED = "meddled"
SETTLE_SECONDS = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class JournalEntries:
    """The journal's entries; ``is_lost`` while it is unreadable, or was and is not known to be whole again."""

    entries: tuple[lifecycle.Entry, ...] = ()
    is_lost: bool = False


class FaultyCluster:
    """Made once and used for many schedules. ``pods`` are those that should run, by name, with their claims' names."""

    def __init__(self, gates: FeatureGates, commands: forked_cli.Commands) -> None:
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
        self.gates, self._commands = gates, commands
        self.machine = self._folder / "machine"
        hardware.prepare_folder(self.machine)
        self.quick_cluster = QuickCluster(self._folder / "c", timing=TIMING, gates=gates)
        self.node = self.quick_cluster.cluster.node(objects.NODE)
        self.home = self.node.folder.plugins / process.NAME
        self.pods: dict[str, str] = {}
        self.claims: set[str] = set()
        self.damaged = 0
        self._leaving = contextlib.ExitStack()
        self._actions: dict[Action, Callable[[Step], None]] = self._table()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as leaving:
            leaving.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self.quick_cluster.start()
            leaving.callback(self.quick_cluster.stop)
            for name, kind in CLASSES.items():
                expression = f"device.driver == '{process.NAME}' && device.attributes['{process.NAME}'].kind == '{kind}'"
                self.quick_cluster.create(CLASS, {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
            parent = supervisor.Parent(self._commands)
            leaving.callback(parent.close)
            self.log = parent.log
            folder = self.node.folder
            order = process.Order(
                node=objects.NODE,
                home=str(self.home),
                cdi=str(folder.cdi),
                registry=str(folder.registry),
                kubeconfig=str(folder.kubeconfig),
                machine=str(self.machine),
            )
            self.keeper = supervisor.Supervisor(parent, order)
            leaving.callback(self.keeper.close)
            self.rival = supervisor.Supervisor(parent, dataclasses.replace(order, instance=RIVAL))
            leaving.callback(self.rival.close)
            leaving.callback(self.clear)
            self.keeper.start()
            self._leaving = leaving.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._leaving.close()

    @property
    def starts(self) -> int:
        """How often a process of the driver was started."""
        return self.keeper.starts + self.rival.starts

    def act(self, step: Step) -> None:
        """Do one step and wait as long as it says."""
        self._actions[step.do](step)
        if step.pause_ms:
            threading.Event().wait(step.pause_ms / 1000)

    def clear(self) -> None:
        """End every fault; what was asked for stays asked for."""
        faults = self.node.faults
        faults.call_twice = faults.unprepare_first = False
        faults.drop_calls = 0
        self.quick_cluster.cluster.server.faults.clear()
        self._api_up()
        for name in (hardware.LAG, hardware.DIE, hardware.CLOCK):
            hardware.turn(self.machine, name, "")
        self._plug()
        for path in (self.machine / "tainted").iterdir():
            path.unlink()
        self._set_cdi_mode(0o700)
        for one in (self.keeper, self.rival):
            one.fill_disk(full=False)
            one.send(signal.SIGCONT)
        self.rival.stop()
        self.node.start_kubelet()

    def delete_pods(self) -> None:
        """Let every pod go; their claims stay."""
        for name in self.pods:
            self.quick_cluster.delete(name)
        self.pods.clear()

    def delete_claims(self) -> None:
        """Let the claims go."""
        for name in self.claims:
            self.quick_cluster.api.delete(CLAIM, name, namespace="default")
        self.claims.clear()

    def _table(self) -> dict[Action, Callable[[Step], None]]:
        cluster, machine = self.quick_cluster.cluster, self.machine
        return {
            Action.RUN: self._run,
            Action.JOIN: self._join,
            Action.SETTLE: lambda _: self._settle(),
            Action.DELETE: lambda step: self._delete(step.what, force=False),
            Action.DELETE_BY_FORCE: lambda step: self._delete(step.what, force=True),
            Action.REFUSE: self._refuse,
            Action.DELAY: lambda step: self._fault(step.what, kind=FaultKind.DELAY, seconds=step.amount / 1000),
            Action.CUT: lambda step: self._fault(step.what, kind=FaultKind.CUT, share=step.amount / 1000),
            Action.NONSENSE: lambda step: self._fault(step.what, kind=FaultKind.NONSENSE, share=step.amount / 1000),
            Action.CALM: lambda _: cluster.server.faults.clear(),
            Action.HANG_UP: lambda _: cluster.server.hang_up(),
            Action.API_DOWN: lambda _: cluster.server.stop(),
            Action.API_UP: lambda _: self._api_up(),
            Action.KUBELET_DOWN: lambda _: self.node.stop_kubelet(),
            Action.KUBELET_UP: lambda _: self._kubelet_up(),
            Action.KUBELET_RESTART: lambda _: self._kubelet_restart(),
            Action.CALL_TWICE: lambda _: setattr(self.node.faults, "call_twice", True),
            Action.UNPREPARE_FIRST: lambda _: setattr(self.node.faults, "unprepare_first", True),
            Action.DROP_CALLS: lambda step: setattr(self.node.faults, "drop_calls", step.amount),
            Action.KILL: lambda step: self._of(step.what).send(signal.SIGKILL),
            Action.RESTART: lambda step: self._of(step.what).send(signal.SIGTERM),
            Action.RIVAL: lambda _: self.rival.start(),
            Action.RIVAL_GONE: lambda _: self.rival.stop(),
            Action.REBOOT: lambda _: self._reboot(),
            Action.DAMAGE: lambda step: self._damage(step.what),
            Action.FREEZE: self._freeze,
            Action.DIE: lambda step: hardware.turn(machine, hardware.DIE, step.what),
            Action.LAG: lambda step: hardware.turn(machine, hardware.LAG, str(step.amount)),
            Action.UNPLUG: lambda step: (machine / "present" / step.what).unlink(missing_ok=True),
            Action.PLUG: lambda _: self._plug(),
            Action.TAINT: lambda step: hardware.touch(machine / "tainted" / step.what),
            Action.DISK_FULL: lambda _: self._fill_disk(full=True),
            Action.DISK_FREE: lambda _: self._fill_disk(full=False),
            Action.CDI_READ_ONLY: lambda _: self._set_cdi_mode(0o500),
            Action.CDI_WRITABLE: lambda _: self._set_cdi_mode(0o700),
            Action.UPGRADE: lambda step: hardware.turn(machine, hardware.LIBRARY, str(step.amount)),
            Action.WIPE: lambda _: self._meddle(wipe=True),
            Action.MEDDLE: lambda _: self._meddle(wipe=False),
            Action.UNLINK: self._unlink,
            Action.CLOCK: lambda step: hardware.turn(machine, hardware.CLOCK, str(step.amount)),
        }

    def _run(self, step: Step) -> None:
        kind, name = step.what.split()
        amount: Object = {"capacity": {"requests": {"bandwidth": "1G"}}} if kind == "pipe" else {}
        request: Object = {"name": "gpu", "exactly": {"deviceClassName": CLASSES.get(kind, "whole"), **amount}}
        self.quick_cluster.create(CLAIM, objects.claim(name, request))
        self.claims.add(name)
        for pod in (name, f"{name}{PAIR}") if kind == "pair" else (name,):
            self.quick_cluster.create(POD, objects.pod(pod, claim=name))
            self.pods[pod] = name

    def _join(self, step: Step) -> None:
        pod = f"{step.what}-{len(self.pods)}-{time.monotonic_ns()}"
        self.quick_cluster.create(POD, objects.pod(pod, claim=step.what))
        self.pods[pod] = step.what

    def _settle(self) -> None:
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end and self._waiting():
            threading.Event().wait(0.01)

    def _waiting(self) -> bool:
        phases = {
            json_types.text(one, "metadata", "name"): json_types.text(one, "status", "phase")
            for one in self.quick_cluster.api.list(POD).items
        }
        return any(phases.get(pod) != "Running" for pod in self.pods)

    def _delete(self, name: str, *, force: bool) -> None:
        """Let the pods of a claim go; by force, the claim too."""
        for pod in [pod for pod, claim in self.pods.items() if claim == name]:
            del self.pods[pod]
            self.quick_cluster.delete(pod, force=force)
        if force:
            self.claims.discard(name)
            self.quick_cluster.api.delete(CLAIM, name, namespace="default")

    def _refuse(self, step: Step) -> None:
        status, _, methods = step.what.partition(" ")
        self._fault(methods, kind=FaultKind.REFUSE, status=int(status), share=step.amount / 1000)

    def _fault(self, methods: str, *, kind: FaultKind, status: int = 500, seconds: float = 0.0, share: float = 1.0) -> None:
        fault = ApiFault(kind=kind, status=status, seconds=seconds, share=share, methods=frozenset(methods.split()), agent=AGENT)
        self.quick_cluster.cluster.server.faults.add(fault)

    def _api_up(self) -> None:
        with contextlib.suppress(apiserver.StartError):
            self.quick_cluster.cluster.server.start()

    def _kubelet_up(self) -> None:
        with contextlib.suppress(errors.ApiError):
            self.node.start_kubelet()

    def _kubelet_restart(self) -> None:
        self.node.stop_kubelet()
        self._kubelet_up()

    def _plug(self) -> None:
        for base in hardware.BASES:
            hardware.touch(self.machine / "present" / base)

    def _freeze(self, step: Step) -> None:
        self.keeper.send(signal.SIGSTOP)
        threading.Event().wait(step.amount / 1000)
        self.keeper.send(signal.SIGCONT)

    def _of(self, what: str) -> supervisor.Supervisor:
        return self.rival if what == "rival" else self.keeper

    def _fill_disk(self, *, full: bool) -> None:
        for one in (self.keeper, self.rival):
            one.fill_disk(full=full)

    @contextlib.contextmanager
    def _without_drivers(self) -> Iterator[None]:
        """Kill every process of the driver, and let those that should be there come back afterwards."""
        wanted = [one for one in (self.keeper, self.rival) if one.is_wanted]
        for one in wanted:
            one.stop(signal.SIGKILL)
        try:
            yield
        finally:
            for one in wanted:
                one.start()

    def _reboot(self) -> None:
        """End everything on the node at once; what is in memory only is gone: sandboxes, CDI files, hardware."""
        self.node.stop_kubelet()
        with self._without_drivers():
            for pod in self.node.runtime.sandboxes():
                self.node.runtime.remove(pod.uid)
            for path in self.node.folder.cdi.iterdir():
                path.unlink()
            hardware.reboot(self.machine)
        self._kubelet_up()

    def _damage(self, how: str) -> None:
        """Make the journal unreadable while no driver has it open; not while a claim is half made, which nobody else could know.

        A driver that was killed while it put another file in the journal's place leaves none of that name, and nothing to damage.
        """
        with self._without_drivers():
            states = {entry.state for entry in self.memory().entries}
            if states - {lifecycle.State.PREPARED} or not (self.home / inspection.DATABASE).exists():
                return
            self.damaged += 1
            with (self.home / inspection.DATABASE).open("r+b") as file:
                if how == "header":
                    file.write(b"not a database any more")
                else:
                    file.truncate(file.seek(0, os.SEEK_END) // 2 + 1)

    def memory(self) -> "JournalEntries":
        """What the journal says, from a copy: reading must not be what repairs it."""
        if not inspection.exists(self.home):
            return JournalEntries()
        with tempfile.TemporaryDirectory(prefix="dkj") as folder:
            copy = pathlib.Path(folder) / "home"
            inspection.copy(self.home, copy)
            if inspection.damage(copy):
                return JournalEntries(is_lost=True)
            with journal.Journal.open(copy, driver=process.NAME, boot_id=hardware.boot_id(self.machine)) as opened:
                return JournalEntries(entries=tuple(opened.entries()), is_lost=opened.quarantine is not None)

    def _meddle(self, *, wipe: bool) -> None:
        """Delete the driver's slices, or write something into each."""
        for one in self.quick_cluster.slices():
            name = json_types.text(one, "metadata", "name")
            with contextlib.suppress(errors.ApiError):
                if wipe:
                    self.quick_cluster.api.delete(SLICE, name)
                elif devices := json_types.objects(one, "spec", "devices"):
                    changed = [device | {"attributes": {MEDDLED: {"bool": True}}} for device in devices]
                    self.quick_cluster.api.patch(SLICE, name, {"spec": {"devices": [*changed]}}, kind=PatchKind.MERGE)

    def _unlink(self, step: Step) -> None:
        folder = self.node.folder.registry if step.what == "registration" else self.home
        for socket in folder.glob("*.sock"):
            socket.unlink(missing_ok=True)

    def _set_cdi_mode(self, mode: int) -> None:
        self.node.folder.cdi.chmod(mode)
