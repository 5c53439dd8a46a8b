"""What the allocator's benchmark decides on: nodes of eight A100, one shared NIC, and claims, all plain JSON as the API server would send it.

Counters are those that the GPU driver publishes (KEP-4815): 25 MIG placements and the full GPU each, 208 devices a node. A seed changes
names and, but for seed 0, the order of devices, slices and claims.
"""

import dataclasses
import json
import pathlib
import random
import re
import uuid
from collections.abc import Sequence

from drakit import machines
from drakit.core import records
from drakit.core.slices import feature_gates, paging, reconcile, resource_slice
from drakit.kube import slice_codec
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from fakes import installed_drivers

DRIVER = "gpu.drakit.dev"
MACHINE = "dgx-a100-40gb"
TEMPLATE_NODE = "node"
_GPU_NAME = re.compile(r'"gpu-([0-7])')
_GPU_UUID = re.compile(r'"GPU-[0-9a-f-]{36}"')

CLASSES: dict[str, Object] = {
    "mig": {
        "metadata": {"name": "mig"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "mig"'}}]},
    },
    "nic": {
        "metadata": {"name": "nic"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "nic.drakit.dev"'}}]},
    },
}
SAME_GPU: Object = {"matchAttribute": f"{DRIVER}/parentUUID"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fleet:
    """Nodes, and the slices of all of them."""

    nodes: Sequence[Object]
    slices: list[Object]


def write_template(folder: pathlib.Path) -> pathlib.Path:
    """Write the slices of one node as the GPU driver publishes them, and return the file."""
    choice = machines.Choice(name=MACHINE, directory=folder / "mock", owner=TEMPLATE_NODE)
    driver = installed_drivers.build("gpu", node=TEMPLATE_NODE, machine=choice)
    offered = feature_gates.without_lists(driver.discover())  # As for a server with the gates of a release.
    pages = paging.paginate(offered, form=resource_slice.Form.FLAT, layout=resource_slice.Layout.APART)
    changes = reconcile.plan(pages, (), driver=DRIVER, node=TEMPLATE_NODE, pool=TEMPLATE_NODE)
    made = [
        {"metadata": {"name": f"{create.prefix}x"}, "spec": records.thaw(slice_codec.encode(create.spec))} for create in changes.creates
    ]
    path = folder / "slices.json"
    path.write_text(json.dumps(made))
    return path


def gpu_fleet(template: str, count: int, seed: int) -> Fleet:
    """Return ``count`` nodes like the one in ``template`` (JSON text), with names and order of their own."""
    rng = random.Random(seed)
    nodes: list[Object] = []
    slices: list[Object] = []
    for _ in range(count):
        name = f"n-{rng.getrandbits(32):08x}"
        nodes.append({"metadata": {"name": name}})
        slices += _node_slices(template, name, rng, shuffled=seed > 0)
    if seed:
        rng.shuffle(slices)
    return Fleet(nodes=nodes, slices=slices)


def _node_slices(template: str, node: str, rng: random.Random, *, shuffled: bool) -> list[Object]:
    names = [f"g{rng.getrandbits(32):08x}" for _ in range(8)]
    uuids: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return uuids.setdefault(match[0], f'"GPU-{uuid.UUID(int=rng.getrandbits(128))}"')

    text = _GPU_UUID.sub(renamed, _GPU_NAME.sub(lambda match: f'"{names[int(match[1])]}', template))
    made: list[Object] = json.loads(text)
    holders = [json_types.mapping(one, "spec") for one in made]
    devices = [device for spec in holders for device in json_types.items(spec, "devices")]
    if shuffled:
        rng.shuffle(devices)
    for number, (one, spec) in enumerate(zip(made, holders, strict=True)):
        one["metadata"] = {"name": f"{number:05}-{rng.getrandbits(32):08x}"}
        spec["nodeName"] = node
        json_types.child(spec, "pool")["name"] = node
        size = len(json_types.items(spec, "devices"))
        if size:
            spec["devices"], devices = devices[:size], devices[size:]
    return made


def device_names(fleet: Fleet, profile: str) -> list[str]:
    """Return the names of all partitions of one profile, sorted."""
    devices = [device for one in fleet.slices for device in json_types.objects(one, "spec", "devices")]
    return sorted(
        json_types.text(device, "name") for device in devices if json_types.text(device, "attributes", "profile", "string") == profile
    )


def nic_fleet(seed: int) -> Fleet:
    """Return one node with one NIC that many may share."""
    node = f"n-{seed}"
    policy: Object = {"default": "1G", "validRange": {"min": "100M", "step": "100M"}}
    nic: Object = {
        "name": f"eth{seed}",
        "allowMultipleAllocations": True,
        "attributes": {"kind": {"string": "shared"}},
        "capacity": {"bandwidth": {"value": "100G", "requestPolicy": policy}},
    }
    spec: Object = {
        "driver": "nic.drakit.dev",
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [nic],
    }
    return Fleet(nodes=[{"metadata": {"name": node}}], slices=[{"metadata": {"name": "nics"}, "spec": spec}])


def mig(name: str, profile: str, count: int = 1) -> Object:
    """Return a request for partitions of one profile."""
    expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
    return {
        "name": name,
        "exactly": {
            "deviceClassName": "mig",
            "selectors": [{"cel": {"expression": expression}}],
            "allocationMode": "ExactCount",
            "count": count,
        },
    }


def share(name: str, bandwidth: str) -> Object:
    """Return a request for one share of a NIC."""
    return {
        "name": name,
        "exactly": {
            "deviceClassName": "nic",
            "allocationMode": "ExactCount",
            "count": 1,
            "capacity": {"requests": {"bandwidth": bandwidth}},
        },
    }


def claim(name: str, *requests: Object, constraints: Sequence[Object] = ()) -> Object:
    """Return a claim."""
    wanted: Object = {"requests": json_types.from_objects(requests)}
    if constraints:
        wanted["constraints"] = json_types.from_objects(constraints)
    return {"metadata": {"namespace": "bench", "name": name, "uid": name}, "spec": {"devices": wanted}}


def expressions(claims: Sequence[Object]) -> set[str]:
    """Return every selector of the claims and classes."""
    found: set[str] = set()

    def walk(value: Json) -> None:
        if isinstance(value, dict):
            found.update(one for key, one in value.items() if key == "expression" and isinstance(one, str))
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(one)

    for source in (*claims, *CLASSES.values()):
        walk(source)
    return found
