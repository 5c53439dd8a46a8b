"""KEP-4815's samples: as printed, with what they leave out filled in; and mended, as objects that a server takes."""

import pathlib
from collections.abc import Iterator

import yaml

from drakit_cluster import manifests
from drakit_cluster.manifests import Document
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "scenario" / "features_4815" / "samples"
TWO_GPUS = ROOT / "tests" / "golden" / "kep-4815-two-gpus.yaml"
NAMES = tuple(sorted(path.stem for path in (FOLDER / "original").iterdir()))
DRIVER = "gpu.nvidia.com"

_LEFT_OUT: dict[str, tuple[tuple[str, str], ...]] = {
    "tpu-slice": (
        ("\n...\n", "\nmetadata: {name: tpus}\n"),
        ("pool:\n    ...\n", "pool: {name: tpus, generation: 1, resourceSliceCount: 1}\n"),
    ),
    "three-mig-devices": (("gpu-0-pool\n  ...\n", "gpu-0-pool\n"), ("attributes:\n      ...\n", "attributes: {}\n")),
}
"""What stands for the dots in the text. Nothing else of it is touched."""


def printed(name: str) -> str:
    """A sample as it is printed."""
    return (FOLDER / "original" / f"{name}.yaml").read_text("utf-8")


def original(name: str) -> list[Document]:
    """The objects of a sample as printed; a part of a slice gets the rest of one around it. Raise ManifestError where it is not YAML."""
    text = printed(name)
    for dots, filling in _LEFT_OUT.get(name, ()):
        text = text.replace(dots, filling)
    if not text.startswith(("apiVersion:", "kind:")):
        text = yaml.dump(slice_of(name, yaml.load(text, Loader=yaml.CSafeLoader)), Dumper=yaml.CSafeDumper)
    return manifests.read(f"{name}.yaml", text)


def moved(name: str) -> list[Document]:
    """A sample after the first fix: what devices and device mixins hold in basic is their own. What is wrong with it shows only then."""
    documents = original(name)
    for document in documents:
        spec = json_types.mapping(document.body, "spec")
        for holder in (*json_types.objects(spec, "devices"), *json_types.objects(spec, "mixins", "device")):
            holder.update(json_types.mapping({"basic": holder.pop("basic", None)}, "basic"))
    return documents


def renamed(name: str) -> list[Document]:
    """A sample after two more fixes: devices say consumesCounters, and what capacities have is in value."""
    documents = moved(name)
    for document in documents:
        for device in json_types.objects(document.body, "spec", "devices"):
            device["consumesCounters"] = device.pop("consumesCounter", [])
            capacity = json_types.mapping(device, "capacity")
            capacity.update({key: {"value": amount} for key, amount in capacity.items() if isinstance(amount, str)})
    return documents


def mended(name: str) -> list[Object]:
    """The objects of a sample as mended."""
    if name == "two-gpus":
        return list(_apart(name, yaml.load(TWO_GPUS.read_text("utf-8"), Loader=yaml.CSafeLoader)))
    return [one.body for one in manifests.read(name, (FOLDER / "mended" / f"{name}.yaml").read_text("utf-8"))]


def slice_of(name: str, part: Object, *, pool: str = "", count: int = 1, node: str = "node-1") -> Object:
    """A slice with ``part`` in its spec."""
    known: Object = {"name": pool or name, "generation": 1, "resourceSliceCount": count}
    spec: Object = {"driver": DRIVER, "nodeName": node, "pool": known, **part}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def _apart(name: str, spec: Object) -> Iterator[Object]:
    """Counters and devices in slices of their own, each with its kinds of mixins."""
    shared = json_types.mapping(spec, "mixins")
    of_counters: Json = {"counterSet": shared["counterSet"]}
    of_devices: Json = {kind: shared[kind] for kind in ("device", "deviceCounterConsumption")}
    yield slice_of(f"{name}-0", {"sharedCounters": spec["sharedCounters"], "mixins": of_counters}, pool=name, count=2)
    yield slice_of(f"{name}-1", {"devices": spec["devices"], "mixins": of_devices}, pool=name, count=2)
