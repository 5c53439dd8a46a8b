"""Objects for these tests; each call returns a new one."""

from collections.abc import Sequence

from drakit_cluster.objects.json_types import Json, Object
from unit.cluster_kubelet.plugin import DRIVER

CLASS = "gpu"
NODE = "node-1"


def device_class(name: str = CLASS, driver: str = DRIVER) -> Object:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}}


def resource_slice(*devices: Json, node: str = NODE, driver: str = DRIVER, generation: int = 1) -> Object:
    pool: Object = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        "metadata": {"generateName": f"0-{node}-"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)},
    }


def device(name: str, **attributes: str) -> Object:
    published: Object = {key: {"string": value} for key, value in attributes.items()}
    body: Object = {"name": name}
    return body | ({"attributes": published} if published else {})


def nic(name: str, bandwidth: str = "10G") -> Object:
    policy: Object = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"bandwidth": {"value": bandwidth, "requestPolicy": policy}},
    }


def request(name: str = "gpu", **fields: Json) -> Object:
    exactly: Object = {"deviceClassName": CLASS}
    return {"name": name, "exactly": exactly | fields}


def claim_spec(*requests: Object, constraints: Sequence[Object] = ()) -> Object:
    devices: Object = {"requests": list(requests or (request(),))}
    return {"devices": devices | ({"constraints": list(constraints)} if constraints else {})}


def claim(name: str, *requests: Object, constraints: Sequence[Object] = ()) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": claim_spec(*requests, constraints=constraints)}


def template(name: str, *requests: Object) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": claim_spec(*requests)}}


def use(request: str = "", *, name: str = "gpu") -> Object:
    body: Object = {"name": name}
    return body | ({"request": request} if request else {})


def container(name: str = "main", *uses: Object, command: list[str] | None = None) -> Object:
    body: Object = {"name": name, "image": "none"}
    if uses:
        body["resources"] = {"claims": list(uses)}
    if command:
        body["command"] = list(command)
    return body


def pod(
    name: str,
    *,
    claim: str = "",
    template: str = "",
    containers: Sequence[Object] = (),
    inits: Sequence[Object] = (),
    run_seconds: float | None = None,
    **spec: Json,
) -> Object:
    """Return a pod with at most one claim, called gpu in it, that its only container uses unless ``containers`` are given."""
    metadata: Object = {"name": name, "namespace": "default"}
    if run_seconds is not None:
        metadata["annotations"] = {"drakit.dev/run-seconds": str(run_seconds)}
    claims: list[Json] = []
    if claim:
        claims.append({"name": "gpu", "resourceClaimName": claim})
    if template:
        claims.append({"name": "gpu", "resourceClaimTemplateName": template})
    default = [container("main", use())] if claims else [container()]
    body: Object = {"containers": list(containers or default), "terminationGracePeriodSeconds": 1}
    if inits:
        body["initContainers"] = list(inits)
    if claims:
        body["resourceClaims"] = claims
    return {"metadata": metadata, "spec": body | spec}
