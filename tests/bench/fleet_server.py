"""A local API server in a process of its own, with the nodes of a fleet in it, for the benchmark of what drivers cost a cluster.

``python fleet_server.py FOLDER NODES`` writes a kubeconfig for each node's driver, prints one JSON line {url, ca, token}, and serves. Each line
``restart SECONDS`` on standard input stops it for that long; it ends with its input.
"""

import json
import pathlib
import sys
import time
import uuid
from typing import Any

from drakit_cluster.access import users
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources

ACCOUNT = "system:serviceaccount:drakit-system:drakit"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:drakit-system")
NIC_DRIVER = "nic.drakit.dev"
CLAIMS = 400


def node_name(number: int) -> str:
    """The name of a node by its number."""
    return f"node-{number:04d}"


def claim(number: int, node: str, device: str) -> dict[str, Any]:
    """An allocated claim of 10 Mbit/s of a NIC."""
    result = {
        "request": "net",
        "driver": NIC_DRIVER,
        "pool": node,
        "device": device,
        "shareID": str(uuid.uuid4()),
        "consumedCapacity": {"bandwidth": "10M"},
    }
    exactly = {"deviceClassName": NIC_DRIVER, "capacity": {"requests": {"bandwidth": "10M"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "net", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def add_claims(store: registry.Registry, node: str, device: str) -> list[str]:
    """Create allocated claims for one node and return their UIDs."""
    uids = []
    for number in range(CLAIMS):
        wanted = claim(number, node, device)
        made = store.create(resources.CLAIM, {key: value for key, value in wanted.items() if key != "status"}, namespace="default")
        stored = store.update(resources.CLAIM, {**made, "status": wanted["status"]}, subresource="status")
        uids.append(str(stored["metadata"]["uid"]))  # type: ignore[index, call-overload]
    return uids


def _answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(folder: pathlib.Path, nodes: int) -> None:
    """Serve."""
    store = registry.Registry()
    for number in range(nodes):
        store.create(resources.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number)}})
    with apiserver.ApiServer(store) as server:
        for number in range(nodes):
            token = server.issue_token(ACCOUNT, (*GROUPS, users.MASTERS), extra={users.NODE_NAME: (node_name(number),)})
            server.write_kubeconfig(folder / f"{node_name(number)}.kubeconfig", token=token, user=ACCOUNT)
        token = server.issue_token("bench", ("system:masters",))
        _answer(json.dumps({"url": server.url, "ca": server.ca_pem.decode(), "token": token}))
        for line in sys.stdin:
            word, _, argument = line.strip().partition(" ")
            if word == "restart":
                server.stop()
                time.sleep(float(argument))
                server.start()
                _answer("restarted")
            elif word == "claims":
                node, device = argument.split()
                _answer(json.dumps(add_claims(store, node, device)))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
