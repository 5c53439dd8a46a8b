"""Flattens the gated compact form of a ResourceSlice (KEP-4815, mixins) into the form of the released API.

``spec.mixins`` holds three lists of named parts: ``counterSet`` (counters), ``device`` (attributes, capacity) and
``deviceCounterConsumption`` (counters). A counter set, a device, or an entry of ``consumesCounters`` names the mixins that it includes in
``includes: [{"name": ...}]``. They apply in order: if two included mixins set the same name, the later one wins, and own fields win over all. An
entry is replaced as a whole, never merged. Names resolve only within the slice.
"""

from collections.abc import Mapping

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object


class MixinError(Exception):
    """An include that names no mixin of its slice. The message names the field."""


def flatten(spec: Object) -> Object:
    """Return the slice spec without mixins and includes; the input is not changed. A spec that uses neither is returned as it is.

    Raises :class:`MixinError` for a missing mixin.
    """
    if not _is_compact(spec):
        return spec
    flat = {name: value for name, value in spec.items() if name != "mixins"}
    counter_sets, devices, consumptions = (_by_name(spec, kind) for kind in ("counterSet", "device", "deviceCounterConsumption"))
    if "sharedCounters" in spec:
        flat["sharedCounters"] = [
            _apply(entry, counter_sets, ("counters",), f"sharedCounters[{position}]")
            for position, entry in enumerate(json_types.objects(spec, "sharedCounters"))
        ]
    if "devices" in spec:
        flat["devices"] = [
            _flatten_device(device, devices, consumptions, f"devices[{position}]")
            for position, device in enumerate(json_types.objects(spec, "devices"))
        ]
    return flat


def _is_compact(spec: Object) -> bool:
    if "mixins" in spec:
        return True
    parts = [*json_types.objects(spec, "sharedCounters"), *json_types.objects(spec, "devices")]
    return any("includes" in part for part in parts) or any(
        "includes" in entry for part in parts if "consumesCounters" in part for entry in json_types.objects(part, "consumesCounters")
    )


def _by_name(spec: Object, kind: str) -> dict[str, Object]:
    return {json_types.text(mixin, "name"): mixin for mixin in json_types.objects(spec, "mixins", kind)}


def _flatten_device(device: Object, devices: Mapping[str, Object], consumptions: Mapping[str, Object], path: str) -> Object:
    flat = _apply(device, devices, ("attributes", "capacity"), path)
    if "consumesCounters" in device:
        flat["consumesCounters"] = [
            _apply(entry, consumptions, ("counters",), f"{path}.consumesCounters[{position}]")
            for position, entry in enumerate(json_types.objects(device, "consumesCounters"))
        ]
    return flat


def _apply(part: Object, mixins: Mapping[str, Object], fields: tuple[str, ...], path: str) -> Object:
    included = [_find(mixins, include, path) for include in json_types.items(part, "includes")]
    flat = {name: value for name, value in part.items() if name != "includes"}
    for field in fields:
        merged: Object = {}
        for source in (*included, part):
            merged |= json_types.mapping(source, field)
        if merged or field in part:
            flat[field] = merged
    return flat


def _find(mixins: Mapping[str, Object], include: Json, path: str) -> Object:
    name = json_types.text(include, "name")
    if name not in mixins:
        raise MixinError(f"{path}.includes: no mixin {name!r} in this slice; known are {', '.join(sorted(mixins)) or 'none'}")
    return mixins[name]
