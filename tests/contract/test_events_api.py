"""Events at the local cluster's API server, with the driver's own rights."""

import datetime
import pathlib
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import context, errors, names
from drakit.kube import client, events
from drakit_cluster.access import roles
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object
from unit.cluster import samples

NOON = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)
HOT = context.Event(reason="Throttled", message="the device is hot")


@pytest.fixture
def server() -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        for resource, made in roles.driver_objects("drakit-system", "drakit"):
            running.registry.create(resource, made)
        running.registry.create(resources.CLAIM, samples.claim())
        yield running


@pytest.fixture
def connect(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> events.ApiEvents:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(server.ca_pem)
    token = server.issue_token("system:serviceaccount:drakit-system:drakit")
    api = client.connect_to(server.url, token=token, ca_file=authority)
    return events.ApiEvents(api, component="gpu.drakit.dev", host="n1")


def stored(server: apiserver.ApiServer) -> Object:
    return server.registry.get(resources.CLAIM, "c1", "default")


def ref_of(server: apiserver.ApiServer) -> claims.ClaimRef:
    return claims.ClaimRef(uid=names.ClaimUid(json_types.text(stored(server), "metadata", "uid")), namespace="default", name="c1")


def reserve(server: apiserver.ApiServer, *pods: str, group: str = "") -> None:
    wanted = samples.allocated(stored(server), samples.result())
    reserved: list[json_types.Json] = [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"} for pod in pods]
    if group:
        reserved.append({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": f"uid-of-{group}"})
    json_types.mapping(wanted, "status")["reservedFor"] = reserved
    server.registry.update(resources.CLAIM, wanted, subresource="status")


def stored_events(server: apiserver.ApiServer) -> list[tuple[str, str, str, int]]:
    found = server.registry.list(resources.EVENT).items
    return sorted(
        (
            json_types.text(one, "involvedObject", "kind"),
            json_types.text(one, "involvedObject", "name"),
            json_types.text(one, "message"),
            json_types.number(one, "count") or 0,
        )
        for one in found
    )


def test_every_pod_that_has_the_claim_reserved_gets_the_event(server: apiserver.ApiServer, connect: events.ApiEvents) -> None:
    reserve(server, "one", "two")
    connect.record(ref_of(server), HOT, 1, NOON)
    assert stored_events(server) == [("Pod", "one", HOT.message, 1), ("Pod", "two", HOT.message, 1)]


@pytest.mark.parametrize("pods", [(), ("guest",)])
def test_a_claim_of_a_group_gets_the_event_for_the_groups_pods(
    server: apiserver.ApiServer, connect: events.ApiEvents, pods: tuple[str, ...]
) -> None:
    reserve(server, *pods, group="g")
    connect.record(ref_of(server), HOT, 1, NOON)
    assert stored_events(server) == [*(("Pod", pod, HOT.message, 1) for pod in pods), ("ResourceClaim", "c1", HOT.message, 1)]


def test_a_claim_without_reservations_gets_the_event_itself(server: apiserver.ApiServer, connect: events.ApiEvents) -> None:
    connect.record(ref_of(server), HOT, 1, NOON)
    assert stored_events(server) == [("ResourceClaim", "c1", HOT.message, 1)]


def test_a_repeated_event_counts_up_and_an_expired_one_is_recorded_again(server: apiserver.ApiServer, connect: events.ApiEvents) -> None:
    connect.record(ref_of(server), HOT, 1, NOON)
    connect.record(ref_of(server), HOT, 4, NOON)
    assert stored_events(server) == [("ResourceClaim", "c1", HOT.message, 5)]
    (one,) = server.registry.list(resources.EVENT).items
    server.registry.delete(resources.EVENT, json_types.text(one, "metadata", "name"), namespace="default")
    connect.record(ref_of(server), HOT, 2, NOON)
    assert [count for *_, count in stored_events(server)] == [2]


def test_a_lost_response_creates_no_second_event(server: apiserver.ApiServer, connect: events.ApiEvents) -> None:
    connect.record(ref_of(server), HOT, 1, NOON)
    connect._counts.clear()
    connect.record(ref_of(server), HOT, 1, NOON)
    assert stored_events(server) == [("ResourceClaim", "c1", HOT.message, 1)]


def test_a_claim_that_was_replaced_or_is_gone_gets_no_event(server: apiserver.ApiServer, connect: events.ApiEvents) -> None:
    ref = ref_of(server)
    server.registry.delete(resources.CLAIM, "c1", namespace="default")
    with pytest.raises(errors.ClaimError) as raised:
        connect.record(ref, HOT, 1, NOON)
    assert raised.value.fault is errors.ClaimFault.NOT_FOUND
    server.registry.create(resources.CLAIM, samples.claim())
    with pytest.raises(errors.ClaimError) as raised:
        connect.record(ref, HOT, 1, NOON)
    assert raised.value.fault is errors.ClaimFault.REPLACED
    assert stored_events(server) == []


def test_a_long_message_is_cut_between_characters_and_marked(server: apiserver.ApiServer, connect: events.ApiEvents) -> None:
    connect.record(ref_of(server), context.Event(reason="Long", message="ä" * 2000), 1, NOON)
    ((_, _, message, _),) = stored_events(server)
    assert len(message.encode()) <= 1024
    assert " characters cut]" in message
    assert message.startswith("ää")
    assert message.endswith("ää")
