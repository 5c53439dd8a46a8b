"""Reads the objects of a live cluster, and notes what could not be read and what that means for an answer."""

import dataclasses
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.core import errors
from drakit.kube import client, transport
from drakit.telemetry import plurals

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates, Gate
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource
    from drakit_cluster.scheduling.explain.whatif import Note

LIST_SECONDS = 30.0
_FORBIDDEN, _NOT_FOUND = 403, 404
_SHOWN_OBJECTS = 3
_INDEX = re.compile(r"\[[^\]]*\]")
_WITHOUT: Mapping[str, str] = {
    "DeviceClass": "only the classes of the files are known",
    "Node": "the nodes are those that slices name, and their labels, taints and cordons are not known",
    "DeviceTaintRule": "devices that a rule taints count as free of that taint",
    "PodGroup": "pods that use claims of a PodGroup do not find it",
    "Pod": "extended resources that running pods use count as free, their anti-affinity is not followed, and pending pods are not decided",
}
"""By kind that an answer can do without: what the answer then assumes. Without another kind there is no answer."""
_UNUSED = "no rule taints a device"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """The objects of a cluster by kind, and the notes on what is missing among them."""

    objects: "Mapping[Resource, list[Object]]"
    notes: "Sequence[Note]"


def read(kubeconfig: pathlib.Path | None) -> Reading:
    """Return all objects on which a decision depends. Raise SettingsError, or ApiError if slices or claims cannot be read."""
    from drakit_cluster.objects import resources

    api = client.connect(kubeconfig)
    try:
        reader = _Reader(api)
        kinds = (
            resources.SLICE,
            resources.CLASS,
            resources.CLAIM,
            resources.NODE,
            resources.TAINT_RULE,
            resources.POD,
            resources.POD_GROUP,
        )
        return Reading(objects={kind: reader.readable(kind) for kind in kinds}, notes=reader.notes)
    finally:
        api.close()


class _Reader:
    def __init__(self, api: transport.Transport) -> None:
        from drakit_cluster.objects import resources

        self._api = api
        self._served = {group: _discovered(api, group) for group in (resources.RESOURCE_GROUP, resources.SCHEDULING_GROUP)}
        self.notes: list[Note] = []

    def readable(self, kind: "Resource") -> "list[Object]":
        """Return the objects of a kind that can be read. Raise ApiError if there is no answer without the kind."""
        try:
            items = self._items(kind)
        except errors.ApiError as error:
            if error.status not in (_FORBIDDEN, _NOT_FOUND):
                raise errors.ApiError(f"{kind.plural}: {error}", status=error.status, reason=error.reason) from error
            self._missing(kind, error)
            return []
        if not isinstance(items, (list, tuple)):
            self._note(f"the list of {kind.plural} has no items and is ignored, so {_consequence(kind)}", doubtful=True)
            return []
        objects: list[Object] = []
        unreadable: list[str] = []
        for item in items:
            reason = _unreadable(kind, item)
            if reason:
                unreadable.append(reason)
            elif isinstance(item, dict):
                objects.append(item)
        if unreadable:
            more = f" and {len(unreadable) - _SHOWN_OBJECTS} more" if len(unreadable) > _SHOWN_OBJECTS else ""
            counted = plurals.counted(len(unreadable), kind.kind)
            self._note(f"{counted} cannot be read and count as absent: {'; '.join(unreadable[:_SHOWN_OBJECTS])}{more}", doubtful=True)
        return objects

    def _items(self, kind: "Resource") -> object:
        """Return the list of a kind, at the best API version that the server has. Raise ApiError."""
        from drakit_cluster.objects import resources

        versions = [served for served in resources.SERVED if (served.group, served.kind) == (kind.group, kind.kind)]
        if (found := self._served.get(kind.group)) is not None:
            versions = [served for served in versions if (served.version, served.plural) in found]
        for served in versions:
            try:
                return self._api.request("GET", served.path(), timeout=LIST_SECONDS).get("items")
            except errors.ApiError as error:
                if error.status != _NOT_FOUND:
                    raise
        raise errors.ApiError("the server does not serve them", status=_NOT_FOUND)

    def _missing(self, kind: "Resource", error: errors.ApiError) -> None:
        from drakit_cluster.objects import resources

        reason = f"{kind.plural} cannot be listed ({error.status})"
        fix = f"allow this user to list {kind.qualified}" if error.status == _FORBIDDEN else f"the server does not serve {kind.qualified}"
        if kind.kind not in _WITHOUT:
            raise errors.ApiError(f"{reason}, so nothing can be decided: {fix}", status=error.status, reason=error.reason) from error
        if error.status == _NOT_FOUND and kind is resources.POD_GROUP:
            return  # Most servers have none, and a pod that names one is said to.
        is_unused = error.status == _NOT_FOUND and kind is resources.TAINT_RULE
        self._note(f"{reason}, so {_UNUSED if is_unused else _consequence(kind)}: {fix}", doubtful=not is_unused)

    def _note(self, text: str, *, doubtful: bool) -> None:
        from drakit_cluster.scheduling.explain.whatif import Note

        self.notes.append(Note(text=text, doubtful=doubtful))


def _consequence(kind: "Resource") -> str:
    return _WITHOUT.get(kind.kind, "what they say is not considered")


def _discovered(api: transport.Transport, group: str) -> frozenset[tuple[str, str]] | None:
    """Return API version and plural of each kind of a group that the server serves; None if it does not tell."""
    base = f"/apis/{group}"
    try:
        versions = _fields(api.request("GET", base, timeout=LIST_SECONDS), "versions", "version")
        lists = {version: api.request("GET", f"{base}/{version}", timeout=LIST_SECONDS) for version in versions}
    except errors.ApiError as error:
        if error.status == _NOT_FOUND:
            return frozenset()
        if error.status == _FORBIDDEN:
            return None
        raise
    return frozenset((version, plural) for version, served in lists.items() for plural in _fields(served, "resources", "name"))


def _fields(answer: transport.Object, listed: str, field: str) -> list[str]:
    """Return the texts of one field of the entries of a list."""
    entries = answer.get(listed)
    values = [entry.get(field) for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, (list, tuple)) else []
    return [value for value in values if isinstance(value, str) and value]


def _unreadable(kind: "Resource", item: object) -> str:
    """Return name and reason of an object that cannot be read; "" for one that can."""
    from drakit_cluster.objects import errors as object_errors
    from drakit_cluster.objects import json_types, naming, resources
    from drakit_cluster.objects.schema import table

    if not isinstance(item, dict):
        return "an item is not an object"
    label = naming.label(item) or "an object without a name"
    if not isinstance(item.get("metadata"), dict) or not json_types.text(item, "metadata", "name"):
        return f"{label}: metadata.name is missing"
    if kind.group == resources.RESOURCE_GROUP:
        try:
            table.decode(kind, {**item, "apiVersion": kind.api_version, "kind": kind.kind})
        except object_errors.ApiError as error:
            return f"{label}: {error.message}"
    return ""


def used_gates(
    objects: "Mapping[Resource, Sequence[Object]]", gates: "FeatureGates", explicit: Collection[str]
) -> "tuple[FeatureGates, list[Note]]":
    """Return the gates with those on whose fields a server stored, except ``explicit`` ones.

    The notes name these gates, and fields that drakit, the version or an explicit gate does not consider, each once.
    """
    from drakit_cluster.objects import resources
    from drakit_cluster.scheduling.explain.whatif import Note

    notes: dict[str, Note] = {}
    used: set[Gate] = set()
    for resource, listed in objects.items():
        for kind_gate, note in _gates_of_kind(resource, listed, gates, explicit):
            notes.setdefault(kind_gate, note)
            if kind_gate not in explicit:
                used.add(kind_gate)
        for entry in listed if resource.group in (resources.RESOURCE_GROUP, resources.SCHEDULING_GROUP) else ():
            for key, gate, note in _unconsidered(resource, entry, gates, explicit):
                notes.setdefault(key, note)
                if gate is not None:
                    used.add(gate)
    return dataclasses.replace(gates, enabled=gates.enabled | used), list(notes.values())


def as_version(objects: "Mapping[Resource, Sequence[Object]]", gates: "FeatureGates") -> "Mapping[Resource, Sequence[Object]]":
    """Return the objects without the fields that a Kubernetes version does not have."""
    from drakit_cluster.objects import features
    from drakit_cluster.objects.schema import table

    def read(resource: "Resource", entry: "Object") -> "Object":
        if not any(span for span, _, _ in features.absent_places(resource, entry, gates)):
            return entry
        named = {**entry, "apiVersion": resource.api_version, "kind": resource.kind}
        return table.decode(resource, named, gates.decoding)[0]

    return {resource: [read(resource, entry) for entry in listed] for resource, listed in objects.items()}


def unselective_rules(rules: "Sequence[Object]", gates: "FeatureGates") -> "Iterator[Note]":
    """Yield a note for each DeviceTaintRule without deviceSelector, which schedulers before 1.38 follow against the API."""
    from drakit_cluster.objects import json_types, naming
    from drakit_cluster.objects.versions import Rule
    from drakit_cluster.scheduling.explain.whatif import Note

    for rule in rules if not gates.follows(Rule.SELECTOR_REQUIRED) else ():
        if json_types.at(rule, "spec", "deviceSelector") is None:
            label = naming.label(rule)
            yield Note(
                text=f"DeviceTaintRule {label} has no deviceSelector: schedulers before 1.38 taint every device with it, against the API"
            )


def _gates_of_kind(
    resource: "Resource", listed: "Sequence[Object]", gates: "FeatureGates", explicit: Collection[str]
) -> "Iterator[tuple[Gate, Note]]":
    """Yield each gate that is off and without which a server has no objects of this kind."""
    from drakit_cluster.objects import features, naming
    from drakit_cluster.scheduling.explain.whatif import Note

    for gate in features.gates_of_kind(resource) if listed else ():
        if gate not in gates.enabled:
            text = f"feature gate {gate} is taken to be on, because the server has {resource.kind} {naming.label(listed[0])}"
            yield gate, Note(text=f"{resource.kind}s are ignored: feature gate {gate} is off" if gate in explicit else text)


def _unconsidered(
    resource: "Resource", entry: "Object", gates: "FeatureGates", explicit: Collection[str]
) -> "Iterator[tuple[str, Gate | None, Note]]":
    """Yield key, gate to turn on and note for each field of an object that is not considered, or only with a gate."""
    from drakit_cluster.objects import features, naming, versions
    from drakit_cluster.objects.schema import table
    from drakit_cluster.scheduling.explain.whatif import Note

    label = f"{resource.kind} {naming.label(entry)}"
    for path in table.decode(resource, {**entry, "apiVersion": resource.api_version, "kind": resource.kind})[1]:
        yield _INDEX.sub("[]", path), None, Note(text=f"{label}: {path} is not known to drakit and is ignored", doubtful=True)
    absent = [place for place in features.absent_places(resource, entry, gates) if place[0]]
    for span, path, _ in absent:
        why = f"Kubernetes {gates.version} does not have it ({versions.have_it(span)})"
        yield _INDEX.sub("[]", path), None, Note(text=f"{label}: {path} is ignored: {why}")
    for gate, path, _ in features.disabled_fields(resource, entry, gates):
        if any(path == place[1] for place in absent):
            continue
        if gate in explicit:
            yield gate, None, Note(text=f"{label}: {path} is ignored: feature gate {gate} is off")
        else:
            yield gate, gate, Note(text=f"feature gate {gate} is taken to be on, because {label} has {path}")


def without_replaced(kind: "Resource", listed: "Sequence[Object]", own: "Sequence[Object]") -> "tuple[list[Object], list[Note]]":
    """Return the cluster's objects without those that the files have under the same name, and a note for each of these."""
    from drakit_cluster.objects import naming
    from drakit_cluster.scheduling.explain.whatif import Note

    names = {naming.label(entry) for entry in own}
    kept = [entry for entry in listed if naming.label(entry) not in names]
    replaced = sorted(names & {naming.label(entry) for entry in listed})
    return kept, [Note(text=f"{kind.kind} {name} is that of the files, not that of the cluster") for name in replaced]
