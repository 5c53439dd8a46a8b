"""Objects for ``Cluster`` as plain JSON objects, like those that users write in YAML."""

from collections.abc import Mapping, Sequence
from typing import Any

from drakit.core import arguments, quantity

API_VERSION = "resource.k8s.io/v1"

Object = dict[str, Any]


@arguments.checked_call
def device_class(name: str, *, driver: str, expression: str = "") -> Object:
    """Return a DeviceClass for the devices of one driver for which the CEL expression is true, by default for all of them."""
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    selectors += [{"cel": {"expression": expression}}] if expression else []
    return {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}


@arguments.checked_call
def request(device_class: str, *, count: int = 1, capacity: Mapping[str, quantity.Amount] | None = None, expression: str = "") -> Object:
    """Return a request for ``count`` devices of a class for which the CEL expression is true, each with at least this capacity."""
    exactly: Object = {"deviceClassName": device_class, "count": count}
    if capacity:
        exactly["capacity"] = {"requests": {name: str(amount) for name, amount in capacity.items()}}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"exactly": exactly}


@arguments.checked_call
def claim(  # noqa: PLR0913 - most are rarely given
    name: str,
    *,
    device_class: str = "",
    count: int = 1,
    capacity: Mapping[str, quantity.Amount] | None = None,
    expression: str = "",
    parameters: Mapping[str, object] | None = None,
    driver: str = "",
    namespace: str = "default",
    requests: Mapping[str, Object] | None = None,
    constraints: Sequence[Object] = (),
) -> Object:
    """Return a ResourceClaim with one request named ``device`` for the class, or with ``requests``: those of ``request`` by name.

    ``constraints`` are those of the API: ``{"matchAttribute": "resource.kubernetes.io/pcieRoot", "requests": ["gpu", "nic"]}``.
    ``parameters`` is opaque configuration for ``driver``. Raises ValueError unless there is either a class or requests.
    """
    if bool(device_class) is bool(requests):
        raise ValueError(f"claim {name}: give device_class or requests, and not both")
    wanted = requests or {"device": request(device_class, count=count, capacity=capacity, expression=expression)}
    devices: Object = {"requests": [{"name": own, **asked} for own, asked in wanted.items()]}
    if constraints:
        devices["constraints"] = [*constraints]
    if parameters is not None:
        devices["config"] = [{"opaque": {"driver": driver, "parameters": dict(parameters)}}]
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": devices},
    }


@arguments.checked_call
def pod(name: str, *, claims: Sequence[str], namespace: str = "default", command: Sequence[str] = ()) -> Object:
    """Return a Pod with one container named ``main`` that lists these ResourceClaims."""
    container: Object = {"name": "main", "image": "scratch", "resources": {"claims": [{"name": one} for one in claims]}}
    if command:
        container["command"] = list(command)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        },
    }
