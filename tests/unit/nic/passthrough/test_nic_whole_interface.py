"""The exclusive form: a whole interface offered, given, moved, brought back; and virtual functions. On a mock machine."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver, edits, errors, names, quantity, records
from drakit_nic import config, interface_identity, mock_port, options, pod_interfaces, port
from drakit_nic import driver as nic_driver
from drakit_nic.addresses import ip_pools
from drakit_nic.discovery import attributes, offers
from drakit_nic.passthrough import host_routes, rdma_devices, sriov, whole_interface

NIC = "pci-0000-0c-00-0"
WHOLE = f"{NIC}-whole"
CLAIM = claims.ClaimRef(uid=names.ClaimUid("0a6b1c1e-0000-4000-8000-000000000001"), namespace="default", name="net")
OTHER = dataclasses.replace(CLAIM, uid=names.ClaimUid("0a6b1c1e-0000-4000-8000-000000000002"))
FUNCTION = port.Interface(
    ifindex=40,
    name="eth1v0",
    mac="02:d9:a1:00:10:00",
    mtu=1500,
    driver="mlx5_core",
    speed=10**11,
    pci=port.PciFunction(bus_id="0000:0c:00.2", physical_function="0000:0c:00.0", function_number=3, rdma_device="mlx5_9"),
)
RDMA = rdma_devices.RdmaDevice(name="mlx5_1", index=4, nodes=("uverbs1", "umad3", "rdma_cm"), exclusive=True)
BYTES = quantity.Quantity.of
Grant = driver.Grant[config.NicConfig]


class Machine(mock_port.MockPort):
    """A mock machine with a virtual function of eth1; the interfaces ``away`` are in pods and not seen on the host."""

    def __init__(self, choice: machines.Choice) -> None:
        super().__init__(choice)
        self._interfaces = (*self._interfaces, FUNCTION)
        self.away: set[str] = set()
        self.pulled = False

    def interfaces(self, own_namespaces: Callable[[], Collection[int]] = tuple) -> tuple[port.Interface, ...]:
        return tuple(interface for interface in super().interfaces(own_namespaces) if interface.name not in self.away)

    def is_plugged(self, interface: port.Interface) -> bool:
        return not self.pulled and super().is_plugged(interface)

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        return None if name in self.away else super().host_state(name)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))


class Node:
    """A driver with a journal of intents, as the engine keeps it."""

    def __init__(self, machine: Machine, **changes: object) -> None:
        base = options.NicOptions(whole=("eth1*",), rules=(options.NicRule(match="eth1v*", speed=BYTES("50G")),))
        self.machine = machine
        self.options = dataclasses.replace(base, **changes)  # type: ignore[arg-type]
        self.intents: list[records.Record] = []
        self.driver = nic_driver.NicDriver(machine, node="node-1", options=self.options, intents=lambda: tuple(self.intents))

    def grant(
        self, device: str = WHOLE, chosen: config.NicConfig | None = None, claim: claims.ClaimRef = CLAIM, **changes: object
    ) -> Grant:
        offered = self.driver.discover().by_name()[device]
        base = Grant(claim=claim, request="uplink", pool="node-1", device=offered, config=chosen or config.NicConfig())
        return dataclasses.replace(base, **changes)  # type: ignore[arg-type]

    def planned(self, grant: Grant) -> Grant:
        intent = records.freeze_record(self.driver.plan(grant))
        self.intents.append(intent)
        return dataclasses.replace(grant, intent=intent)


@pytest.fixture
def node(machine: Machine) -> Node:
    return Node(machine)


def test_both_forms_draw_the_one_use_of_the_interface(tmp_path: pathlib.Path) -> None:
    machine = mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))
    offered = nic_driver.NicDriver(machine, node="node-1", options=options.NicOptions(whole=("eth1*",))).discover()
    draw = (devices.CounterConsumption(counter_set=NIC, counters={"uses": quantity.ONE}),)
    names_in_order = [device.name for device in offered.devices]
    assert names_in_order.index(NIC) + 1 == names_in_order.index(WHOLE), "the scheduler takes the first that fits: the shared form"
    for name in (NIC, WHOLE):
        assert offered.by_name()[name].consumes == draw
        assert offered.by_name()[name].lock_names == (NIC,)
    assert devices.CounterSet(name=NIC, counters={"uses": quantity.ONE}) in offered.counter_sets
    assert offered.by_name()[WHOLE].attributes[attributes.FORM] == "whole"
    assert offered.by_name()["pci-0000-4b-00-0"].consumes == (), "eth2 is not to be given whole"


def test_bonds_are_shared_only() -> None:
    bond = port.Interface(ifindex=5, name="bond0", mac="02:00:00:00:00:05", mtu=1500, kind="bond", speed=10**10)
    slaves = tuple(port.Interface(ifindex=n, name=f"p{n}", mac=f"02:00:00:00:00:1{n}", mtu=1500, speed=10**10, master=5) for n in (1, 2))
    survey = offers.survey((bond, *slaves), options.NicOptions(whole=("*",)))
    assert [(nic.name, nic.whole) for nic in survey.nics] == [("bond0", False)]
    assert {withheld.reason for withheld in survey.withheld} == {"is enslaved to bond0"}


def test_the_interface_is_marked_reported_and_brought_back(node: Node) -> None:
    asked = node.planned(node.grant(chosen=config.NicConfig(interface_name="fast0", mtu=4000)))
    prepared = node.driver.prepare(asked)
    assert node.driver.prepare(dataclasses.replace(asked, record=prepared.record)) == prepared
    assert {key.rpartition("_")[2]: value for key, value in prepared.edits.env.items()} == {
        "DEVICE": WHOLE,
        "NIC": "eth1",
        "INTERFACE": "fast0",
        "MAC": "02:d9:a1:00:00:01",
    }
    marked = node.machine.host_state("eth1")
    assert marked is not None
    assert marked.alias == pod_interfaces.mark_of(f"{CLAIM.uid}-{WHOLE}")
    node.machine.away.add("eth1")
    assert node.driver.prepare(dataclasses.replace(asked, record=prepared.record)) == prepared, "also while it is in the pod"
    node.machine.away.clear()
    for _ in range(2):
        node.driver.unprepare(asked)
    place = interface_identity.Identity(place="mock 02:d9:a1:00:00:01")
    assert node.machine.host_state("eth1") == pod_interfaces.HostState(
        name="eth1", mac="02:d9:a1:00:00:01", mtu=9000, up=True, identity=place
    )


def test_an_interface_that_is_away_is_still_offered_as_it_was(node: Node) -> None:
    before = node.driver.discover()
    asked = node.planned(node.grant())
    node.driver.prepare(asked)
    node.machine.away.add("eth1")
    assert "eth1" not in {interface.name for interface in node.machine.interfaces()}
    assert node.driver.discover() == before
    node.machine.away.clear()
    node.driver.unprepare(asked)
    node.intents.clear()
    assert node.driver.discover() == before


def test_an_interface_with_more_routes_than_fit_the_journal_is_refused_unchanged(node: Node) -> None:
    here = node.machine.host_state("eth1")
    assert here is not None
    hop = host_routes.Hop(interface="eth1", gateway="10.7.0.2")
    listed = tuple(host_routes.HostRoute(destination=f"10.90.0.{number}/32", hops=(hop,)) for number in range(host_routes.MOST))
    crowded = dataclasses.replace(here, routes=listed, routes_left_out=44)
    node.machine.mark(crowded, "")
    with pytest.raises(
        errors.HardwareError,
        match=r"^plan: the host has 300 routes by eth1, of which at most 256 can be restored; remove some, or take it out of nic\.whole$",
    ):
        node.driver.plan(node.grant())
    assert node.machine.host_state("eth1") == crowded
    node.machine.mark(dataclasses.replace(crowded, routes_left_out=0), "")
    assert len(json.dumps(records.thaw(node.planned(node.grant()).intent))) < 100_000


def test_another_claim_s_interface_is_refused(node: Node) -> None:
    node.driver.prepare(node.planned(node.grant()))
    with pytest.raises(errors.DeviceBusyError, match=rf"^{WHOLE} still has the mark of another claim: drakit whole {CLAIM.uid}-{WHOLE}$"):
        node.driver.plan(node.grant(claim=OTHER))


def test_a_claimed_interface_whose_hardware_was_pulled_is_no_longer_offered(node: Node) -> None:
    asked = node.planned(node.grant())
    node.machine.away.add("eth1")
    assert WHOLE in node.driver.discover().by_name(), "it is in a pod"
    node.machine.pulled = True
    assert WHOLE not in node.driver.discover().by_name()
    with pytest.raises(errors.DeviceGoneError, match=rf"^{WHOLE}: the interface eth1 is no longer there; plug the NIC in"):
        node.driver.prepare(asked)


def test_unprepare_without_memory_takes_the_mark_away(node: Node) -> None:
    node.driver.prepare(node.planned(node.grant()))
    node.driver.unprepare(node.grant())
    former = node.machine.host_state("eth1")
    assert former is not None
    assert former.alias == ""


def test_a_runtime_that_moves_interfaces_gets_their_names(machine: Machine) -> None:
    node = Node(machine, net_devices=True)
    chosen = config.NicConfig(interface_name="fast0", addresses=("10.1.2.3/24",), mtu=4000)
    prepared = node.driver.prepare(node.planned(node.grant(chosen=chosen)))
    assert prepared.edits.net_devices == (edits.NetDevice(host_interface_name="eth1", name="fast0"),)
    ready = machine.host_state("eth1")
    assert ready is not None
    assert (ready.addresses, ready.mtu) == (("10.1.2.3/24",), 4000), "the runtime keeps what the interface has"


@pytest.mark.parametrize("field", ["forwarding", "addressPools"])
def test_what_such_a_runtime_cannot_give_is_refused_by_name(machine: Machine, field: str) -> None:
    node = Node(machine, net_devices=True)
    pool = ip_pools.AddressPool(subnet="10.9.0.0/16", first="10.9.1.1", last="10.9.1.9")
    chosen = config.NicConfig(forwarding=True) if field == "forwarding" else config.NicConfig(address_pools=(pool,))
    with pytest.raises(errors.ConfigError) as refused:
        node.driver.plan(node.grant(chosen=chosen))
    assert refused.value.field == field


def test_dhcp_is_refused_for_a_whole_interface_with_what_to_do_instead(node: Node) -> None:
    with pytest.raises(
        errors.ConfigError, match="eth1 moves into the pod, where the driver cannot renew a lease; run a DHCP client"
    ) as refused:
        node.driver.plan(node.grant(chosen=config.NicConfig(dhcp=True)))
    assert refused.value.field == "dhcp"


FUNCTION_WHOLE = "pci-0000-0c-00-2-whole"
PLACE = sriov.Function(parent="eth1", number=3)


def function_grant(node: Node, **chosen: object) -> Grant:
    share = names.ShareId("a671734a-e8e5-11e4-8fde-42010af09327")
    wanted = config.NicConfig(**chosen)  # type: ignore[arg-type]
    return node.grant(FUNCTION_WHOLE, wanted, share_id=share, consumed_capacity={"bandwidth": BYTES("10G")})


def test_of_a_virtual_function_a_rate_may_be_asked_by_one_claim(node: Node) -> None:
    offered = node.driver.discover().by_name()[FUNCTION_WHOLE]
    assert offered.allow_multiple_allocations
    assert offered.capacity["shares"].value == quantity.ONE
    assert offered.capacity["bandwidth"].value == BYTES("50G")
    assert offered.attributes["dra.net/isSriovVf"] is True


def test_a_virtual_function_is_held_to_the_claim_and_restored(node: Node) -> None:
    asked = node.planned(function_grant(node, mac="02:ee:00:00:00:01", vlan=7, ceil=BYTES("20G")))
    for _ in range(2):
        node.driver.prepare(asked)
        held = sriov.Settings(mac="02:ee:00:00:00:01", vlan=7, min_rate=10**10, max_rate=2 * 10**10)
        assert node.machine.function(PLACE) == held
    later = Machine(machines.Choice(name="dgx-a100-40gb", directory=node.machine._directory))
    assert later.function(PLACE) == held, "it is hardware, and outlives the driver"
    for _ in range(2):
        node.driver.unprepare(asked)
        assert node.machine.function(PLACE) == sriov.Settings(mac="02:d9:a1:00:10:00")


def drawn(device: devices.Device, counter_set: str) -> dict[str, quantity.Quantity]:
    return {name: amount for part in device.consumes if part.counter_set == counter_set for name, amount in part.counters.items()}


def test_functions_and_the_parent_s_own_shares_draw_on_one_link(machine: Machine) -> None:
    half = options.NicRule(match="eth1", speed=BYTES("50G"), reserve=BYTES("10G"))
    offered = Node(machine, rules=(half, options.NicRule(match="eth1v*", speed=BYTES("30G")))).driver.discover()
    link = {counter_set.name: counter_set.counters for counter_set in offered.counter_sets}[NIC]
    assert link == {"uses": quantity.ONE, "bandwidth": BYTES("90G")}, "the reported 100G without the reserve of the host"
    by_name = offered.by_name()
    assert drawn(by_name[NIC], NIC) == {"uses": quantity.ONE, "bandwidth": BYTES("40G")}
    assert drawn(by_name[WHOLE], NIC)["bandwidth"] == BYTES("90G"), "nothing limits the parent in a pod"
    assert drawn(by_name[FUNCTION_WHOLE], NIC) == drawn(by_name["pci-0000-0c-00-2"], NIC) == {"bandwidth": BYTES("30G")}
    assert drawn(by_name[FUNCTION_WHOLE], "pci-0000-0c-00-2") == {"uses": quantity.ONE}
    assert "bandwidth" not in drawn(by_name["pci-0000-4b-00-0"], "pci-0000-4b-00-0"), "eth2 has no virtual functions"


def test_a_parent_that_the_host_uses_still_has_one_account(machine: Machine) -> None:
    excluded = Node(machine, exclude=("eth1",)).driver.discover()
    assert NIC not in excluded.by_name()
    assert [(each.name, each.counters) for each in excluded.counter_sets if "bandwidth" in each.counters] == [
        (NIC, {"bandwidth": BYTES("100G")})
    ]
    assert drawn(excluded.by_name()[FUNCTION_WHOLE], NIC) == {"bandwidth": BYTES("50G")}


def test_without_offered_functions_a_link_needs_no_account(machine: Machine) -> None:
    alone = Node(machine, exclude=("eth1v*",)).driver.discover()
    assert not any("bandwidth" in counter_set.counters for counter_set in alone.counter_sets)


class WithoutMinimum(Machine):
    """A machine whose physical function takes no minimum rate, as igb, and no link state. Its virtual function can be gone."""

    is_gone = has_no_link = False

    def function(self, of: sriov.Function) -> sriov.Settings | None:
        return None if self.is_gone else super().function(of)

    def set_function(self, of: sriov.Function, wanted: sriov.Settings) -> None:
        if wanted.link_state or self.has_no_link:
            raise errors.HardwareError("set_function", "Invalid argument")
        super().set_function(of, dataclasses.replace(wanted, min_rate=0))


def test_a_driver_without_minimum_rates_gets_a_maximum_only_and_the_slice_says_so(node: Node, tmp_path: pathlib.Path) -> None:
    assert node.driver.discover().by_name()[FUNCTION_WHOLE].attributes["minRate"] is False, "no claim has shown it"
    node.driver.prepare(node.planned(function_grant(node)))
    assert node.driver.discover().by_name()[FUNCTION_WHOLE].attributes["minRate"] is True
    without = Node(WithoutMinimum(machines.Choice(name="dgx-a100-40gb", directory=tmp_path / "without")))
    prepared = without.driver.prepare(without.planned(function_grant(without, spoof_check=False, trust=True)))
    held = sriov.Settings(mac=FUNCTION.mac, max_rate=10**10, spoof_check=False, trust=True)
    assert without.machine.function(PLACE) == held
    assert without.driver.discover().by_name()[FUNCTION_WHOLE].attributes["minRate"] is False
    assert {value for key, value in prepared.edits.env.items() if key.endswith("_BANDWIDTH")} == {str(10**10)}


def test_a_function_that_is_gone_does_not_keep_its_claim(tmp_path: pathlib.Path) -> None:
    machine = WithoutMinimum(machines.Choice(name="dgx-a100-40gb", directory=tmp_path / "gone"))
    node = Node(machine)
    asked = node.planned(function_grant(node))
    node.driver.prepare(asked)
    machine.is_gone = True
    node.driver.unprepare(asked)


def test_a_function_that_cannot_be_restored_yet_is_kept_from_other_claims(tmp_path: pathlib.Path) -> None:
    machine = WithoutMinimum(machines.Choice(name="dgx-a100-40gb", directory=tmp_path / "down"))
    node = Node(machine)
    asked = node.planned(function_grant(node))
    node.driver.prepare(asked)
    machine.has_no_link = True
    for _ in range(2):
        with pytest.raises(errors.ReleaseDeferredError, match="eth1v0 is on the host without its former settings: set_function: Invalid"):
            node.driver.unprepare(asked)
    other = dataclasses.replace(function_grant(node), claim=OTHER, share_id=names.ShareId("b671734a-e8e5-11e4-8fde-42010af09327"))
    with pytest.raises(errors.DeviceBusyError, match="still has the mark of another claim"):
        node.driver.plan(other)
    machine.has_no_link = False
    node.driver.unprepare(asked)
    assert machine.function(PLACE) == sriov.Settings(mac=FUNCTION.mac)
    assert node.driver.plan(other)


def test_an_address_is_taken_back_before_the_interface_gets_its_own(node: Node) -> None:
    asked = node.planned(function_grant(node, mac="02:ee:00:00:00:01"))
    node.driver.prepare(asked)
    seen: list[str] = []

    class Watched(Machine):
        def set_function(self, of: sriov.Function, wanted: sriov.Settings) -> None:
            seen.append(wanted.mac)
            super().set_function(of, wanted)

    later = Node(Watched(machines.Choice(name="dgx-a100-40gb", directory=node.machine._directory)))
    later.driver.unprepare(asked)
    assert seen == [sriov.NULL_MAC, FUNCTION.mac]


@pytest.mark.parametrize("field", ["vlan", "spoof_check", "trust", "link_state"])
def test_settings_of_functions_are_refused_for_other_interfaces(node: Node, field: str) -> None:
    values: dict[str, object] = {"vlan": 7, "spoof_check": False, "trust": True, "link_state": config.LinkState.AUTO}
    with pytest.raises(errors.ConfigError, match="eth1 is not a virtual function of a NIC of this host") as refused:
        node.driver.plan(node.grant(chosen=config.NicConfig(**{field: values[field]})))  # type: ignore[arg-type]
    assert refused.value.field == wire_name(field)


def wire_name(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(map(str.capitalize, others))


def test_what_is_planned_is_found_again_from_the_journal(node: Node) -> None:
    asked = node.planned(function_grant(node))
    planned = whole_interface.intent_of(asked.intent)
    assert planned is not None
    assert planned.to_record() == records.thaw(asked.intent) or records.freeze_record(planned.to_record()) == asked.intent
    assert planned.interface == FUNCTION
    assert whole_interface.intent_of({}) is None


def test_an_interface_that_is_down_is_remembered_as_down() -> None:
    down = port.Interface(ifindex=7, name="eth7", mtu=1500, carrier=False, state="down", up=False)
    host_state = pod_interfaces.HostState(name="eth7", mac="", mtu=1500, up=False)
    planned = whole_interface.Intent(mark="m", interface=down, host_state=host_state)
    assert whole_interface.intent_of(records.freeze_record(planned.to_record())) == planned


class RdmaMachine(Machine):
    """A mock machine whose eth1 has an RDMA device."""

    rdma = RDMA

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        state = super().host_state(name)
        return state if state is None or name != "eth1" else dataclasses.replace(state, rdma=self.rdma)


@pytest.fixture
def rdma_machine(tmp_path: pathlib.Path) -> RdmaMachine:
    return RdmaMachine(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))


def test_a_whole_interface_brings_the_nodes_that_its_plan_recorded(rdma_machine: RdmaMachine) -> None:
    node = Node(rdma_machine)
    granted = node.planned(node.grant())
    recorded = whole_interface.intent_of(granted.intent)
    assert recorded is not None
    assert recorded.host_state.rdma == RDMA
    prepared = node.driver.prepare(granted)
    nodes = tuple(edits.DeviceNode(path=f"/dev/infiniband/{name}", permissions="rw") for name in RDMA.nodes)
    assert prepared.edits.device_nodes == nodes
    (name,) = (value for key, value in prepared.edits.env.items() if key.endswith("_RDMA_DEVICE"))
    assert name == "mlx5_1"
    node.machine.away.add("eth1")
    assert node.driver.prepare(dataclasses.replace(granted, record=prepared.record)) == prepared, "also while it is in the pod"


def test_a_share_of_the_interface_brings_no_device(rdma_machine: RdmaMachine) -> None:
    node = Node(rdma_machine)
    share = node.grant(NIC, consumed_capacity={attributes.BANDWIDTH: BYTES("1G")}, share_id="b7c2")
    assert node.driver.prepare(node.planned(share)).edits.device_nodes == ()


def test_a_runtime_that_moves_interfaces_cannot_have_exclusive_rdma(rdma_machine: RdmaMachine) -> None:
    node = Node(rdma_machine, net_devices=True)
    with pytest.raises(errors.HardwareError, match=r"mlx5_1.*rdma system set netns shared"):
        node.planned(node.grant())


def test_an_interface_with_a_software_rdma_device_stays_on_the_host(rdma_machine: RdmaMachine) -> None:
    rdma_machine.rdma = rdma_devices.RdmaDevice(name="rxe0", index=1, nodes=("uverbs0", "rdma_cm"), software=True)
    node = Node(rdma_machine)
    with pytest.raises(errors.HardwareError, match=r"rxe0.* on eth1.*rdma link delete rxe0"):
        node.planned(node.grant())


def test_a_function_is_restored_by_a_parent_that_was_renamed(tmp_path: pathlib.Path) -> None:
    machine = Renamed(machines.Choice(name="dgx-a100-40gb", directory=tmp_path / "renamed"))
    node = Node(machine)
    asked = node.planned(function_grant(node))
    node.driver.prepare(asked)
    machine.parent = ""
    with pytest.raises(errors.ReleaseDeferredError, match=r"its physical function 0000:0c:00\.0 has no interface on this host; return it"):
        node.driver.unprepare(asked)
    machine.parent = "uplink"
    node.driver.unprepare(asked)
    assert machine.function(PLACE) == sriov.Settings(mac=FUNCTION.mac)


class Renamed(Machine):
    """A machine whose physical function has another name, or is in another namespace where that is empty."""

    parent = "eth1"

    def interfaces(self, own_namespaces: object = tuple) -> tuple[port.Interface, ...]:
        listed = super().interfaces()
        return tuple(
            dataclasses.replace(each, name=self.parent) if each.name == "eth1" else each
            for each in listed
            if self.parent or each.name != "eth1"
        )

    def function(self, of: sriov.Function) -> sriov.Settings | None:
        return super().function(dataclasses.replace(of, parent="eth1"))

    def set_function(self, of: sriov.Function, wanted: sriov.Settings) -> None:
        assert of.parent == self.parent
        super().set_function(dataclasses.replace(of, parent="eth1"), wanted)


class Switchdev(Machine):
    """A machine whose physical function is a switch: a representor of each function has its PCI address too."""

    def interfaces(self, own_namespaces: object = tuple) -> tuple[port.Interface, ...]:
        listed = super().interfaces()
        (parent,) = (each for each in listed if each.name == "eth1")
        return (*listed, dataclasses.replace(parent, ifindex=900, name="eth1_0", speed=10**9))


def test_a_representor_is_not_taken_for_the_physical_function(tmp_path: pathlib.Path) -> None:
    node = Node(Switchdev(machines.Choice(name="dgx-a100-40gb", directory=tmp_path / "switchdev")))
    node.driver.prepare(node.planned(function_grant(node)))
    assert node.machine.function(PLACE) != sriov.Settings(mac=FUNCTION.mac)
    link = {counter_set.name: counter_set.counters for counter_set in node.driver.discover().counter_sets}[NIC]
    assert link["bandwidth"] == BYTES("100G")


def test_a_function_that_does_not_fit_the_link_draws_all_of_its_speed(machine: Machine) -> None:
    reserve = options.NicRule(match="eth1", reserve=BYTES("80G"))
    offered = Node(machine, rules=(reserve, options.NicRule(match="eth1v*", speed=BYTES("30G")))).driver.discover()
    assert drawn(offered.by_name()[FUNCTION_WHOLE], NIC) == {"bandwidth": BYTES("30G")}, "more than the 20G that are left"
