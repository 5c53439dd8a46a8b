"""What a journal holds, as plain JSON values for people and programs: the API's words for keys, nothing left out."""

from collections.abc import Mapping, Sequence

from drakit.core import device, lifecycle, records
from drakit.journal import device_json, edits_json

Notes = Mapping[str, records.Record]


def entry(found: lifecycle.Entry, notes: Sequence[Notes]) -> dict[str, object]:
    """One claim, its grants in order, each with its notes."""
    return {
        "uid": found.claim.uid,
        "namespace": found.claim.namespace,
        "name": found.claim.name,
        "state": found.state.value,
        "bootID": found.boot_id,
        "grants": [_grant(kept, own) for kept, own in zip(found.grants, notes, strict=True)],
    }


def taints(found: Mapping[str, Sequence[device.Taint]]) -> list[dict[str, object]]:
    """The taints by device."""
    return [
        {"device": name, "key": one.key, "value": one.value, "effect": one.effect.value, "timeAdded": _time(one)}
        for name, kept in found.items()
        for one in kept
    ]


def _grant(kept: lifecycle.GrantEntry, notes: Notes) -> dict[str, object]:
    return {
        "request": kept.request,
        "pool": kept.pool,
        "device": kept.device.name,
        "shareID": kept.share_id,
        "adminAccess": kept.admin_access,
        "consumedCapacity": device_json.encode_amounts(kept.consumed_capacity),
        "parameters": None if kept.parameters is None else records.thaw(kept.parameters),
        "configSource": None if kept.config_source is None else kept.config_source.value,
        "intent": records.thaw(kept.intent),
        "record": records.thaw(kept.record),
        "edits": None if kept.edits is None else edits_json.encode(kept.edits),
        "notes": {key: records.thaw(note) for key, note in notes.items()},
        "snapshot": device_json.encode(kept.device),
    }


def _time(one: device.Taint) -> str | None:
    return None if one.time_added is None else one.time_added.isoformat()
