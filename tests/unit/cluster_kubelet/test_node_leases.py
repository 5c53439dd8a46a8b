"""A kubelet shows that it runs by renewing a lease."""

import time

from drakit_cluster.api.registry import Registry
from drakit_cluster.kubelet.node_status import LEASE_NAMESPACE, NodeLease
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import LEASE, NODE
from fakes import waits


def test_a_lease_is_renewed_until_it_is_stopped() -> None:
    api = Registry()
    node = api.create(NODE, {"metadata": {"name": "n1"}})
    lease = NodeLease(api, "n1", renew_seconds=0.01)

    def renewed() -> str:
        return json_types.text(api.get(LEASE, "n1", LEASE_NAMESPACE), "spec", "renewTime")

    lease.start(node)
    assert json_types.text(api.get(LEASE, "n1", LEASE_NAMESPACE), "metadata", "ownerReferences", 0, "kind") == "Node"
    first = renewed()
    assert waits.eventually(lambda: renewed() != first)
    lease.stop()
    last = renewed()
    time.sleep(0.05)  # Five times the interval.
    assert renewed() == last
