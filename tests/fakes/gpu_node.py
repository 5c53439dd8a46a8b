"""A node with mock GPUs and the least of an engine: what it was asked to plan is remembered as a journal would, across crashes of the driver.

``GpuNode.restart`` gives a driver that knows nothing but hardware and journal. A driver made with ``crash_at`` dies (``CrashError``) right before or
right after the effect of one port call, counted from 0: even numbers are before, odd ones after.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import TypedDict, Unpack, cast

from drakit import machines
from drakit.core import claim, device, driver, errors, names, quantity, records
from drakit_gpu import config, options, port, share_policy
from drakit_gpu import driver as gpu_driver
from drakit_gpu.health import faults
from drakit_gpu.inventory import discovery
from drakit_gpu.mock import mock_gpus

Grant = driver.Grant[config.AnyConfig]


class Fields(TypedDict, total=False):
    """More of a grant."""

    config: config.AnyConfig
    config_source: claim.ConfigSource
    share_id: names.ShareId
    consumed_capacity: Mapping[str, quantity.Quantity]


class CrashError(BaseException):
    """The process is gone; nothing in it may catch this."""


class Steps:
    """Counts the steps of a process and ends it at one of them; called with the name of each."""

    def __init__(self, crash_at: int | None = None) -> None:
        self._crash_at = crash_at
        self.passed = 0
        self.last = ""
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.passed, step, self.last = self.passed + 1, self.passed, name
        self.names.append(name)
        if step == self._crash_at:
            raise CrashError(name)


class SteppingGpus:
    """Passes every call on to real or mock GPUs, and tells of it before and after its effect; see ``stepping``."""

    def __init__(self, hardware: port.GpuPort, step: Callable[[str], None]) -> None:
        self._hardware = hardware
        self._step = step

    def __getattr__(self, call: str) -> Callable[..., object]:
        method = cast("Callable[..., object]", getattr(self._hardware, call))

        def passed(*args: object, **named: object) -> object:
            self._step(f"before {call}")
            answer = method(*args, **named)
            self._step(f"after {call}")
            return answer

        return passed


def stepping(hardware: port.GpuPort, step: Callable[[str], None]) -> port.GpuPort:
    """The same GPUs, with a step before and after every call."""
    return cast("port.GpuPort", SteppingGpus(hardware, step))


@dataclasses.dataclass(kw_only=True)
class JournalEntry:
    """A journal entry of one grant."""

    grant: Grant
    is_prepared: bool = False


class GpuNode:
    """One node: its hardware directory and its journal outlive every driver."""

    def __init__(
        self,
        directory: pathlib.Path,
        machine: str = "dgx-a100-40gb-2gpu",
        *,
        terms: share_policy.SharePolicy = share_policy.NOT_SHARED,
        resources: gpu_driver.HostResources | None = None,
        health: faults.HealthPolicy | None = None,
        layouts: tuple[options.MigLayout, ...] = (),
    ) -> None:
        self.terms = terms
        self.layouts = layouts
        self.health = health
        self.resources = resources
        self.choice = machines.Choice(name=machine, directory=directory, owner="node-a")
        self.journal: dict[str, JournalEntry] = {}
        self.pauses: list[float] = []
        self.hardware = mock_gpus.MockGpus(self.choice)
        self.driver = self.restart()

    def restart(self, *, crash_at: int | None = None) -> gpu_driver.GpuDriver:
        """A driver as a new process has it."""
        self.steps = Steps(crash_at)
        self.driver = gpu_driver.GpuDriver(
            stepping(mock_gpus.MockGpus(self.choice), self.steps),
            intents=self.intents,
            options=discovery.DiscoveryOptions(
                whole_beside_partitions=self.hardware.whole_beside_partitions, terms=self.terms, layouts=self.layouts
            ),
            resources=self.resources,
            health=self.health,
            pause=self.pauses.append,
        )
        driver.open_driver(self.driver, self.planned)
        return self.driver

    def intents(self, claim: names.ClaimUid | None = None) -> list[records.Record]:
        """The intents of all grants in the journal, or of one claim's."""
        return [entry.grant.intent for entry in self.journal.values() if claim in {None, entry.grant.claim.uid}]

    def planned(self, wanted: device.Device) -> list[records.Record]:
        """The intents of a device's grants."""
        return [entry.grant.intent for entry in self.journal.values() if entry.grant.device.name == wanted.name]

    def device(self, name: str) -> device.Device:
        """A flat device that is offered now; raises ClaimError for one that is not, as the engine does."""
        devices = self.driver.discover().flat().by_name()
        if name not in devices:
            raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, f"{name} is not offered")
        return devices[name]

    def grant(self, name: str, *, uid: str = "a", request: str = "gpu", admin_access: bool = False, **fields: Unpack[Fields]) -> Grant:
        """A grant of a device that is offered now, planned by nobody yet; ``fields`` are others of a grant, such as ``share_id``."""
        offered = self.device(name)
        plain = Grant(
            claim=claim.ClaimRef(uid=names.ClaimUid(uid), namespace="default", name=f"claim-{uid}"),
            request=request,
            pool="node-a",
            device=offered,
            config=self.driver.default_config(offered),
            admin_access=admin_access,
        )
        return dataclasses.replace(plain, **fields)

    def prepare(
        self, name: str, *, uid: str = "a", request: str = "gpu", admin_access: bool = False, **fields: Unpack[Fields]
    ) -> driver.Prepared:
        """Plan, remember, prepare, remember."""
        return self.prepare_again(self.grant(name, uid=uid, request=request, admin_access=admin_access, **fields))

    def prepare_again(self, fresh: Grant) -> driver.Prepared:
        """Plan unless that is remembered, and prepare, as after a call that failed."""
        uid = fresh.claim.uid
        if uid not in self.journal:
            self.journal[uid] = JournalEntry(grant=dataclasses.replace(fresh, intent=self.driver.plan(fresh)))
        entry = self.journal[uid]
        prepared = self.driver.prepare(entry.grant)
        entry.grant, entry.is_prepared = dataclasses.replace(entry.grant, record=prepared.record), True
        return prepared

    def unprepare(self, uid: str = "a") -> None:
        """Unprepare, forget."""
        entry = self.journal[uid]
        entry.is_prepared = False
        self.driver.unprepare(entry.grant)
        del self.journal[uid]

    def recover(self) -> None:
        """Undo every grant that is not prepared, as a start does."""
        for uid in [uid for uid, entry in self.journal.items() if not entry.is_prepared]:
            self.unprepare(uid)

    def instances(self) -> list[tuple[int, int, int]]:
        """What lies on all GPUs: minor number, profile id, start."""
        return [
            (gpu.minor, instance.profile_id, instance.placement.start)
            for gpu in self.hardware.gpus()
            for instance in self.hardware.gpu_instances(gpu.uuid)
        ]

    def mig_devices(self) -> list[str]:
        """The UUIDs of all MIG devices."""
        return [
            compute.mig_uuid
            for gpu in self.hardware.gpus()
            for instance in self.hardware.gpu_instances(gpu.uuid)
            for compute in self.hardware.compute_instances(gpu.uuid, instance.id)
        ]
