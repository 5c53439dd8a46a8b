"""Reads the objects of a live cluster, and notes what could not be read and what that means for an answer."""

import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.admission import lenient_json
from drakit.core import errors
from drakit.kube import client, transport
from drakit.telemetry import plurals
from drakit_tools import manifests

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates, Gate
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource
    from drakit_cluster.scheduling.explain.whatif import Note

_FORBIDDEN, _NOT_FOUND = 403, 404
_SHOWN_OBJECTS = 3
_PAGE = 500
_INDEX = re.compile(r"\[[^\]]*\]")
_WITHOUT: Mapping[str, str] = {
    "DeviceClass": "only the classes of the files are known",
    "Node": "the nodes are those that slices name, and their labels, taints and cordons are not known",
    "DeviceTaintRule": "devices that a rule taints count as free of that taint",
    "PodGroup": "pods that use claims of a PodGroup do not find it",
    "Pod": "extended resources that running pods use count as free, their anti-affinity is not followed, and pending pods are not decided",
}
"""By kind that a decision can do without: what the decision then assumes. Without another kind there is no decision."""
_UNUSED = "no rule taints a device"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """The objects of a cluster by kind, and the notes on what is missing among them."""

    objects: "Mapping[Resource, list[Object]]"
    notes: "Sequence[Note]"
    partial: Collection[str]
    """The kinds of which there may be others, because some could not be read."""


def read(kubeconfig: pathlib.Path | None) -> Reading:
    """Return all objects on which a decision depends. Raise SettingsError, or ApiError if slices or claims cannot be read."""
    return _read(kubeconfig, _deciding(), decides=True)


def read_to_check(kubeconfig: pathlib.Path | None) -> Reading:
    """Return all objects that lint checks. Raise SettingsError, or ApiError if there are none and some cannot be read."""
    from drakit_cluster.objects import resources

    workloads = (
        resources.DEPLOYMENT,
        resources.REPLICA_SET,
        resources.STATEFUL_SET,
        resources.DAEMON_SET,
        resources.CRON_JOB,
        resources.JOB,
    )
    kinds = (*_deciding(), resources.CLAIM_TEMPLATE, *workloads)
    reading = _read(kubeconfig, kinds, decides=False)
    if not any(reading.objects.values()) and reading.notes:
        raise errors.ApiError(f"nothing to check: {reading.notes[0].text}", status=_FORBIDDEN)
    return reading


def _deciding() -> "Sequence[Resource]":
    """Return the kinds on which a decision depends."""
    from drakit_cluster.objects import resources

    return (
        resources.SLICE,
        resources.CLASS,
        resources.CLAIM,
        resources.NODE,
        resources.TAINT_RULE,
        resources.POD,
        resources.POD_GROUP,
    )


def _read(kubeconfig: pathlib.Path | None, kinds: "Sequence[Resource]", *, decides: bool) -> Reading:
    api = client.connect(kubeconfig)
    try:
        reader = _Reader(api, decides=decides)
        objects = {kind: reader.readable(kind) for kind in kinds}
        return Reading(objects=objects, notes=reader.notes, partial=reader.partial)
    finally:
        api.close()


class _Reader:
    def __init__(self, api: transport.Transport, *, decides: bool) -> None:
        """``decides`` says that the objects are read for a decision, which cannot do without some kinds; a check can do without any."""
        from drakit_cluster.objects import resources

        self._api = api
        self._decides = decides
        self._served = {group: _discovered(api, group) for group in (resources.RESOURCE_GROUP, resources.SCHEDULING_GROUP)}
        self.notes: list[Note] = []
        self.partial: set[str] = set()

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
            self._note(f"the list of {kind.plural} has no items and is ignored, so {self._consequence(kind)}", doubtful=True)
            self.partial.add(kind.kind)
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
            self.partial.add(kind.kind)
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
                return self._listed(served.path())
            except errors.ApiError as error:
                if error.status != _NOT_FOUND:
                    raise
        raise errors.ApiError("the server does not serve them", status=_NOT_FOUND)

    def _listed(self, path: str) -> object:
        """Return the items of a list, read page by page. Raise ApiError."""
        query = {"limit": str(_PAGE)}
        listed: list[object] = []
        while True:
            page = self._api.request("GET", path, query=query, timeout=manifests.LIST_SECONDS)
            items = page.get("items")
            if not isinstance(items, (list, tuple)):
                return items
            listed += items
            query["continue"] = lenient_json.text(page, "metadata", "continue")
            if not query["continue"]:
                return listed

    def _missing(self, kind: "Resource", error: errors.ApiError) -> None:
        from drakit_cluster.objects import resources

        is_forbidden = error.status == _FORBIDDEN
        reason = f"{kind.plural} {'may not be listed' if is_forbidden else 'are not served'} ({error.status}) and are not considered"
        fix = f"allow this user to list {kind.qualified}" if is_forbidden else f"check that the server serves {kind.qualified}"
        if self._decides and kind.kind not in _WITHOUT:
            reason = reason.removesuffix(" and are not considered")
            raise errors.ApiError(f"{reason}, so nothing can be decided: {fix}", status=error.status, reason=error.reason) from error
        self.partial |= {kind.kind} if is_forbidden else set()
        if error.status == _NOT_FOUND and (not self._decides or kind is resources.POD_GROUP):
            return  # Most servers have no PodGroups. A pod that names one gets an error of its own.
        is_unused = error.status == _NOT_FOUND and kind is resources.TAINT_RULE
        consequence = _UNUSED if is_unused else f"{self._consequence(kind)}: {fix}"
        self._note(f"{reason}, so {consequence}", doubtful=not is_unused)

    def _consequence(self, kind: "Resource") -> str:
        return _WITHOUT.get(kind.kind, "what they say is not considered") if self._decides else "they are not checked"

    def _note(self, text: str, *, doubtful: bool) -> None:
        from drakit_cluster.scheduling.explain.whatif import Note

        self.notes.append(Note(text=text, doubtful=doubtful))


def _discovered(api: transport.Transport, group: str) -> frozenset[tuple[str, str]] | None:
    """Return API version and plural of each kind of a group that the server serves; None if it refuses to say."""
    base = f"/apis/{group}"
    try:
        versions = _fields(api.request("GET", base, timeout=manifests.LIST_SECONDS), "versions", "version")
        lists = {version: api.request("GET", f"{base}/{version}", timeout=manifests.LIST_SECONDS) for version in versions}
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
    if kind.group in (resources.RESOURCE_GROUP, resources.SCHEDULING_GROUP):
        try:
            table.decode(kind, {**item, "apiVersion": kind.api_version, "kind": kind.kind})
        except object_errors.ApiError as error:
            return f"{label}: {error.message}"
    return ""


def as_version(
    objects: "Mapping[Resource, Sequence[Object]]", gates: "FeatureGates", explicit: Collection[str]
) -> "tuple[Mapping[Resource, Sequence[Object]], FeatureGates, list[Note]]":
    """Return the objects as a version reads them, and the gates with those on whose fields or kinds the server stored, except ``explicit`` ones.

    The notes name everything that is ignored or assumed, each once.
    """
    from drakit_cluster.objects import resources

    notes: dict[str, Note] = {}
    used: set[Gate] = set()
    read = {**objects}
    for resource in objects:
        if resource.group in (resources.RESOURCE_GROUP, resources.SCHEDULING_GROUP):
            judged = [_judge(resource, entry, gates, explicit) for entry in objects[resource]]
            read[resource] = [entry.object for entry in judged]
            used.update(gate for entry in judged for gate in entry.used)
            for entry in judged:
                notes = entry.notes | notes
    chosen = dataclasses.replace(gates, enabled=gates.enabled | used)
    return read, chosen, [*notes.values(), *_unselective(objects.get(resources.TAINT_RULE, ()), chosen)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Judged:
    """An object as a version reads it, the gates that it shows to be on, and notes by what they are about."""

    object: "Object"
    used: "Collection[Gate]"
    notes: "dict[str, Note]"


def _judge(resource: "Resource", entry: "Object", gates: "FeatureGates", explicit: Collection[str]) -> _Judged:
    from drakit_cluster.objects import features, naming, versions
    from drakit_cluster.objects.schema import table
    from drakit_cluster.scheduling.explain.whatif import Note

    label = f"{resource.kind} {naming.label(entry)}"
    notes: dict[str, Note] = {}
    absent = {path: span for span, path, _ in features.absent_places(resource, entry, gates) if span}
    for path, span in absent.items():
        why = f"Kubernetes {gates.version} lacks it; {versions.have_it(span)}"
        notes.setdefault(_INDEX.sub("[]", path), Note(text=f"{label}: {path} is ignored: {why}"))
    stored = [(gate, f"{label} has {path}") for gate, path, _ in features.disabled_fields(resource, entry, gates) if path not in absent]
    stored += [(gate, f"there is {label}") for gate in features.gates_of_kind(resource) if gate not in gates.enabled]
    for gate, because in stored:
        off = f"{label}: feature gate {gate} is off, although the server stored it"
        notes.setdefault(gate, Note(text=off if gate in explicit else f"feature gate {gate} is taken to be on, because {because}"))
    pruned, unknown = table.decode(resource, {**entry, "apiVersion": resource.api_version, "kind": resource.kind})
    for path in unknown:
        notes.setdefault(_INDEX.sub("[]", path), Note(text=f"{label}: {path} is ignored: drakit does not know it", doubtful=True))
    return _Judged(
        object=table.decode(resource, pruned, gates.decoding)[0] if absent else entry,
        used=[gate for gate, _ in stored if gate not in explicit],
        notes=notes,
    )


def _unselective(rules: "Sequence[Object]", gates: "FeatureGates") -> "list[Note]":
    """Return a note for each rule without a selector, if the version has schedulers that taint every device with it."""
    from drakit_cluster.objects import json_types, naming
    from drakit_cluster.objects.versions import Rule
    from drakit_cluster.scheduling.explain.whatif import Note

    what = "has no deviceSelector: schedulers before 1.38 taint every device with it, against the API"
    named = [naming.label(rule) for rule in rules if json_types.at(rule, "spec", "deviceSelector") is None]
    return [] if gates.follows(Rule.SELECTOR_REQUIRED) else [Note(text=f"DeviceTaintRule {name} {what}") for name in named]


def without_replaced(kind: "Resource", listed: "Sequence[Object]", own: "Sequence[Object]") -> "tuple[list[Object], list[Note]]":
    """Return the cluster's objects without those that the files have under the same name, and a note for each of these."""
    from drakit_cluster.objects import naming
    from drakit_cluster.scheduling.explain.whatif import Note

    names = {naming.label(entry) for entry in own}
    kept = [entry for entry in listed if naming.label(entry) not in names]
    replaced = sorted(names & {naming.label(entry) for entry in listed})
    return kept, [Note(text=f"{kind.kind} {name} is that of the files, not that of the cluster") for name in replaced]
