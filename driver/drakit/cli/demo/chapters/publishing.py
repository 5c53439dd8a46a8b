"""The node's devices appear in the API, written compactly."""

import json
from collections.abc import Iterable

from drakit.cli import output, slices
from drakit.cli.demo import world
from drakit.core import inventory
from drakit.core.slices import resource_slice
from drakit_cluster import json_types

GATES = {"": {"DRAMixins": True}}
"""What this chapter needs of the cluster; no released Kubernetes has it, so that it is off elsewhere."""


def show(scene: world.World) -> None:
    """Slices of both drivers: how many, how large, and that they say what the hardware has."""
    stage = scene.stage
    stage.chapter("The driver publishes what the node has")
    stage.say(
        f"A driver process of its own (pid {scene.driver.pid}) talks to the API server over HTTPS and to the kubelet over unix sockets. Only the "
        f"hardware is pretended: {scene.node.machine.name}, as node {scene.node_name}."
    )
    rows, promises = [], []
    for family, offered in scene.node.offers():
        driver = family.spec.driver_name
        wanted = _names(offered)
        stored = stage.wait(f"{driver} has published", lambda driver=driver, wanted=wanted: _complete(scene, driver, wanted))  # type: ignore[misc]
        flat = _bytes(slices.sheaf(family, offered, resource_slice.Form.FLAT).objects)
        rows.append((driver, len(stored), len(wanted), _bytes(stored), flat, f"{100 * _bytes(stored) / flat:.0f}%"))
        promises.append(
            (
                f"{driver}: the API server has the {output.counted(len(wanted), 'device')} that the hardware offers",
                _published(stored),
                wanted,
            )
        )
    stage.table(["DRIVER", "SLICES", "DEVICES", "BYTES STORED", "WITHOUT MIXINS", "RATIO"], rows)
    stage.say(
        "Every MIG placement that is possible is a device. What they have in common is written once, as a mixin (KEP-4815). No released "
        "Kubernetes stores mixins: this cluster does, with its gate DRAMixins on, and elsewhere the driver writes the flat form."
    )
    for promise in promises:
        stage.check(*promise)


def _complete(scene: world.World, driver: str, wanted: frozenset[str]) -> list[json_types.Object]:
    """The driver's slices, once there are as many devices as there should be."""
    stored = scene.slices(driver)
    return stored if len(_published(stored)) >= len(wanted) else []


def _names(offered: inventory.Inventory) -> frozenset[str]:
    return frozenset(item.name for item in offered.flat().devices)


def _published(stored: Iterable[json_types.Object]) -> frozenset[str]:
    return frozenset(json_types.text(item, "name") for one in stored for item in json_types.objects(one, "spec", "devices"))


def _bytes(objects: Iterable[object]) -> int:
    """Size of the specs as compact JSON, as they are sent."""
    specs = (item["spec"] for item in objects if isinstance(item, dict))
    return sum(len(json.dumps(spec, separators=(",", ":")).encode()) for spec in specs)
