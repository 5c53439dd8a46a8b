"""What a driver says on its context, as users of a whole cluster see it: taints in slices, conditions and values in claims, events on pods."""

from collections.abc import Iterator

import pytest

from drakit import testing
from drakit.core import claim_status, device, errors
from drakit.core import context as contexts
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, EVENT, SLICE
from fakes import author, waits

DRIVER = author.FakeDriver.name


class Chatty(author.FakeDriver):
    """A driver that keeps its context."""

    context: contexts.DriverContext

    def start(self, context: contexts.DriverContext) -> None:
        self.context = context


@pytest.fixture
def cluster() -> Iterator[testing.Cluster]:
    with testing.Cluster(lambda: Chatty(author.Hardware())) as running:
        running.apply(testing.device_class("fake", driver=DRIVER))
        yield running


def chatty(cluster: testing.Cluster) -> Chatty:
    found = cluster.drivers["node-1"]
    assert isinstance(found, Chatty)
    return found


def conditions(cluster: testing.Cluster) -> dict[str, tuple[str, str]]:
    claim = cluster.local.api.get(CLAIM, "one", namespace="default")
    found = [one for each in json_types.objects(claim, "status", "devices") for one in json_types.objects(each, "conditions")]
    return {json_types.text(one, "type"): (json_types.text(one, "status"), json_types.text(one, "reason")) for one in found}


def test_a_failed_prepare_is_a_condition_until_the_claim_is_prepared(cluster: testing.Cluster) -> None:
    chatty(cluster).failure = errors.DeviceGoneError("it fell off")
    cluster.apply(testing.claim("one", device_class="fake"), testing.pod("p", claims=["one"]))
    assert waits.eventually(lambda: conditions(cluster) == {"Ready": ("False", "DeviceGone")})
    chatty(cluster).failure = None
    cluster.wait_running("p")
    assert waits.eventually(lambda: conditions(cluster) == {"Ready": ("True", "Prepared")})


def test_status_event_and_taint_reach_their_claim_pod_and_device(cluster: testing.Cluster) -> None:
    cluster.apply(testing.claim("one", device_class="fake"), testing.pod("p", claims=["one"]))
    cluster.wait_running("p")
    context = chatty(cluster).context
    (grant,) = context.grants()
    link = claim_status.Condition(type="example.com/LinkUp", status=True, reason="Carrier")
    context.set_status(grant.claim, claim_status.DeviceStatus(device=grant.device.name, conditions=(link,), values={"temperature": 40}))
    context.record_event(grant.claim, contexts.Event(reason="Throttled", message="the device is hot"))
    context.taint(grant.device.name, device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_SCHEDULE))
    assert waits.eventually(lambda: conditions(cluster) == {link.type: ("True", "Carrier")})
    result = [one for one in cluster.local.api.list(EVENT).items if one.get("reason") == "Throttled"]
    assert result or waits.eventually(lambda: [one for one in cluster.local.api.list(EVENT).items if one.get("reason") == "Throttled"])
    (event,) = [one for one in cluster.local.api.list(EVENT).items if one.get("reason") == "Throttled"]
    assert (json_types.text(event, "involvedObject", "kind"), json_types.text(event, "involvedObject", "name")) == ("Pod", "p")
    assert waits.eventually(lambda: "example.com/hot" in str(cluster.local.api.list(SLICE).items))
