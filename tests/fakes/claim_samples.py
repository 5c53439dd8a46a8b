"""An allocated ResourceClaim as JSON, as a real cluster writes it."""

import copy
from typing import Any

from drakit.core import claim as claims
from drakit.core import names

UID = names.ClaimUid("0f2c8d3e-1a5b-4c7d-9e8f-102938475610")
OTHER_UID = names.ClaimUid("99999999-1a5b-4c7d-9e8f-102938475610")
SHARE_ID = names.ShareId("5b0d3c1e-7a8f-4e2d-8c6b-9f1e2d3c4b5a")

CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "team-a", "name": "training-gpu-x7k2p", "uid": str(UID), "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "gpu", "firstAvailable": [{"name": "small", "deviceClassName": "gpu.drakit.dev"}]},
                {"name": "nic", "exactly": {"deviceClassName": "nic.drakit.dev", "capacity": {"requests": {"bandwidth": "150M"}}}},
            ]
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "gpu/small", "driver": "gpu.drakit.dev", "pool": "node-1", "device": "gpu-0-mig-1g-5gb-0"},
                    {
                        "request": "nic",
                        "driver": "nic.drakit.dev",
                        "pool": "node-1",
                        "device": "eth1",
                        "shareID": str(SHARE_ID),
                        "consumedCapacity": {"bandwidth": "200M"},
                    },
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "opaque": {"driver": "gpu.drakit.dev", "parameters": {"apiVersion": "gpu.drakit.dev/v1", "kind": "GpuConfig"}},
                    },
                    {
                        "source": "FromClaim",
                        "requests": ["gpu"],
                        "opaque": {
                            "driver": "gpu.drakit.dev",
                            "parameters": {"sharing": {"interval": 2.5, "since": "2026-01-02", "ids": [1, 2]}},
                        },
                    },
                ],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "training", "uid": "7c1d6a52-0000-4000-8000-000000000001"}],
    },
}

REF = claims.ClaimRef(uid=UID, namespace="team-a", name="training-gpu-x7k2p")


def allocated(**metadata: str) -> dict[str, Any]:
    """A copy of the claim, with other metadata."""
    found = copy.deepcopy(CLAIM)
    found["metadata"] |= metadata
    return found


def unallocated(**metadata: str) -> dict[str, Any]:
    """The same claim before the scheduler saw it."""
    found = allocated(**metadata)
    del found["status"]
    return found
