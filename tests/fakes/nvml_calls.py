"""The NVML calls of one claim's plan, prepare and unprepare, counted at the C library through NVIDIA's own binding."""

import collections
import dataclasses
import pathlib

from drakit.core import driver as drivers
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, port
from drakit_gpu.mock import mock_gpus
from fakes import gpu_node, nvml_library

CHANGES = frozenset(
    {
        "nvmlDeviceSetMigMode",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls by symbol, of each verb."""

    plan: collections.Counter[str]
    prepare: collections.Counter[str]
    unprepare: collections.Counter[str]

    def reads(self) -> int:
        """How many calls of plan and prepare change nothing."""
        both = self.plan + self.prepare
        return both.total() - sum(both[name] for name in CHANGES)


class _Host(host.Host):
    """The kernel's files of a mock machine, with the capabilities of its MIG devices."""

    def __init__(self, root: pathlib.Path, hardware: mock_gpus.MockGpus) -> None:
        super().__init__(root)
        self._root, self._hardware = root, hardware

    def capability_minors(self, minor: int, instance_id: int, compute_id: int) -> port.CapabilityMinors:
        nvml_library.show_capabilities(self._root, self._hardware)
        return super().capability_minors(minor, instance_id, compute_id)


def of_claims(folder: pathlib.Path, machine: str, *devices: str) -> list[Calls]:
    """Return the calls of one claim for each device, one after the other, by a driver that has discovered the machine."""
    node = gpu_node.GpuNode(folder / "machine", machine)
    root = nvml_library.host_root(folder / "root", node.hardware)
    library = nvml_library.NvmlLibrary(node.hardware)
    node.driver = gpu_driver.GpuDriver(nvml.NvmlGpus(library.load, system=_Host(root, node.hardware)), intents=node.intents)
    drivers.open_driver(node.driver, node.planned)
    return [_of_claim(node, library, device, uid=f"claim-{number}") for number, device in enumerate(devices)]


def _of_claim(node: gpu_node.GpuNode, library: nvml_library.NvmlLibrary, device: str, *, uid: str) -> Calls:
    grant = node.grant(device, uid=uid)
    library.calls.clear()
    planned = dataclasses.replace(grant, intent=node.driver.plan(grant))
    plan = _taken(library)
    node.journal[uid] = gpu_node.JournalEntry(grant=planned)
    prepared = node.driver.prepare(planned)
    prepare = _taken(library)
    node.driver.unprepare(dataclasses.replace(planned, record=prepared.record))
    del node.journal[uid]
    return Calls(plan=plan, prepare=prepare, unprepare=_taken(library))


def _taken(library: nvml_library.NvmlLibrary) -> collections.Counter[str]:
    calls = collections.Counter(library.calls)
    library.calls.clear()
    return calls
