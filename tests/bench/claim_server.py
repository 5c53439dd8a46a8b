"""A local API server in a process of its own, with allocated claims in it, for benchmarks of the driver.

``python claim_server.py KUBECONFIG SHARES UNITS SLOW`` writes a kubeconfig, prints one JSON line {url, ca, token, uids}, and serves until its
standard input is closed. Claims are numbered: first those that share the pipe, then one for each unit, then one for each slow device.
"""

import json
import pathlib
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources

DRIVER, POOL = "bench.example.com", "node-1"
PIPE = "pipe"


def devices(shares: int, units: int, slow: int) -> Sequence[str]:
    """The device of each claim, by number."""
    return [PIPE] * shares + [f"unit-{number}" for number in range(units)] + [f"slow-{number}" for number in range(slow)]


def claim(number: int) -> dict[str, Any]:
    """A claim as a user writes it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": DRIVER}}]}},
    }


def allocation(device: str) -> dict[str, Any]:
    """What the scheduler would write."""
    result: dict[str, Any] = {"request": "it", "driver": DRIVER, "pool": POOL, "device": device}
    if device == PIPE:
        result |= {"shareID": str(uuid.uuid4()), "consumedCapacity": {"bandwidth": "1M"}}
    return {"allocation": {"devices": {"results": [result]}}}


def main(kubeconfig: pathlib.Path, shares: int, units: int, slow: int) -> None:
    """Serve."""
    store = registry.Registry()
    store.create(resources.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": POOL}})
    uids = []
    for number, device in enumerate(devices(shares, units, slow)):
        made = store.create(resources.CLAIM, claim(number), namespace="default")
        stored = store.update(resources.CLAIM, {**made, "status": allocation(device)}, subresource="status")
        uids.append(stored["metadata"]["uid"])  # type: ignore[index, call-overload]
    with apiserver.ApiServer(store) as server:
        server.write_kubeconfig(kubeconfig)
        token = server.issue_token("driver", ("system:masters",))
        sys.stdout.write(json.dumps({"url": server.url, "ca": server.ca_pem.decode(), "token": token, "uids": uids}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
