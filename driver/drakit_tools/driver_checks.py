"""What drakit's drivers refuse in claims, classes and pods, by the functions of the webhook and of prepare."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.admission import lenient_json, opaque, whole_objects
from drakit.core import claim as claims
from drakit.core import errors, names, records
from drakit.kube import claim_codec

if TYPE_CHECKING:
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.scheduling.explain import whatif

_NAMESPACE = "default"
_NO_UID = names.ClaimUid("00000000-0000-0000-0000-000000000000")
_OF_ONE_DEVICE = re.compile(r"device \S+ of ")
_SUBJECTS = {whole_objects.CLAIM: "claim", whole_objects.TEMPLATE: "template", whole_objects.CLASS: "DeviceClass"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """A mistake of an object, such as ``claim default/a``. ``more`` is the number of further pods of its workload that have it too."""

    subject: str
    error: errors.ConfigError
    more: int = 0


def known(objects: "Iterable[Object]") -> whole_objects.Known:
    """Return the claims, templates and classes among objects, which have kinds."""
    return {reference(kind, obj): obj for obj in objects if isinstance(kind := obj.get("kind"), str) and kind in opaque.KINDS}


def reference(kind: str, obj: "Object") -> whole_objects.Reference:
    """Return the reference to an object, which is in the namespace ``default`` if it names none."""
    namespace = lenient_json.text(obj, "metadata", "namespace") or _NAMESPACE
    return kind, "" if kind == whole_objects.CLASS else namespace, lenient_json.text(obj, "metadata", "name")


def of_object(kind: str, obj: lenient_json.Object, rules: opaque.Rules, others: whole_objects.Known) -> Sequence[errors.ConfigError]:
    """Return the mistakes of a claim, template or class with which its drivers prepare nothing."""
    return opaque.mistakes(kind, obj, rules) or whole_objects.of_claim(kind, obj, rules, others)


def of_decisions(world: "whatif.World", decisions: "Sequence[whatif.Decision]", rules: opaque.Rules) -> list[Refusal]:
    """Return what the drivers refuse in pods and claims that the scheduler decided, with their classes; each mistake of a workload's pods once."""
    found: dict[tuple[str, str, str], Refusal] = {}
    subjects: dict[tuple[str, str, str], set[str]] = {}
    for subject, error in _Decided(world, decisions, rules).mistakes():
        workload = world.workloads.get(subject.removeprefix("pod "), subject)
        key = (workload, error.field, _OF_ONE_DEVICE.sub("", error.reason))
        subjects.setdefault(key, set()).add(subject)
        earlier = found.get(key, Refusal(subject=subject, error=error))
        found[key] = dataclasses.replace(earlier, more=len(subjects[key]) - 1)
    return list(found.values())


class _Decided:
    """The objects that decisions concern."""

    def __init__(self, world: "whatif.World", decisions: "Sequence[whatif.Decision]", rules: opaque.Rules) -> None:
        self._world, self._decisions, self._rules = world, decisions, rules
        self._subjects = {decision.subject for decision in decisions}
        by_kind = {whole_objects.CLAIM: world.claims, whole_objects.TEMPLATE: world.templates, whole_objects.CLASS: world.classes}
        self._known: whole_objects.Known = {reference(kind, obj): obj for kind, objects in by_kind.items() for obj in objects}

    def mistakes(self) -> Iterator[tuple[str, errors.ConfigError]]:
        """Yield each mistake with its subject: those of claims and classes first, then of pods, then of allocated devices."""
        pods = [pod for pod in self._world.pods if f"pod {_label(pod)}" in self._subjects]
        for kind, namespace, name in self._concerned(pods):
            if (obj := self._known.get((kind, namespace, name))) is not None:
                yield from ((_subject((kind, namespace, name)), error) for error in of_object(kind, obj, self._rules, self._known))
        for pod in pods:
            spec, namespace = lenient_json.mapping(pod, "spec"), lenient_json.text(pod, "metadata", "namespace")
            of_pod = whole_objects.of_pod(spec, self._rules, self._known, namespace=namespace)
            yield from ((f"pod {_label(pod)}", error) for error in of_pod)
        for decision in self._decisions:
            for given in decision.given:
                source = self._source(decision.subject, given.claim)
                yield from (self._placed(given.claim, source, entry, error) for entry, error in self._refused(given))

    def _concerned(self, pods: "Sequence[Object]") -> list[whole_objects.Reference]:
        """Return the claims and templates of the pods and decisions, with their classes."""
        from drakit_cluster.client import pod_claims

        found: dict[whole_objects.Reference, None] = {}
        for pod in pods:
            namespace = lenient_json.text(pod, "metadata", "namespace")
            found |= dict.fromkeys(whole_objects.claims_of(pod.get("spec"), namespace).values())
            found |= {(whole_objects.CLAIM, namespace, entry.claim): None for entry in pod_claims.references(pod) if entry.claim}
        for kind in (whole_objects.CLAIM, whole_objects.TEMPLATE):
            own = [key for key in self._known if key[0] == kind]
            found |= dict.fromkeys(key for key in own if f"{_SUBJECTS[kind]} {key[1]}/{key[2]}" in self._subjects)
        classes = [entry for key in found for entry in whole_objects.classes_of(key[0], self._known.get(key, {}))]
        return [*found, *dict.fromkeys(classes)]

    def _source(self, subject: str, claim: str) -> whole_objects.Reference | None:
        """Return the claim or template that says what an allocated claim is; None for one made for extended resources."""
        kind, _, label = subject.partition(" ")
        namespace, _, name = claim.partition("/")
        if kind == _SUBJECTS[whole_objects.TEMPLATE]:
            return (whole_objects.TEMPLATE, namespace, label.partition("/")[2])
        if (own := (whole_objects.CLAIM, namespace, name)) in self._known:
            return own
        pods = [pod for pod in self._world.pods if _label(pod) == label]
        groups = [group for group in self._world.groups if lenient_json.text(group, "metadata", "namespace") == namespace]
        for owner in (*pods, *groups):
            for entry, source in whole_objects.claims_of(owner.get("spec"), namespace).items():
                if f"{lenient_json.text(owner, 'metadata', 'name')}-{entry}" == name:
                    return source
        return None

    def _placed(
        self, claim: str, source: whole_objects.Reference | None, entry: claims.OpaqueConfig, error: errors.ConfigError
    ) -> tuple[str, errors.ConfigError]:
        """Return an error of a configuration with the object that has it, and its path there."""
        holders = [source] if source is not None else []
        if entry.source is claims.ConfigSource.CLASS:
            own_classes = [name for key in holders for name in whole_objects.classes_of(key[0], self._known.get(key, {}))]
            holders = own_classes or [key for key in self._known if key[0] == whole_objects.CLASS]
        for holder in holders:
            path = opaque.KINDS[holder[0]].path
            for number, written in enumerate(lenient_json.objects(self._known.get(holder), *path)):
                if _is_written(entry, written):
                    return _subject(holder), error.with_prefix(f"{'.'.join(path)}[{number}].opaque")
        return f"claim {claim}", error

    def _refused(self, given: "whatif.Given") -> Iterator[tuple[claims.OpaqueConfig, errors.ConfigError]]:
        """Yield configurations that name a request and fit no device that it got, and those that the attributes of such a device rule out."""
        namespace, _, name = given.claim.partition("/")
        stored = {"metadata": {"uid": _NO_UID, "namespace": namespace, "name": name}, "status": {"allocation": given.allocation}}
        try:
            claim = claim_codec.decode(stored, claims.ClaimRef(uid=_NO_UID, namespace=namespace, name=name))
        except errors.ClaimError:  # Such as parameters that are no object, which of_object reports.
            return
        if claim.configs:
            yield from opaque.misfits(claim, self._attributes, self._rules)
            yield from opaque.refused_devices(claim, self._attributes, self._rules)

    def _attributes(self, result: claims.AllocationResult) -> Mapping[str, object]:
        return self._attributes_by_device.get((result.driver, result.pool, result.device), {})

    @functools.cached_property
    def _attributes_by_device(self) -> Mapping[tuple[str, str, str], Mapping[str, object]]:
        from drakit_cluster.objects import devices, json_types, mixins

        return {
            (driver, json_types.text(spec, "pool", "name"), json_types.text(device, "name")): devices.plain_attributes(driver, device)
            for resource_slice in self._world.slices
            if (driver := json_types.text(resource_slice, "spec", "driver")) in self._rules
            for spec in [mixins.flatten(json_types.mapping(resource_slice, "spec"))]
            for device in json_types.objects(spec, "devices")
        }


def _is_written(entry: claims.OpaqueConfig, written: lenient_json.Object) -> bool:
    """Return whether a configuration of an allocation is that of an object. The scheduler writes the requests of a class's."""
    named = written.get("requests") == list(entry.requests) or entry.source is claims.ConfigSource.CLASS
    parameters = lenient_json.at(written, "opaque", "parameters")
    return named and lenient_json.text(written, "opaque", "driver") == entry.driver and parameters == records.thaw(entry.parameters)


def _subject(key: whole_objects.Reference) -> str:
    kind, namespace, name = key
    return f"{_SUBJECTS[kind]} {namespace}/{name}" if namespace else f"{_SUBJECTS[kind]} {name}"


def _label(obj: "Object") -> str:
    from drakit_cluster.objects import naming

    return naming.label(obj)
