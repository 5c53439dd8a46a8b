"""The NIC driver's verbs on a mock machine."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Collection

import hypothesis
import pytest
from hypothesis import strategies

from drakit import machines
from drakit.core import claim as claims
from drakit.core import device, driver, errors, names, quantity, records
from drakit.core.slices import feature_gates
from drakit_nic import config, mock_port, options, port
from drakit_nic import driver as nic_driver
from drakit_nic import share as shares

NIC = "pci-0000-0c-00-0"
SHARE = names.ShareId("a671734a-e8e5-11e4-8fde-42010af09327")
OTHER = names.ShareId("b671734a-e8e5-11e4-8fde-42010af09327")
CLAIM = claims.ClaimRef(uid=names.ClaimUid("0a6b1c1e-0000-4000-8000-000000000001"), namespace="default", name="net")
PREFIX = "DRAKIT_NIC_UPLINK_A671734A_E8E5_11E4_8FDE_42010AF09327"
Grant = driver.Grant[config.NicConfig]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> mock_port.MockPort:
    return mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))


@pytest.fixture
def nics(machine: mock_port.MockPort) -> nic_driver.NicDriver:
    return nic_driver.NicDriver(machine, node="node-1")


def offered(nics: nic_driver.NicDriver, name: str = NIC) -> device.Device:
    return nics.discover().by_name()[name]


def grant(nics: nic_driver.NicDriver, **changes: object) -> Grant:
    base = Grant(
        claim=CLAIM,
        request="uplink",
        pool="node-1",
        device=offered(nics),
        config=config.NicConfig(),
        share_id=SHARE,
        consumed_capacity={"bandwidth": quantity.Quantity.of("1G")},
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def planned(nics: nic_driver.NicDriver, **changes: object) -> Grant:
    asked = grant(nics, **changes)
    return dataclasses.replace(asked, intent=nics.plan(asked))


def test_two_nics_are_offered_and_the_uplink_is_withheld(nics: nic_driver.NicDriver) -> None:
    assert [device.name for device in nics.discover().devices] == [NIC, "pci-0000-4b-00-0"]
    assert [(device.name, device.reason) for device in nics.survey().withheld] == [("eth0", "carries the host's default route")]


def test_a_share_is_installed_shown_to_the_container_and_remembered(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    asked = planned(nics)
    prepared = nics.prepare(asked)
    (installed,) = machine.shares()
    assert installed == port.Share(
        id=SHARE, interface="eth1", ifindex=3, mac=shares.mac_address("node-1", SHARE), bandwidth=10**9, minor=0x100
    )
    assert prepared.record == asked.intent == shares.to_record(installed)
    assert prepared.edits.env == {
        f"{PREFIX}_DEVICE": NIC,
        f"{PREFIX}_NIC": "eth1",
        f"{PREFIX}_BANDWIDTH": "1000000000",
        f"{PREFIX}_MAC": installed.mac,
    }


def test_preparing_again_gives_the_very_same(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    asked = planned(nics)
    first = nics.prepare(asked)
    assert nics.prepare(dataclasses.replace(asked, record=first.record)) == first
    assert len(machine.shares()) == 1


def test_two_shares_of_one_nic_in_one_container_do_not_overwrite_each_other(
    nics: nic_driver.NicDriver, machine: mock_port.MockPort
) -> None:
    first, second = (nics.prepare(planned(nics, share_id=share)) for share in (SHARE, OTHER))
    assert not set(first.edits.env) & set(second.edits.env)
    assert len({share.mac for share in machine.shares()}) == 2


def test_unprepare_takes_its_own_share_only_and_may_be_repeated(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    for share in (SHARE, OTHER):
        nics.prepare(planned(nics, share_id=share))
    for _ in range(2):
        nics.unprepare(grant(nics))
        assert [share.id for share in machine.shares()] == [OTHER]


def test_another_process_unprepares_from_the_grant_alone_when_the_nic_is_gone(tmp_path: pathlib.Path, machine: mock_port.MockPort) -> None:
    first = nic_driver.NicDriver(machine, node="node-1")
    asked = planned(first)
    first.prepare(asked)
    later = nic_driver.NicDriver(
        Without(mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=tmp_path)), "eth1"), node="node-1"
    )
    later.unprepare(asked)
    assert machine.shares() == ()


class Without(mock_port.MockPort):
    """The same machine, from which an interface has been pulled."""

    def __init__(self, machine: mock_port.MockPort, pulled: str) -> None:
        self.__dict__.update(machine.__dict__)
        self.pulled = pulled

    def interfaces(self, own_namespaces: Callable[[], Collection[int]] = tuple) -> tuple[port.Interface, ...]:
        return tuple(interface for interface in super().interfaces(own_namespaces) if interface.name != self.pulled)

    def interface(self, name: str) -> port.Interface | None:
        return next((interface for interface in self.interfaces() if interface.name == name), None)


def test_a_nic_that_is_gone_is_refused_before_anything_is_installed(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    asked = planned(nics)
    pulled = nic_driver.NicDriver(Without(machine, "eth1"), node="node-1")
    for verb in (pulled.plan, pulled.prepare):
        with pytest.raises(errors.DeviceGoneError, match=rf"^{NIC}: the interface eth1 is no longer there; plug the NIC in"):
            verb(asked)
    assert machine.shares() == ()


class Renamed(mock_port.MockPort):
    """The same machine, on which an interface was given another name."""

    def __init__(self, machine: mock_port.MockPort, name: str) -> None:
        self.__dict__.update(machine.__dict__)
        self._interfaces = tuple(
            dataclasses.replace(interface, name="lan") if interface.name == name else interface for interface in machine.interfaces()
        )


def test_hardware_is_found_again_after_a_rename(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    asked = planned(nics)
    renamed = nic_driver.NicDriver(Renamed(machine, "eth1"), node="node-1")
    assert renamed.prepare(asked).record["interface"] == "lan"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"share_id": None}, "shareID: a share of pci-0000-0c-00-0 needs an id"),
        ({"consumed_capacity": {}}, "consumedCapacity[bandwidth]: the share of pci-0000-0c-00-0 has no bandwidth"),
        ({"consumed_capacity": {"vram": quantity.ONE}}, "consumedCapacity[bandwidth]: the share of pci-0000-0c-00-0 has no bandwidth"),
        *(
            (
                {"consumed_capacity": {"bandwidth": quantity.Quantity.of(amount)}},
                f"consumedCapacity[bandwidth]: {amount} is not a whole rate above 0 and up to the 100G of pci-0000-0c-00-0",
            )
            for amount in ("0", "-1G", "101G", "1500m")
        ),
    ],
)
def test_a_claim_that_lies_is_refused_by_its_field(
    nics: nic_driver.NicDriver, machine: mock_port.MockPort, changes: dict[str, object], message: str
) -> None:
    for verb in (nics.plan, nics.prepare):
        with pytest.raises(errors.ClaimError) as refused:
            verb(grant(nics, **changes))
        assert (str(refused.value), refused.value.fault) == (message, errors.ClaimFault.MALFORMED)
    assert machine.shares() == ()


def test_the_capacity_may_be_named_with_the_driver_s_domain(nics: nic_driver.NicDriver) -> None:
    asked = planned(nics, consumed_capacity={"nic.drakit.dev/bandwidth": quantity.Quantity.of("39062500Ki")})
    assert nics.prepare(asked).record["bandwidth"] == 40 * 10**9


def test_where_sharing_is_switched_off_the_whole_nic_goes_to_the_claim(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    whole = feature_gates.without_sharing(nics.discover()).by_name()[NIC]
    asked = planned(nics, device=whole, share_id=None, consumed_capacity={})
    assert nics.prepare(asked).record["bandwidth"] == 100 * 10**9
    assert [share.id for share in machine.shares()] == [f"{CLAIM.uid}-{NIC}"]
    nics.unprepare(asked)
    assert machine.shares() == ()


def test_admin_access_takes_no_share(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    asked = planned(nics, admin_access=True, share_id=None, consumed_capacity={})
    assert nics.prepare(asked) == driver.Prepared()
    assert machine.shares() == ()
    nics.unprepare(asked)


def test_unprepare_of_what_could_not_be_prepared_succeeds(nics: nic_driver.NicDriver) -> None:
    nics.unprepare(grant(nics, share_id=None, consumed_capacity={}))


def test_the_name_asked_for_is_reported(nics: nic_driver.NicDriver) -> None:
    result = nics.prepare(planned(nics, config=config.NicConfig(interface_name="net1"))).edits.env
    assert result[f"{PREFIX}_INTERFACE"] == "net1"


def test_a_sub_request_makes_a_variable_name_that_a_shell_takes(nics: nic_driver.NicDriver) -> None:
    result = nics.prepare(planned(nics, request="up-link/fast")).edits.env
    assert all(re.fullmatch(r"DRAKIT_NIC_UP_LINK_FAST_[A-Z0-9_]+", name) for name in result)


def test_an_address_once_planned_is_kept(nics: nic_driver.NicDriver) -> None:
    kept: records.Record = {**nics.plan(grant(nics)), "mac": "02:aa:aa:aa:aa:aa"}
    assert nics.prepare(grant(nics, intent=kept)).record["mac"] == "02:aa:aa:aa:aa:aa"


@hypothesis.given(strategies.text(max_size=20), strategies.uuids().map(str))
def test_an_address_is_local_unicast_and_always_the_same(node: str, share: str) -> None:
    address = shares.mac_address(node, share)
    assert re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", address)
    assert int(address[:2], 16) & 0b11 == 0b10
    assert address == shares.mac_address(node, share)


def test_addresses_differ_by_node_and_by_share() -> None:
    addresses = {shares.mac_address(node, share) for node in ("a", "b", "ab") for share in ("x", "bx", SHARE)}
    assert len(addresses) == 9


class Unable(mock_port.MockPort):
    """The same machine with a kernel that holds no rates."""

    def shaping(self) -> port.Shaping:
        return port.Shaping(classifier=port.Classifier.NONE, missing="this kernel has no HTB")


def test_a_share_that_could_not_be_held_to_its_rate_is_not_prepared(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    asked = planned(nics)
    machine.__class__ = Unable
    with pytest.raises(errors.HardwareError, match=r"^prepare: this kernel has no HTB$"):
        nics.prepare(asked)
    assert machine.shares() == ()


def test_reserved_and_used_classes_are_skipped_and_a_share_keeps_its_own(machine: mock_port.MockPort) -> None:
    nics = nic_driver.NicDriver(machine, node="node-1", intents=lambda: [{"minor": 0x100}, {}, {"minor": "no number"}])
    first = planned(nics)
    assert first.intent["minor"] == 0x101
    nics.prepare(first)
    assert planned(nics, share_id=OTHER).intent["minor"] == 0x102
    assert planned(nics).intent["minor"] == 0x101, "after the journal was lost"


def test_a_record_is_read_back_as_the_share_it_was_written_of(nics: nic_driver.NicDriver, machine: mock_port.MockPort) -> None:
    record = nics.prepare(planned(nics)).record
    assert (shares.from_record(record),) == machine.shares()
    older = {key: value for key, value in record.items() if key not in {"ceil", "minor"}}
    assert shares.from_record(older) == dataclasses.replace(machine.shares()[0], minor=0)
    assert shares.from_record({}) is shares.from_record({**record, "mac": 5}) is None


@pytest.mark.parametrize(
    "bound, asked, ceil",
    [(None, "5G", 5 * 10**9), ("2G", "5G", 2 * 10**9), ("8G", "5G", 5 * 10**9), ("0", "5G", 0), ("0", None, 0)],
    ids=["no bound", "above the bound", "below the bound", "nobody borrows", "nobody asked"],
)
def test_a_share_borrows_up_to_the_class_and_admin_ceil_and_records_the_request(
    machine: mock_port.MockPort, bound: str | None, asked: str | None, ceil: int
) -> None:
    choices = options.NicOptions(ceil=None if bound is None else quantity.Quantity.of(bound))
    nics = nic_driver.NicDriver(machine, node="node-1", options=choices)
    chosen = config.NicConfig(ceil=None if asked is None else quantity.Quantity.of(asked))
    grant = planned(nics, config=chosen)
    prepared = nics.prepare(grant)
    (installed,) = machine.shares()
    assert installed.ceil == ceil
    assert prepared.record["ceil"] == (0 if chosen.ceil is None else chosen.ceil.value), "another bound makes no claim another one"


def test_nothing_of_the_family_outlives_the_kernel_so_no_share_waits_for_the_disk() -> None:
    assert nic_driver.NicDriver.volatile
