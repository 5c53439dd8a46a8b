"""Objects to write in tests, smallest first; each call returns a new one."""

from drakit_cluster.objects.json_types import Json, Object

SHARE = "6f0a4b4e-7d50-4ad5-9f0c-2f2b8e6f7a10"


def slice_(name: str = "0-n1-aaaaa", *, count: int = 1, **spec: Json) -> Object:
    """Return a slice of node n1; a field of its spec can be replaced, or left out by None."""
    return slice_of(spec, name=name, count=count)


def slice_of(spec: Object, *, name: str = "0-n1-aaaaa", count: int = 1) -> Object:
    listed: list[Json] = [{"name": f"gpu-{index}"} for index in range(count)]
    body: Object = {
        "driver": "gpu.drakit.dev",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": listed,
    }
    body |= spec
    return {"metadata": {"name": name}, "spec": {key: value for key, value in body.items() if value is not None}}


def claim(name: str = "c1", namespace: str = "default") -> Object:
    requests: list[Json] = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"devices": {"requests": requests}}}


def result(device: str = "gpu-0", *, driver: str = "gpu.drakit.dev", share: str = "") -> Object:
    found: Object = {"request": "gpu", "driver": driver, "pool": "n1", "device": device}
    return found | ({"shareID": share} if share else {})


def allocated(claim: Object, *results: Object) -> Object:
    """Return a claim as a scheduler would write its status."""
    return claim | {"status": {"allocation": {"devices": {"results": list(results)}}}}


def pod(name: str = "p1", *, node: str = "", namespace: str = "default") -> Object:
    spec: Object = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec | ({"nodeName": node} if node else {})}


def device_status(device: str = "gpu-0", **fields: Json) -> Object:
    return {"driver": "gpu.drakit.dev", "pool": "n1", "device": device, **fields}


def ready(status: str = "True") -> Json:
    return [
        {
            "type": "Ready",
            "status": status,
            "reason": "Prepared",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
