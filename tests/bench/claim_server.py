"""A local API server in a process of its own, with allocated claims in it, for benchmarks of the driver.

``python claim_server.py COUNT`` prints one JSON line {url, ca, token, uids} and serves until its standard input is closed.
"""

import json
import sys
import uuid
from typing import Any

from drakit.cluster import apiserver, registry, resources

DRIVER, POOL, DEVICE = "fake.example.com", "node-1", "pipe"


def claim(index: int) -> dict[str, Any]:
    """A claim with one share of the fake driver's pipe, as a user writes it."""
    request = {"name": "net", "exactly": {"deviceClassName": DRIVER}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{index}", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def allocation() -> dict[str, Any]:
    """What the scheduler would write."""
    result = {"request": "net", "driver": DRIVER, "pool": POOL, "device": DEVICE, "shareID": str(uuid.uuid4())}
    result["consumedCapacity"] = {"bandwidth": "1M"}  # type: ignore[assignment]
    return {"allocation": {"devices": {"results": [result]}}}


def main(count: int) -> None:
    """Serve ``count`` claims."""
    store = registry.Registry()
    uids = []
    for index in range(count):
        made = store.create(resources.CLAIM, claim(index), namespace="default")
        stored = store.update(resources.CLAIM, {**made, "status": allocation()}, subresource="status")
        uids.append(stored["metadata"]["uid"])  # type: ignore[index, call-overload]
    with apiserver.ApiServer(store) as server:
        token = server.issue_token("driver", ("system:masters",))
        sys.stdout.write(json.dumps({"url": server.url, "ca": server.ca_pem.decode(), "token": token, "uids": uids}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
