"""Three claims, allocated on the interface as a scheduler does it: by the local cluster's allocator, from the slices the driver would publish."""

import pathlib
from collections.abc import Mapping, Sequence

from drakit.cli import composition
from drakit.cli.commands import slices
from drakit.core import errors, inventory
from drakit.core.slices import resource_slice
from drakit.inputs import documents as yaml_documents
from drakit_cluster import manifests
from drakit_cluster.objects import features, json_types, resources
from drakit_cluster.scheduling.explain import whatif
from drakit_nic import driver as nic_driver
from drakit_tools.demo.nic import figures

NAMESPACE = "drakit-demo"
INTERFACE = "net1"
NETWORK = "192.0.2"
PREFIX = 24
_VERSION = "resource.k8s.io/v1"
_FIRST_HOST = 11
_SILENT: Mapping[str, int] = {"ipv4.arp_notify": 0, "ipv6.ndisc_notify": 0, "ipv6.disable_ipv6": 1}
"""Settings of the pods' interfaces with which nothing is sent, because the network may be in use."""
_IPV6 = pathlib.Path("/proc/sys/net/ipv6")


def address(claim: str, chosen: figures.Figures) -> str:
    """Return the address of a claim's pod, from a network that is reserved for documentation (RFC 5737)."""
    return f"{NETWORK}.{_FIRST_HOST + list(chosen.asked).index(claim)}"


def documents(family: composition.Family, offered: inventory.Inventory, chosen: figures.Figures) -> list[object]:
    """Return the slices, two classes, and the claims: two with a fixed rate, and one that may borrow unused bandwidth."""
    borrowing = {"ceil": figures.rate(chosen.speed)}
    made = [_class(figures.LIMITED, {}), _class(figures.BORROWING, borrowing)]
    sheaf = slices.sheaf(family, offered, resource_slice.Form.FLAT)
    named = [_named(entry, number) for number, entry in enumerate(sheaf.objects)]
    return [*named, *made, *(_claim(name, amount, chosen) for name, amount in chosen.asked.items())]


def allocated(wanted: Sequence[object]) -> list[json_types.Object]:
    """Return the claims with their allocations, in order; raises ConfigError if a claim does not fit."""
    taken = manifests.take(manifests.read("demo", yaml_documents.dump_all(wanted)), features.FeatureGates())
    if taken.problems:
        raise errors.ConfigError(taken.problems[0].text, field=taken.problems[0].field)
    world = whatif.World.of(taken.objects)
    given: dict[str, json_types.Object] = {}
    for decision in whatif.Scheduler(world, features.FeatureGates(), world.known_nodes()).decide():
        if not decision.fits:
            raise errors.ConfigError(f"{decision.asked} does not fit: {decision.message}")
        given |= {grant.claim: grant.allocation for grant in decision.given}
    kind: json_types.Object = {"apiVersion": _VERSION, "kind": "ResourceClaim"}
    return [kind | claim | {"status": {"allocation": given[_label(claim)]}} for claim in taken.objects(resources.CLAIM)]


def result(claim: json_types.Object) -> json_types.Object:
    """Return the allocation result of a claim."""
    return json_types.objects(claim, "status", "allocation", "devices", "results")[0]


def _label(claim: json_types.Object) -> str:
    return f"{json_types.text(claim, 'metadata', 'namespace')}/{json_types.text(claim, 'metadata', 'name')}"


def _named(slice_object: object, number: int) -> object:
    """Return a slice with a name, which an API server would generate."""
    if not isinstance(slice_object, dict):
        raise TypeError("a slice is an object")
    return {**slice_object, "metadata": {"name": f"{nic_driver.NAME}-{number}"}}


def _class(name: str, parameters: Mapping[str, str]) -> object:
    sysctls = {name: value for name, value in _SILENT.items() if name.startswith("ipv4.") or _IPV6.is_dir()}
    expression = f'device.driver == "{nic_driver.NAME}"'
    spec = {"selectors": [{"cel": {"expression": expression}}], "config": [_config({**parameters, "sysctls": sysctls})]}
    return {"apiVersion": _VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def _claim(name: str, amount: int | None, chosen: figures.Figures) -> object:
    exactly: dict[str, object] = {"deviceClassName": figures.LIMITED if amount else figures.BORROWING}
    if amount:
        exactly["capacity"] = {"requests": {"bandwidth": figures.rate(amount)}}
    config = _config({"interfaceName": INTERFACE, "addresses": [f"{address(name, chosen)}/{PREFIX}"]})
    return {
        "apiVersion": _VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "net", "exactly": exactly}], "config": [config]}},
    }


def _config(parameters: Mapping[str, object]) -> dict[str, object]:
    whole = {"apiVersion": f"{nic_driver.NAME}/v1", "kind": "NicConfig", **parameters}
    return {"opaque": {"driver": nic_driver.NAME, "parameters": whole}}
