"""The two families under soak: how their driver is started, what pods claim, what goes wrong on their hardware, and what the hardware has."""

import contextlib
import pathlib
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from drakit import machines, testing
from drakit_cluster.objects import resources
from drakit_cluster.runtime import Mode
from drakit_gpu import driver as gpu_driver
from drakit_gpu import nvml_errors
from drakit_gpu.mock import fault_injection, mock_gpus
from drakit_nic import driver as nic_driver
from fakes import netns
from soak import node as nodes

MACHINE = "dgx-a100-40gb-2gpu"
NIC_MAC = "02:00:00:00:00:20"
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb")
FIRST_SHARE, FIRST_MEMBER = 0x100, 0x8000
"""The first minor number of a share's class, and of the class of a sandbox below it."""
RATES = ("100M", "500M", "1G")
FAILING_CALLS = ("create_gpu_instance", "create_compute_instance", "destroy_gpu_instance", "destroy_compute_instance", "gpu_instances")
Fault = Callable[[nodes.SoakNode, random.Random], None]


class Family(Protocol):
    """A family under soak."""

    name: str
    mode: Mode
    words: tuple[str, ...]
    faults: Mapping[str, Fault]

    def prepare(self, node: nodes.SoakNode) -> None:
        """Create what claims refer to."""
        ...

    def claim(self, name: str, chance: random.Random) -> nodes.Object:
        """Return a claim of some form."""
        ...

    def calm(self) -> None:
        """End the faults of the hardware."""
        ...

    def hardware(self) -> Any:
        """Return what the driver made on the hardware, or changed."""
        ...

    def unclaimed(self, entries: int) -> str:
        """Return what is wrong with the hardware while so many claims are prepared; empty if nothing is."""
        ...


class GpuFamily:
    """Two mock A100s with MIG, whose calls fail, hang up or end the driver now and then."""

    name = gpu_driver.NAME
    mode = Mode.PRETEND

    def __init__(self, folder: pathlib.Path) -> None:
        self.words: tuple[str, ...] = ("--family", "gpu", "--mock", MACHINE, "--set", f"mock.dir={folder / 'mock'}")
        self._choice = machines.Choice(name=MACHINE, directory=folder / "mock", owner=nodes.NODE)
        self._faults = fault_injection.Faults(folder / "mock")
        self.faults: Mapping[str, Fault] = {"failing NVML call": self._fail, "death in an NVML call": self._die}

    def prepare(self, node: nodes.SoakNode) -> None:
        for kind in ("gpu", "mig"):
            expression = f'device.attributes["{self.name}"].type == "{kind}"'
            _create(node, testing.device_class(kind, driver=self.name, expression=expression))

    def claim(self, name: str, chance: random.Random) -> nodes.Object:
        if chance.random() < 0.15:
            return testing.claim(name, device_class="gpu")
        return testing.claim(
            name, device_class="mig", expression=f'device.attributes["{self.name}"].profile == "{chance.choice(PROFILES)}"'
        )

    def calm(self) -> None:
        self._faults.disarm()

    def hardware(self) -> Any:
        hardware = mock_gpus.MockGpus(self._choice)
        return [
            {"gpu": gpu.minor, "instance": instance.id, "profile": instance.profile_id, "place": instance.placement}
            for gpu in hardware.gpus()
            for instance in hardware.gpu_instances(gpu.uuid)
        ]

    def unclaimed(self, entries: int) -> str:
        made = len(self.hardware())
        return f"{made} GPU instances of {entries} claims" if made > entries else ""

    def _fail(self, _node: nodes.SoakNode, chance: random.Random) -> None:
        self._arm(fault_injection.Action.FAIL, chance)

    def _die(self, _node: nodes.SoakNode, chance: random.Random) -> None:
        self._arm(fault_injection.Action.DIE, chance)

    def _arm(self, action: fault_injection.Action, chance: random.Random) -> None:
        moment, call = chance.choice(list(fault_injection.Moment)), chance.choice(FAILING_CALLS)
        self._faults.arm(
            fault_injection.Fault(call=call, moment=moment, action=action, code=nvml_errors.Code.UNKNOWN, skip=chance.randrange(3))
        )


class NicFamily:
    """A veth NIC of this network namespace on the real kernel; pods have namespaces of their own, and hooks attach their interfaces."""

    name = nic_driver.NAME
    mode = Mode.ISOLATED

    def __init__(self, space: netns.Namespace) -> None:
        self._space = space
        rule = "nic.rules=[{match: nic0, speed: 10G}]"
        self.words: tuple[str, ...] = ("--family", "nic", "--set", rule, "--set", 'nic.exclude=["*-wire", lo]')
        self._before = self._state()
        self.faults: Mapping[str, Fault] = {
            "deleted qdisc": self._delete_qdisc,
            "link down and up": self._flap,
            "sandbox killed": self._kill_sandbox,
        }

    def prepare(self, node: nodes.SoakNode) -> None:
        _create(node, testing.device_class("nic", driver=self.name))

    def claim(self, name: str, chance: random.Random) -> nodes.Object:
        parameters: dict[str, Any] = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "interfaceName": "fast0"}
        capacity = {"bandwidth": chance.choice(RATES)}
        return testing.claim(name, device_class="nic", capacity=capacity, parameters=parameters, driver=self.name)

    def calm(self) -> None:
        self._space.ip("link", "set", "nic0", "up")

    def hardware(self) -> Any:
        return {"as before": self._state() == self._before, "state": self._state()}

    def unclaimed(self, entries: int) -> str:
        classes = [line.split() for line in self._space.run("tc", "class", "show", "dev", "nic0").splitlines()]
        minors = [int(words[2].partition(":")[2], 16) for words in classes if words[:2] == ["class", "htb"]]
        shares, members = sum(FIRST_SHARE <= minor < FIRST_MEMBER for minor in minors), sum(minor >= FIRST_MEMBER for minor in minors)
        return "" if shares == members == entries else f"{shares} classes of shares and {members} of sandboxes for {entries} claims"

    def _state(self) -> dict[str, object]:
        state = self._space.state()
        state["links"] = sorted(self._space.links())
        return state

    def _delete_qdisc(self, _node: nodes.SoakNode, _chance: random.Random) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._space.run("tc", "qdisc", "del", "dev", "nic0", "root")

    def _flap(self, _node: nodes.SoakNode, _chance: random.Random) -> None:
        for way in ("down", "up"):
            self._space.ip("link", "set", "nic0-wire", way)

    def _kill_sandbox(self, node: nodes.SoakNode, chance: random.Random) -> None:
        runtime = node.cluster.node(nodes.NODE).runtime
        if sandboxes := runtime.sandboxes():
            victim = chance.choice(sandboxes)
            runtime.kill_sandbox(victim.uid)
            node.delete(victim.name)


@contextlib.contextmanager
def family(kind: str, folder: pathlib.Path) -> Iterator[Family]:
    """Return a family by name, with hardware of its own below the folder or in this network namespace."""
    if kind == "gpu":
        yield GpuFamily(folder)
        return
    yield NicFamily(netns.Namespace(_own_namespace()))


def _own_namespace() -> str:
    return subprocess.run(["ip", "netns", "identify"], check=True, capture_output=True, text=True, timeout=30).stdout.strip()


def _create(node: nodes.SoakNode, device_class: nodes.Object) -> None:
    node.cluster.api.create(resources.CLASS, device_class)
