"""What tells a whole interface from what a pod could make, and how it is kept."""

import dataclasses
import json

import pytest

from drakit.core import records
from drakit_nic import interface_identity

HARDWARE = interface_identity.Identity(place="0000:8a:00.0 02:00:00:00:00:01", port="p0")
VETH = interface_identity.Identity(kind="veth", other=7)
VLAN = interface_identity.Identity(kind="vlan", other=7)
DUMMY = interface_identity.Identity(kind="dummy")
PLACEMENT = interface_identity.Placement(cookie=2**63, pod="uid", identity=VLAN, ifindex=5)


@pytest.mark.parametrize(
    "wanted, seen, ifindex, same",
    [
        (HARDWARE, HARDWARE, 9, True),
        (HARDWARE, dataclasses.replace(HARDWARE, port="p1"), 9, False),
        (dataclasses.replace(HARDWARE, port=""), HARDWARE, 9, True),
        (HARDWARE, VETH, 5, False),
        (VETH, VETH, 9, True),
        (VETH, dataclasses.replace(VETH, other=8), 5, False),
        (VETH, dataclasses.replace(VETH, other_nsid=interface_identity.INSIDE_NSID), 5, False),
        (VETH, dataclasses.replace(VETH, other_nsid=3), 5, False),
        (VLAN, VLAN, 5, True),
        (VLAN, VLAN, 9, False),
        (DUMMY, DUMMY, 5, True),
        (interface_identity.Identity(), interface_identity.Identity(), 5, False),
    ],
)
def test_an_interface_in_a_pod_is_the_wanted_one_only_by_what_the_pod_cannot_write(
    wanted: interface_identity.Identity, seen: interface_identity.Identity, ifindex: int, *, same: bool
) -> None:
    assert interface_identity.is_in_pod(wanted, PLACEMENT, seen, ifindex) is same


def test_without_a_note_only_what_is_unique_is_known() -> None:
    away = dataclasses.replace(VETH, other_nsid=3)
    assert [interface_identity.is_in_pod(identity, None, identity, 5) for identity in (HARDWARE, VETH, away, VLAN, DUMMY)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_only_what_has_hardware_or_another_end_is_ever_taken_from_a_pod() -> None:
    assert [identity.is_provable for identity in (HARDWARE, VETH, VLAN, DUMMY, interface_identity.Identity())] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("of", [HARDWARE, VETH, DUMMY])
def test_a_stay_is_noted_and_read(of: interface_identity.Identity) -> None:
    placement = dataclasses.replace(PLACEMENT, identity=of, is_attached=True)
    noted = records.freeze_record(
        json.loads(json.dumps(records.thaw(records.freeze_record(interface_identity.placement_to_record(placement)))))
    )
    assert interface_identity.placement_from_record(noted) == placement


def test_an_earlier_version_s_records_say_the_sandbox_and_the_place() -> None:
    earlier = interface_identity.placement_from_record({"cookie": "1f", "pod": "uid"})
    assert earlier == interface_identity.Placement(cookie=0x1F, pod="uid", is_attached=True)
    assert earlier.is_of_earlier_version
    assert not PLACEMENT.is_of_earlier_version
    assert interface_identity.identity_from_record({"place": "0000:8a:00.0 02:00:00:00:00:01", "name": "eth0"}) == dataclasses.replace(
        HARDWARE, port=""
    )
    assert interface_identity.identity_from_record(None) == interface_identity.Identity()
