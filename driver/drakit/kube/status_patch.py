"""Device statuses of a claim as a JSON patch, for claims whose status cannot be written by server-side apply.

The API server compares opaque parameters, and the ``data`` of other drivers, byte by byte. Server-side apply sorts their keys, so that for
parameters stored in another order it seems to change the allocation, and is refused. A JSON patch keeps the order in everything that it does not
name. But each write in JSON removes white space and escapes ``<``, ``>`` and ``&``, so that the API server refuses every write of the status of a
claim that was stored with these, whoever makes it. Our own data has sorted keys, so that our patch keeps no other driver from applying.
"""

from collections.abc import Mapping, Sequence

from drakit.core import claim_status, records
from drakit.kube import stored_claim

PATCH_TYPE = "application/json-patch+json"
_DEVICES = "/status/devices"
_VALUES = ("data", "networkData")

Entry = dict[str, object]
Entries = Mapping[claim_status.DeviceKey, Entry]


def operations(claim: stored_claim.StoredClaim, driver: str, ours: Entries, wanted: Entries) -> Sequence[records.Record]:
    """Return the operations that replace our entries by those wanted, in this version of the claim; none where that changes nothing."""
    changed: list[records.Record] = []
    removed: list[records.Record] = []
    missing = dict(wanted)
    for index, stored in enumerate(claim.entries):
        key = stored.key
        if stored.driver != driver or not (key in ours or key in wanted):
            continue
        before = dict(stored.stored)
        after = _following(before, ours.get(key, {}), missing.pop(key, {}))
        if not after:
            removed.insert(0, {"op": "remove", "path": f"{_DEVICES}/{index}"})
        elif after != before:
            changed.append(_operation("replace", f"{_DEVICES}/{index}", after))
    added = [missing[key] for key in sorted(missing)]
    if added and not claim.entries:
        added_last = [_operation("add", _DEVICES, added)]
    else:
        added_last = [_operation("add", f"{_DEVICES}/-", entry) for entry in added]
    steps = [*changed, *removed, *added_last]
    version = claim.resource_version
    return [_operation("replace", "/metadata/resourceVersion", version), *steps] if steps else []


def _following(before: Entry, ours: Entry, wanted: Entry) -> Entry:
    """Return the stored entry without what is ours of it and with what is wanted; empty when nothing is left to say."""
    replaced = {one["type"] for entry in (ours, wanted) for one in _conditions(entry)}
    conditions = [one for one in _conditions(before) if one["type"] not in replaced] + _conditions(wanted)
    rest = {name: value for name, value in before.items() if name != "conditions" and not (name in _VALUES and name in ours)}
    if not (conditions or wanted or any(rest.get(name) for name in _VALUES)):
        return {}
    return {**rest, **wanted, **({"conditions": conditions} if conditions else {})}


def _conditions(entry: Entry) -> list[Mapping[str, object]]:
    conditions = entry.get("conditions")
    return [one for one in conditions if isinstance(one, Mapping)] if isinstance(conditions, list) else []


def _operation(verb: str, path: str, value: object) -> records.Record:
    return {"op": verb, "path": path, "value": records.freeze(_sorted(value))}


def _sorted(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value
