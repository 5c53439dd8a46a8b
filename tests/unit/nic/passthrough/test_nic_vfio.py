"""The form of a NIC for virtual machines: offered beside the others, bound to vfio-pci for a claim, and restored. On a mock machine."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from drakit import machines, testing, vfio
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import errors, quantity
from drakit.journal import inspection
from drakit.node import restorer
from drakit.vfio import mock
from drakit_nic import checks, mock_port, options
from drakit_nic import driver as nic_driver
from drakit_nic.passthrough import sriov
from fakes import node_with_intents

MACHINE = """
name: passed
description: one NIC with a virtual function, and one without
nics:
- {name: eth1, mac: "02:d9:a1:00:00:01", mtu: 9000, speedMbps: 100000, pciBusID: "0000:0c:00.0", driver: mlx5_core, virtualFunctions: 8}
- {name: eth1v0, mac: "02:d9:a1:00:10:00", mtu: 1500, speedMbps: 100000, pciBusID: "0000:0c:00.2", driver: mlx5_core,
   physicalFunction: "0000:0c:00.0", functionNumber: 3}
- {name: eth2, mac: "02:d9:a1:00:00:02", mtu: 9000, speedMbps: 100000, pciBusID: "0000:4b:00.0", driver: mlx5_core}
"""
NIC, FUNCTION = "pci-0000-4b-00-0", "pci-0000-0c-00-2"
VFIO, FUNCTION_VFIO = f"{NIC}-vfio", f"{FUNCTION}-vfio"
ADDRESS, FUNCTION_ADDRESS = "0000:4b:00.0", "0000:0c:00.2"
PLACE = sriov.Function(parent="eth1", number=3)
AS_MADE = sriov.Settings(mac="02:d9:a1:00:10:00")
BITS = quantity.Quantity.of


class Steps:
    """Calls of the bus and of virtual functions that change hardware; each may end the process."""

    def __init__(self) -> None:
        self.passed, self.at = 0, -1

    def __call__(self) -> None:
        self.passed, step = self.passed + 1, self.passed
        if step == self.at:
            raise testing.Crash(str(step))


class Machine(mock_port.MockPort):
    """The mock machine, each change of which is a step."""

    def __init__(self, folder: pathlib.Path, step: Callable[[], None], **bus: Any) -> None:
        file = folder / "machine.yaml"
        file.write_text(MACHINE)
        super().__init__(machines.Choice(name=str(file), directory=folder / "machine"), after_effect=lambda _: step())
        functions = list(self.bus._initial.values())
        self.bus = mock.MockBus(folder / "machine", functions, after_effect=step, **bus)
        self.on_count: Callable[[], None] = lambda: None
        """Called when the virtual functions of a physical function are counted."""

    def functions_of(self, bus_id: str) -> Sequence[sriov.BusFunction]:
        self.on_count()
        return super().functions_of(bus_id)


class Lab:
    """A node whose hardware outlives its drivers."""

    def __init__(self, folder: pathlib.Path, *, bus: dict[str, Any] | None = None, **changes: Any) -> None:
        self.step = Steps()
        self.machine = Machine(folder, self.step, **(bus or {}))
        rule = options.NicRule(match="eth1v*", speed=BITS("50G"))
        self.options = dataclasses.replace(options.NicOptions(vfio=("eth2", "eth1v*"), whole=("eth2",), rules=(rule,)), **changes)
        self.folder = folder / "node"
        self.node = node_with_intents.NodeWithIntents(self.make, folder=self.folder)

    def make(self, intents: node_with_intents.Intents) -> nic_driver.NicDriver:
        return nic_driver.NicDriver(self.machine, node="node-1", options=self.options, bus=self.machine.bus, intents=intents)

    def drivers(self) -> dict[str, tuple[str, str]]:
        return {function.address: (function.driver, function.override) for function in self.machine.bus.functions()}

    def is_as_made(self) -> bool:
        is_bound = any("vfio-pci" in pair for pair in self.drivers().values())
        return not is_bound and {interface.name for interface in self.machine.interfaces()} == {"eth1", "eth1v0", "eth2"}


Labs = Callable[..., Lab]


@pytest.fixture
def labs(tmp_path: pathlib.Path) -> Iterator[Labs]:
    """Make labs, and close their journals with the test."""
    with contextlib.ExitStack() as closing:

        def make(**changes: Any) -> Lab:
            made = Lab(tmp_path, **changes)
            closing.callback(made.node.close)
            return made

        yield make


@pytest.fixture
def lab(labs: Labs) -> Lab:
    return labs()


def test_all_forms_of_a_nic_draw_its_one_use(lab: Lab) -> None:
    offered = lab.node.offered
    draw = (devices.CounterConsumption(counter_set=NIC, counters={"uses": quantity.ONE}),)
    assert [name for name in offered.by_name() if name.startswith(NIC)] == [NIC, f"{NIC}-whole", VFIO]
    for name in (NIC, f"{NIC}-whole", VFIO):
        assert offered.by_name()[name].consumes == draw
        assert offered.by_name()[name].lock_names == (NIC,)
    assert offered.by_name()[VFIO].attributes["form"] == "vfio"
    assert offered.by_name()[VFIO].attributes["resource.kubernetes.io/pciBusID"] == ADDRESS
    assert "pci-0000-0c-00-0-vfio" not in offered.by_name(), "eth1 does not match nic.vfio"


def test_no_nic_is_passed_unless_an_admin_says_so(labs: Labs) -> None:
    assert not [name for name in labs(vfio=()).node.offered.by_name() if name.endswith("-vfio")]


def test_a_claim_gets_the_group_and_the_host_loses_the_interface(lab: Lab) -> None:
    before = lab.node.offered
    claim = lab.node.claim(VFIO)
    container = lab.node.prepare(claim)
    assert container.device_nodes == ("/dev/vfio/vfio", "/dev/vfio/3")
    assert {name.rpartition("_")[2]: value for name, value in container.env.items()} == {"DEVICE": VFIO, "PCI": ADDRESS}
    assert lab.drivers()[ADDRESS] == ("vfio-pci", "vfio-pci")
    assert "eth2" not in {interface.name for interface in lab.machine.interfaces()}
    assert lab.node.offered == before, "a device in use must not vanish from its slice"
    assert lab.node.prepare(claim) == container
    lab.node.restart()
    assert lab.node.prepare(claim) == container
    assert lab.node.offered == before
    lab.node.unprepare(claim)
    assert lab.is_as_made()
    assert lab.node.is_clean


def test_with_iommufd_a_claim_gets_the_device(labs: Labs) -> None:
    lab = labs(vfio_nodes="iommufd")
    assert lab.node.prepare(lab.node.claim(VFIO)).device_nodes == ("/dev/iommu", "/dev/vfio/devices/vfio3")


def test_a_kernel_without_iommufd_refuses_and_keeps_the_nic(labs: Labs) -> None:
    lab = labs(vfio_nodes="iommufd", bus={"has_iommufd": False})
    claim = lab.node.claim(VFIO)
    with pytest.raises(testing.RefusedError, match="set vfio_nodes to group"):
        lab.node.prepare(claim)
    lab.node.unprepare(claim)
    assert lab.is_as_made()


def test_a_virtual_function_is_set_by_its_parent_and_restored(lab: Lab) -> None:
    chosen = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "mac": "02:ee:00:00:00:01", "vlan": 7}
    claim = lab.node.claim(FUNCTION_VFIO, parameters=chosen, source=claims.ConfigSource.CLASS, consumed={"bandwidth": "10G"})
    container = lab.node.prepare(claim)
    held = lab.machine.function(PLACE)
    assert held is not None
    assert (held.mac, held.vlan, held.max_rate) == ("02:ee:00:00:00:01", 7, 10**10)
    facts = {name.rpartition("_")[2]: value for name, value in container.env.items()}
    assert facts == {"DEVICE": FUNCTION_VFIO, "PCI": FUNCTION_ADDRESS, "BANDWIDTH": str(10**10), "MAC": "02:ee:00:00:00:01"}
    lab.node.unprepare(claim)
    assert lab.machine.function(PLACE) == AS_MADE
    assert lab.is_as_made()


def test_a_function_of_a_virtual_machine_keeps_its_parent_s_number(labs: Labs) -> None:
    lab = labs(sriov=(options.SriovRule(match="eth1", vfs=2),))
    claim = lab.node.claim(FUNCTION_VFIO, consumed={"bandwidth": "10G"})
    lab.node.prepare(claim)
    (function,) = lab.machine.functions_of("0000:0c:00.0")
    assert function == sriov.BusFunction(bus_id=FUNCTION_ADDRESS, driver="vfio-pci")
    (finding,) = lab.make(lab.node._intents).diagnose()
    assert finding.message == f"nic.sriov[0].vfs: eth1 has 1 virtual function, not 2, and {FUNCTION_ADDRESS} has a claim"
    lab.node.unprepare(claim)
    (finding,) = lab.make(lab.node._intents).diagnose()
    assert finding.message.endswith(f"has 1 virtual function, not 2, and {FUNCTION_ADDRESS} (eth1v0) is up")
    with pytest.raises(errors.HardwareError, match=r"the mock machine .* has the virtual functions of its file; remove nic\.sriov"):
        lab.machine.set_function_count("0000:0c:00.0", 2)


def test_an_event_of_the_kernel_brings_no_change_of_the_number_of_functions_forward(labs: Labs, tmp_path: pathlib.Path) -> None:
    lab = labs(sriov=(options.SriovRule(match="eth1", vfs=2),))
    author, context, counted = lab.make(lab.node._intents), testing.FakeContext(tmp_path), []
    author.start(context)

    def flap() -> None:
        counted.append(author._checks)
        if author._checks is not None:
            author._checks.wake()

    lab.machine.on_count = flap
    try:
        author.watch(context)
        context.stopping.set()
        author.watch(context)
    finally:
        author.stop()
    assert len(counted) == 1, "each try causes an event, also where it fails"


@pytest.mark.parametrize(
    "device,field,value",
    [
        (VFIO, "interfaceName", "fast0"),
        (VFIO, "addresses", ["10.1.2.3/24"]),
        (VFIO, "vlan", 7),
        (VFIO, "mac", "02:ee:00:00:00:01"),
        (FUNCTION_VFIO, "mtu", 4000),
    ],
)
def test_what_the_host_cannot_set_in_a_passed_nic_is_refused_by_name(lab: Lab, device: str, field: str, value: object) -> None:
    chosen = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", field: value}
    claim = lab.node.claim(device, parameters=chosen, source=claims.ConfigSource.CLASS)
    with pytest.raises(testing.RefusedError, match=rf"parameters.{field}: the virtual machine configures the interface itself; remove it"):
        lab.node.prepare(claim)
    assert lab.is_as_made()


@pytest.mark.parametrize(
    "bus,text",
    [
        ({"in_use": {ADDRESS: ["has 3 virtual functions"]}}, "has 3 virtual functions"),
        ({"unloaded": ["vfio-pci"]}, "needs the driver vfio-pci, which is not loaded"),
    ],
)
def test_a_nic_that_cannot_be_passed_is_not_offered_and_the_reason_is_told(labs: Labs, bus: dict[str, Any], text: str) -> None:
    lab = labs(bus=bus)
    assert VFIO not in lab.node.offered.by_name()
    driver = cast("nic_driver.NicDriver", lab.node.driver)
    assert ("eth2", text) in {(entry.name, entry.reason) for entry in driver.not_offered()}
    assert driver.withheld_devices()[VFIO] == f"eth2 {text}"


def test_a_machine_that_still_runs_keeps_the_nic_until_it_ends(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    lab.machine.bus.open_group(3)
    with pytest.raises(testing.RefusedError, match=r"a process has /dev/vfio/3 open; end the virtual machine"):
        lab.node.unprepare(claim)
    assert lab.drivers()[ADDRESS] == ("vfio-pci", "vfio-pci")
    lab.machine.bus.open_group(3, is_open=False)
    lab.node.unprepare(claim)
    assert lab.is_as_made()


def lose_journal(lab: Lab, state: restorer.NodeState) -> None:
    """Lose the journal, and restore the claims by what the cluster knows of the node."""
    lab.node._shut()
    (lab.folder / "home" / inspection.DATABASE).write_bytes(b"not a journal any more")
    lab.node._station = lab.node._open()
    assert lab.node._station.restorer.restore(lab.node.claims, state=state) == {}


def test_a_claim_keeps_its_nic_although_the_journal_is_lost(lab: Lab) -> None:
    claim, published = lab.node.claim(VFIO), lab.node.offered.by_name()
    container = lab.node.prepare(claim)
    lose_journal(lab, restorer.NodeState(published=published))
    assert lab.node.prepare(claim).device_nodes == container.device_nodes
    assert lab.drivers()[ADDRESS] == ("vfio-pci", "vfio-pci")
    lab.node.unprepare(claim)
    assert lab.is_as_made()


def test_a_nic_that_no_claim_has_is_named_and_released_by_name(lab: Lab) -> None:
    claim = lab.node.claim(VFIO)
    lab.node.prepare(claim)
    driver = cast("nic_driver.NicDriver", lab.node.driver)
    assert list(driver.unclaimed()) == []
    lab.node.claims.remove(claim)
    lab.node.lose_journal()
    driver = cast("nic_driver.NicDriver", lab.node.driver)
    (found,) = driver.unclaimed()
    assert (found.kind, found.name, found.locks, found.needs_name) == ("VFIO function", ADDRESS, (NIC,), True)
    driver.reclaim(found)
    assert lab.is_as_made()


@pytest.mark.parametrize("device", [VFIO, FUNCTION_VFIO])
@pytest.mark.parametrize("act", ["prepare", "unprepare"])
def test_a_death_at_any_step_loses_and_leaks_nothing(labs: Labs, act: str, device: str) -> None:
    lab = labs()
    claim = lab.node.claim(device)
    call = getattr(lab.node, act)
    for at in range(100):
        if act == "unprepare":
            lab.node.prepare(claim)
        lab.step.passed, lab.step.at = 0, at
        try:
            call(claim)
        except testing.Crash:
            lab.step.at = -1
            lab.node.restart()
            lab.node.prepare(claim)
            assert lab.drivers()[str(lab.node.offered.by_name()[device].attributes["dra.net/pciAddress"])] == ("vfio-pci", "vfio-pci")
            lab.node.unprepare(claim)
            assert lab.is_as_made()
            assert lab.machine.function(PLACE) == AS_MADE
            assert lab.node.is_clean
        else:
            assert at >= 3
            return


def test_findings_name_what_is_missing_only_where_it_is_needed(tmp_path: pathlib.Path) -> None:
    bus = mock.MockBus(tmp_path, [vfio.Function(address=ADDRESS, code=0x020000)], unloaded=["vfio-pci"])
    told = [(finding.subject, finding.message) for finding in checks.of_vfio(bus, is_on=True)]
    assert ("IOMMU", "is off, and nic.vfio needs it") in told
    assert ("vfio-pci", "is not loaded, and nic.vfio needs it") in told
    off = list(checks.of_vfio(bus, is_on=False))
    assert {finding.verdict.name for finding in off} == {"OK"}


def test_the_devices_that_could_be_passed_are_listed(lab: Lab) -> None:
    told = {finding.subject: finding.message for finding in checks.of_vfio(lab.machine.bus, is_on=False)}
    assert told["vfio-pci"] == "is loaded; nic.vfio is off, so nothing needs it"
    assert told["devices"] == f"that could be passed to a virtual machine: 0000:0c:00.0, {FUNCTION_ADDRESS}, {ADDRESS}"
