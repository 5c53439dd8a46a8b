"""Routes of the host are remembered as they were, in the journal's form, and read from records of any version."""

import dataclasses
import json
from typing import cast

import hypothesis
import pytest
from hypothesis import strategies

from drakit.core import records
from drakit_nic import interface_identity, pod_interfaces
from drakit_nic.passthrough import host_routes, rdma_devices

numbers = strategies.integers(0, 2**32 - 1)
hops = strategies.builds(
    host_routes.Hop,
    interface=strategies.text(min_size=1, max_size=15),
    gateway=strategies.sampled_from(["", "10.0.0.1", "fe80::1"]),
    weight=strategies.integers(1, 256),
    onlink=strategies.booleans(),
    more=strategies.binary(max_size=8).map(bytes.hex),
)
routes = strategies.builds(
    host_routes.HostRoute,
    destination=strategies.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "fd00::/64"]),
    hops=strategies.lists(hops, min_size=1, max_size=3).map(tuple),
    table=numbers,
    metric=numbers,
    source=strategies.sampled_from(["", "10.0.0.7"]),
    more=strategies.binary(max_size=8).map(bytes.hex),
)
PLACE = interface_identity.Identity(place="p")
FORMER = pod_interfaces.HostState(
    name="nic0",
    mac="02:00:00:00:00:20",
    mtu=1500,
    up=True,
    addresses=("10.7.0.1/24",),
    alias="a",
    identity=PLACE,
    rdma=rdma_devices.RdmaDevice(name="rocep1s0", index=3, boot_id="b", nodes=("uverbs0",), exclusive=True),
)


@hypothesis.given(strategies.lists(routes, max_size=3))
def test_what_the_journal_gives_back_is_what_was_there(found: list[host_routes.HostRoute]) -> None:
    former = dataclasses.replace(FORMER, routes=tuple(found))
    kept = records.freeze_record(json.loads(json.dumps(records.thaw(records.freeze_record(pod_interfaces.to_record(former))))))
    assert pod_interfaces.from_record(kept) == former


def test_a_record_of_a_version_that_knew_no_routes_has_none() -> None:
    record = {key: value for key, value in pod_interfaces.to_record(FORMER).items() if key != "routes"}
    assert pod_interfaces.from_record(record) == FORMER


@pytest.mark.parametrize("broken", [None, 7, "10.0.0.0/8", {}, {"destination": "10.0.0.0/8"}, {"destination": 1, "hops": []}])
def test_what_is_no_route_is_passed_over_and_the_rest_is_kept(broken: object) -> None:
    route = host_routes.HostRoute(destination="10.0.0.0/8", hops=(host_routes.Hop(interface="nic0", gateway="10.7.0.2"),))
    former = dataclasses.replace(FORMER, routes=(route,))
    record = pod_interfaces.to_record(former)
    assert pod_interfaces.from_record({**record, "routes": [broken, *cast("list[object]", record["routes"])]}) == former


def test_a_route_is_written_as_an_admin_would_write_it() -> None:
    two = (host_routes.Hop(interface="nic0", gateway="10.7.0.2"), host_routes.Hop(interface="nic1"))
    result = str(host_routes.HostRoute(destination="10.0.0.0/8", hops=two, table=100, metric=7))
    assert result == "10.0.0.0/8 via 10.7.0.2 dev nic0 dev nic1 table 100 metric 7"
