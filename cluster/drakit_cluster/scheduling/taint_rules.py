"""DeviceTaintRules: taints that an admin puts on devices, in addition to those of their drivers (KEP-5055). Pure.

A rule without a selector selects nothing; an empty selector selects every device. All fields that a selector sets must match. The
schedulers before 1.38 let a rule without a selector select every device (kubernetes#141648).
"""

from collections.abc import Collection

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object

_FIELDS = ("driver", "pool", "device")


def selects(rule: Object, device: DeviceId, *, unselective: bool = False) -> bool:
    """Return whether the rule puts its taint on ``device``. ``unselective`` repeats the known error of rules without a selector."""
    selector = json_types.at(rule, "spec", "deviceSelector")
    if not isinstance(selector, dict):
        return unselective
    return all(json_types.text(selector, field) in ("", getattr(device, field)) for field in _FIELDS)


def taint_of(rule: Object) -> Object:
    """Return the taint that the rule puts on devices."""
    return json_types.mapping(rule, "spec", "taint")


def devices_of(published: Object) -> list[tuple[DeviceId, Object]]:
    """Return the devices of a ResourceSlice with their ids."""
    spec = json_types.mapping(published, "spec")
    driver, pool = json_types.text(spec, "driver"), json_types.text(spec, "pool", "name")
    return [(DeviceId(driver, pool, json_types.text(device, "name")), device) for device in json_types.objects(spec, "devices")]


def tainted(published: Object, rules: Collection[Object], *, unselective: bool = False) -> Object:
    """Return a ResourceSlice with the rules' taints added; the slice itself if no rule selects one of its devices."""
    added = {
        index: [taint_of(rule) for rule in rules if selects(rule, device, unselective=unselective)]
        for index, (device, _) in enumerate(devices_of(published))
    }
    if not any(added.values()):
        return published
    changed = json_types.copy_object(published)
    for index, (_, device) in enumerate(devices_of(changed)):
        if added[index]:
            device["taints"] = json_types.from_objects([*json_types.objects(device, "taints"), *map(json_types.copy_object, added[index])])
    return changed
