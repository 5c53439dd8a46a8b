"""Build a JSON patch of a claim's device statuses, for claims whose status cannot be written by server-side apply.

The API server compares opaque parameters, and the ``data`` of other drivers, byte by byte. Server-side apply sorts their keys, so for parameters that
are stored in another order it seems to change the allocation and is rejected. A JSON patch keeps the order of everything that it does not name.
But each write in JSON removes white space and escapes ``<``, ``>`` and ``&``. So the API server rejects every status write, of any program, to a
claim that was stored with these. This driver's data has sorted keys, so its patch does not block the server-side apply of other drivers.
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
    """Return the operations that replace our entries by the wanted ones in this version of the claim, none if nothing changes."""
    changed: list[records.Record] = []
    removed: list[records.Record] = []
    missing = dict(wanted)
    for index, stored in enumerate(claim.entries):
        key = stored.key
        if stored.driver != driver or not (key in ours or key in wanted):
            continue
        before = dict(stored.stored)
        after = _merged_entry(before, ours.get(key, {}), missing.pop(key, {}))
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


def _merged_entry(before: Entry, ours: Entry, wanted: Entry) -> Entry:
    """Return the stored entry without our parts and with the wanted ones; empty when no part is left."""
    replaced = {condition["type"] for entry in (ours, wanted) for condition in _conditions(entry)}
    conditions = [condition for condition in _conditions(before) if condition["type"] not in replaced] + _conditions(wanted)
    rest = {name: value for name, value in before.items() if name != "conditions" and not (name in _VALUES and name in ours)}
    if not (conditions or wanted or any(rest.get(name) for name in _VALUES)):
        return {}
    return {**rest, **wanted, **({"conditions": conditions} if conditions else {})}


def _conditions(entry: Entry) -> list[Mapping[str, object]]:
    conditions = entry.get("conditions")
    return [condition for condition in conditions if isinstance(condition, Mapping)] if isinstance(conditions, list) else []


def _operation(verb: str, path: str, value: object) -> records.Record:
    return {"op": verb, "path": path, "value": records.freeze(_with_sorted_keys(value))}


def _with_sorted_keys(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _with_sorted_keys(value[name]) for name in sorted(value)}
    return [_with_sorted_keys(element) for element in value] if isinstance(value, list | tuple) else value
