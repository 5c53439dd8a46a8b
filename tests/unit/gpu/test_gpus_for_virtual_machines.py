"""The form of a GPU for virtual machines: it excludes every other use, hides the GPU from NVML, and gives it back. On a mock machine."""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from drakit import machines, testing, vfio
from drakit.core import device as devices
from drakit.vfio import mock
from drakit_gpu import checks, options, port, vfio_form
from drakit_gpu import driver as gpu_driver
from drakit_gpu.health import faults
from drakit_gpu.mock import mock_gpus
from fakes import gpu_node, node_with_intents

VFIO, ADDRESS = "gpu-0-vfio", "0000:1b:00.0"
API = {"apiVersion": "gpu.drakit.dev/v1", "kind": "GpuConfig"}


class Steps:
    """Calls of the main thread that may end the process: before and after each call of the port, and after each change of the bus."""

    def __init__(self) -> None:
        self.passed, self.at = 0, -1

    def __call__(self, _: str = "") -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.passed, step = self.passed + 1, self.passed
        if step == self.at:
            raise testing.Crash(str(step))


Labs = Callable[..., "Lab"]


class Lab:
    """A node whose GPUs outlive its drivers."""

    def __init__(self, folder: pathlib.Path, machine: str = "dgx-h100", *, is_offered: bool = True) -> None:
        self.step, self.is_offered = Steps(), is_offered
        self.choice = machines.Choice(name=machine, directory=folder / "machine", owner="node-a")
        self.hardware = mock_gpus.MockGpus(self.choice)
        functions = list(self.hardware.bus._initial.values())
        self.bus = mock.MockBus(self.choice.directory, functions, after_effect=self.step)
        self.node = node_with_intents.NodeWithIntents(self.make, folder=folder / "node")
        self.boot()

    def make(self, intents: node_with_intents.Intents) -> gpu_driver.GpuDriver:
        hardware = gpu_node.stepping(mock_gpus.MockGpus(self.choice), self.step)
        return gpu_driver.GpuDriver(
            hardware,
            intents=intents,
            health=faults.HealthPolicy(),
            resources=gpu_driver.HostResources(passing=vfio_form.VfioForm(hardware, self.bus, is_offered=self.is_offered)),
            pause=lambda _: None,
        )

    def boot(self) -> None:
        """Let the node's boot be the machine's, as intents name it."""
        self.node.boot_id = self.hardware.boot_id()
        self.node.restart()

    @property
    def driver(self) -> gpu_driver.GpuDriver:
        return cast("gpu_driver.GpuDriver", self.node.driver)

    def visible(self) -> list[int]:
        return [gpu.minor for gpu in self.hardware.gpus()]

    def is_as_made(self) -> bool:
        return len(self.visible()) == 8 and all((function.driver, function.override) == ("nvidia", "") for function in self.bus.functions())


@pytest.fixture
def labs(tmp_path: pathlib.Path) -> Iterator[Labs]:
    """Make labs, and end their drivers' threads with the test."""
    with contextlib.ExitStack() as closing:

        def make(machine: str = "dgx-h100", *, is_offered: bool = True) -> Lab:
            made = Lab(tmp_path, machine, is_offered=is_offered)
            closing.callback(made.node.close)
            return made

        yield make


@pytest.fixture
def lab(labs: Labs) -> Lab:
    return labs()


def draws(device: devices.Device) -> dict[str, dict[str, str]]:
    return {part.counter_set: {name: str(amount) for name, amount in part.counters.items()} for part in device.consumes}


def test_the_form_draws_all_that_partitions_and_the_whole_gpu_draw(lab: Lab) -> None:
    offered = lab.node.offered.by_name()
    whole, passed = offered["gpu-0"], offered[VFIO]
    assert draws(passed) == draws(whole) != {}
    (sets,) = [entry.counters for entry in lab.node.offered.counter_sets if entry.name == "gpu-0-counter-set"]
    assert dict(passed.consumes[0].counters) == dict(sets), "nothing is left for a partition"
    assert passed.attributes["type"] == "vfio"
    assert passed.attributes["resource.kubernetes.io/pciBusID"] == ADDRESS
    assert passed.attributes["uuid"] == whole.attributes["uuid"]


def test_on_gpus_without_partitions_one_counter_keeps_the_forms_apart(labs: Labs) -> None:
    lab = labs("server-rtx-pro-6000")
    names = lab.node.offered.by_name()
    assert draws(names["gpu-0"]) == draws(names[VFIO]) != {}


def test_no_gpu_is_passed_unless_an_admin_says_so(labs: Labs) -> None:
    assert VFIO not in labs(is_offered=False).node.offered.by_name()
    assert not options.GpuOptions().vfio


def test_a_claim_gets_the_group_and_nvml_loses_the_gpu(lab: Lab) -> None:
    before, claim = lab.node.offered, lab.node.claim(VFIO)
    container = lab.node.prepare(claim)
    assert container.device_nodes == ("/dev/vfio/vfio", "/dev/vfio/1")
    assert dict(container.env) == {"NVIDIA_VISIBLE_DEVICES": "void", "GPU_DEVICE_REQUEST_0_GPU_0_VFIO": ADDRESS}
    assert lab.visible() == [1, 2, 3, 4, 5, 6, 7]
    during = lab.node.offered
    assert during.counter_sets == before.counter_sets
    assert during.by_name().keys() == before.by_name().keys(), "a device in use must not vanish from its slice"
    assert during.by_name()[VFIO] == before.by_name()[VFIO]
    assert during.by_name()["gpu-1"].attributes["nvlinkPeers"] == "2,3,4,5,6,7", "the others no longer reach it"
    assert lab.node.prepare(claim) == container
    lab.node.restart()
    assert lab.driver.withheld_devices() == {VFIO: "a virtual machine has the GPU"}, "a command that never saw the GPU calls it no loss"
    assert lab.node.prepare(claim) == container
    assert lab.node.offered.by_name()[VFIO].taints == ()
    assert "gpu-0-mig-1g10gb-19-0" not in lab.node.offered.by_name(), "nothing else of the GPU is offered by a process that never saw it"
    lab.node.unprepare(claim)
    assert lab.is_as_made()
    assert lab.node.is_clean
    assert lab.node.offered == before


def test_a_passed_gpu_is_no_fault(lab: Lab) -> None:
    lab.driver._monitor.poll()  # type: ignore[union-attr]
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    for _ in range(3):
        lab.driver._monitor.poll()  # type: ignore[union-attr]
    assert lab.node.context.taints() == {}
    lab.node.restart()
    lab.driver._monitor.poll()  # type: ignore[union-attr]
    assert lab.node.context.taints() == {}
    lab.node.unprepare(claim)
    lab.driver._monitor.poll()  # type: ignore[union-attr]
    assert lab.node.context.taints() == {}


def test_a_gpu_in_mig_mode_is_whole_before_a_virtual_machine_gets_it(lab: Lab) -> None:
    gpu = lab.hardware.gpus()[0].uuid
    lab.hardware.set_mig_mode(gpu, enabled=True)
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    lab.node.unprepare(claim)
    mode = lab.hardware.mig_mode(gpu)
    assert mode is not None
    assert not mode.current


def test_an_instance_or_a_process_on_the_gpu_keeps_it_on_the_host(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    gpu = lab.hardware.gpus()[0].uuid
    lab.hardware.attach(gpu, 4711)
    with pytest.raises(testing.RefusedError, match="gpu-0-vfio is in use by processes 4711"):
        lab.node.prepare(claim)
    lab.hardware.detach(gpu, 4711)
    lab.hardware.set_mig_mode(gpu, enabled=True)
    lab.hardware.create_gpu_instance(gpu, 19, port.Placement(start=0, size=1))
    with pytest.raises(testing.RefusedError, match="was not made by this driver"):
        lab.node.prepare(claim)
    assert lab.is_as_made()


def test_a_program_that_opens_the_gpu_after_the_plan_is_never_waited_for(lab: Lab) -> None:
    lab.hardware.set_mig_mode(lab.hardware.gpus()[0].uuid, enabled=False)
    plan_of = lab.driver.plan

    def plan(grant: gpu_driver.Grant) -> object:
        planned = plan_of(grant)
        lab.hardware.attach(lab.hardware.gpus()[0].uuid, 99)
        return planned

    lab.driver.plan = plan  # type: ignore[method-assign, assignment]
    claim = lab.node.claim(VFIO)
    with pytest.raises(testing.RefusedError, match=r"gpu-0-vfio: /proc/driver/nvidia/gpus/unbindLock: IN_USE"):
        lab.node.prepare(claim)
    assert lab.is_as_made()


def test_sharing_of_a_passed_gpu_is_refused_by_name(lab: Lab) -> None:
    claim = lab.node.claim(VFIO, parameters={**API, "sharing": {"strategy": "TimeSlicing"}})
    with pytest.raises(testing.RefusedError, match=r"parameters.sharing: is not for a GPU of a virtual machine"):
        lab.node.prepare(claim)
    assert lab.is_as_made()


def test_a_machine_that_still_runs_keeps_the_gpu_until_it_ends(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    lab.bus.open_group(1)
    with pytest.raises(testing.RefusedError, match=r"a process has /dev/vfio/1 open; end the virtual machine"):
        lab.node.unprepare(claim)
    lab.bus.open_group(1, is_open=False)
    lab.node.unprepare(claim)
    assert lab.is_as_made()


def test_a_claim_ends_although_the_form_is_no_longer_offered(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    lab.is_offered = False
    lab.node.restart()
    lab.node.unprepare(claim)
    assert lab.is_as_made()
    assert VFIO not in lab.node.offered.by_name()


def test_a_reboot_gives_all_gpus_back(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    machines.reboot(lab.choice.directory)
    lab.boot()
    assert lab.is_as_made()
    lab.node.prepare(claim)
    assert lab.visible() == [1, 2, 3, 4, 5, 6, 7]
    lab.node.unprepare(claim)
    assert lab.is_as_made()


def test_a_gpu_that_no_claim_has_is_named_and_released_by_name(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    assert list(lab.driver.unclaimed()) == []
    lab.node.claims.remove(claim)
    lab.node.lose_journal()
    (found,) = lab.driver.unclaimed()
    assert (found.kind, found.name, found.needs_name) == ("VFIO function", ADDRESS, True)
    lab.driver.reclaim(found)
    assert lab.is_as_made()


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)], ids=["sampled", "every"])
@pytest.mark.parametrize("act", ["prepare", "unprepare"])
def test_a_death_at_any_step_loses_and_leaks_nothing(lab: Lab, act: str, every: int) -> None:
    claim = lab.node.claim(VFIO)
    call: Callable[..., object] = getattr(lab.node, act)
    for at in range(0, 300, every):
        if act == "unprepare":
            lab.node.prepare(claim)
        lab.step.passed, lab.step.at = 0, at
        try:
            call(claim)
        except testing.Crash:
            lab.step.at = -1
            lab.node.restart()
            if act == "prepare":
                lab.node.prepare(claim)
                assert lab.visible() == [1, 2, 3, 4, 5, 6, 7]
            lab.node.unprepare(claim)
            assert lab.is_as_made()
            assert lab.node.is_clean
        else:
            assert at > 5
            return
    raise AssertionError("it never ended")


def test_findings_name_the_gpus_that_could_be_passed(lab: Lab) -> None:
    told = {finding.subject: finding.message for finding in checks.of_vfio(options.GpuOptions(vfio=True), lab.bus)}
    assert (told["IOMMU"], told["vfio-pci"]) == ("is on", "is loaded")
    assert told["devices"].startswith(f"that could be passed to a virtual machine: {ADDRESS}, ")


def test_a_gpu_without_an_iommu_group_is_not_offered_and_the_reason_is_told(tmp_path: pathlib.Path) -> None:
    choice = machines.Choice(name="dgx-h100", directory=tmp_path)
    hardware = mock_gpus.MockGpus(choice)
    bus = mock.MockBus(tmp_path, [vfio.Function(address=gpu.pci_bus_id, driver="nvidia") for gpu in hardware.gpus()])
    resources = gpu_driver.HostResources(passing=vfio_form.VfioForm(hardware, bus))
    driver = gpu_driver.GpuDriver(hardware, resources=resources)
    names = driver.discover().flat().by_name()
    assert "gpu-0" in names
    assert VFIO not in names
    first = driver.not_offered()[0]
    assert (first.name, first.reason) == ("gpu-0", f"({ADDRESS}) has no IOMMU group")
    assert "intel_iommu=on" in first.change
