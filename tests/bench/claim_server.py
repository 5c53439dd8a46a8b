"""A local API server in a process of its own, with allocated claims in it, for benchmarks of the driver.

``python claim_server.py KUBECONFIG SHARES UNITS SLOW`` writes a kubeconfig, prints one JSON line {url, ca, token, uids}, and serves until its
standard input is closed. It speaks HTTP/1.1 over TLS, as drakit's client does with any API server. A claim has 2 KB, as on a real cluster: owner,
annotation, finalizer, allocation, node selector, consumer and managedFields. Claims are numbered: first those that share the pipe, then one for each
unit, then one for each slow device.
"""

import json
import pathlib
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import resources

DRIVER, POOL = "bench.example.com", "node-1"
PIPE = "pipe"


def devices(shares: int, units: int, slow: int) -> Sequence[str]:
    """The device of each claim, by number."""
    return [PIPE] * shares + [f"unit-{number}" for number in range(units)] + [f"slow-{number}" for number in range(slow)]


def claim(number: int) -> dict[str, Any]:
    """A claim as kube-controller-manager makes it for a pod with a claim template."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": f"pod-{number}",
        "uid": str(uuid.uuid4()),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"claim-{number}",
            "namespace": "default",
            "generateName": "claim-",
            "annotations": {"resource.kubernetes.io/pod-claim-name": "it"},
            "ownerReferences": [owner],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        },
        "spec": {
            "devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}]}
        },
    }


def status(number: int, device: str, pod_uid: str) -> dict[str, Any]:
    """What the scheduler writes: the allocation, the node it is for, and the pod that may use it."""
    result: dict[str, Any] = {"request": "it", "driver": DRIVER, "pool": POOL, "device": device}
    if device == PIPE:
        result |= {"shareID": str(uuid.uuid4()), "consumedCapacity": {"bandwidth": "1M"}}
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [POOL]}]}
    return {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [on_node]}},
        "reservedFor": [{"resource": "pods", "name": f"pod-{number}", "uid": pod_uid}],
    }


def main(kubeconfig: pathlib.Path, shares: int, units: int, slow: int) -> None:
    """Serve."""
    store = registry.Registry()
    store.create(resources.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": POOL}})
    uids = []
    for number, device in enumerate(devices(shares, units, slow)):
        wanted = claim(number)
        name, pod_uid = wanted["metadata"]["name"], wanted["metadata"]["ownerReferences"][0]["uid"]
        # The server keeps managedFields, which a real claim has, from the first apply on.
        made: Any = store.patch(resources.CLAIM, name, wanted, namespace="default", kind=PatchKind.APPLY, manager="kube-controller-manager")
        allocated = {**made, "status": status(number, device, pod_uid)}
        store.update(resources.CLAIM, allocated, subresource="status", manager="kube-scheduler")
        uids.append(made["metadata"]["uid"])
    with apiserver.ApiServer(store) as server:
        server.write_kubeconfig(kubeconfig)
        token = server.issue_token("driver", ("system:masters",))
        sys.stdout.write(json.dumps({"url": server.url, "ca": server.ca_pem.decode(), "token": token, "uids": uids}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
