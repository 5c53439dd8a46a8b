"""The objects that checks create, as plain JSON."""

from collections.abc import Sequence

from drakit_cluster.objects.json_types import Json, Object
from e2e import inspection

GPU, MIG, NIC = "gpu.drakit.dev", "mig.drakit.dev", "nic.drakit.dev"


def request(name: str, device_class: str, *, cel: Sequence[str] = (), capacity: Object | None = None, **fields: Json) -> Object:
    """Return a request for one device of a class."""
    return {"name": name, "exactly": choice(device_class, cel=cel, capacity=capacity, **fields)}


def choice(device_class: str, *, cel: Sequence[str] = (), capacity: Object | None = None, **fields: Json) -> Object:
    """Return what a request says of the device that it wants."""
    found: Object = {"deviceClassName": device_class, **fields}
    if cel:
        found["selectors"] = [{"cel": {"expression": one}} for one in cel]
    if capacity:
        found["capacity"] = {"requests": capacity}
    return found


def mig(name: str, profile: str, **fields: Json) -> Object:
    """Return a request for a MIG partition of a profile."""
    return {"name": name, "exactly": choice(MIG, cel=(f'device.attributes["{GPU}"].profile == "{profile}"',)) | fields}


def share(name: str, bandwidth: str = "", *, interface: str = "eth1", **fields: Json) -> Object:
    """Return a request for a share of an interface; without a bandwidth for the default one."""
    cel = (f'device.attributes["{NIC}"].ifName == "{interface}"',) if interface else ()
    return request(name, NIC, cel=cel, capacity={"bandwidth": bandwidth} if bandwidth else None, **fields)


def opaque(driver: str, kind: str, *requests: str, **parameters: Json) -> Object:
    """Return one entry of a claim's config for one of drakit's drivers."""
    found: Object = {"opaque": {"driver": driver, "parameters": {"apiVersion": f"{driver}/v1", "kind": kind, **parameters}}}
    return {**found, "requests": list(requests)} if requests else found


def claim(name: str, *requests: Object, **devices: Json) -> Object:
    """Return a claim; ``devices`` are further fields of its spec.devices."""
    spec: Object = {"devices": {"requests": list(requests), **devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def template(name: str, *requests: Object, **devices: Json) -> Object:
    """Return a template of claims."""
    made = claim(name, *requests, **devices)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def device_class(name: str, *cel: str, **fields: Json) -> Object:
    """Return a DeviceClass."""
    spec: Object = {"selectors": [{"cel": {"expression": one}} for one in cel], **fields}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def container(name: str, *claims: str | tuple[str, str], **fields: Json) -> Object:
    """Return a container that prints what it sees; ``claims`` are names of claims in the pod, or pairs with one of their requests."""
    uses: list[Json] = [{"name": one} if isinstance(one, str) else {"name": one[0], "request": one[1]} for one in claims]
    return {"name": name, "command": list(inspection.COMMAND), "resources": {"claims": uses} if uses else {}, **fields}


def pod(name: str, *, claims: Sequence[str] = (), templates: Sequence[str] = (), containers: Sequence[Object] = (), **spec: Json) -> Object:
    """Return a pod that uses claims by their names; its one container uses all of them, unless containers are given."""
    refs: list[Json] = [{"name": one, "resourceClaimName": one} for one in claims]
    refs += [{"name": one, "resourceClaimTemplateName": one} for one in templates]
    made = list(containers) or [container("main", *claims, *templates)]
    found: Object = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": list(made), **spec}
    if refs:
        found["resourceClaims"] = refs
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": found}
