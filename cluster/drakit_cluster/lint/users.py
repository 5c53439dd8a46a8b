"""Mistakes in pods, PodGroups and the pods of workloads: missing claims, templates and PodGroups, and wrong references in containers.

The pod template of a workload is checked against the fields of a pod. The server itself checks the fields of pods.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drakit_cluster.admission import workloads as workload_rules
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.informer import key_of
from drakit_cluster.lint import findings, pod_templates, refusals
from drakit_cluster.lint.findings import Finding
from drakit_cluster.lint.pod_templates import PodSpec
from drakit_cluster.manifests import DEFAULT_NAMESPACE, Accepted, Document, Problem
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.schema import decoding, unknown_fields, workloads
from drakit_cluster.objects.schema.shape import ANY
from drakit_cluster.objects.validation import fields, names, pods
from drakit_cluster.scheduling import extended

_MODEL = "V1PodSpec"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_OF_CLAIMS = re.compile(r"\.(resourceClaims|resources\.claims)\b")
_ENDING = frozenset({"Job", "CronJob"})
"""The workloads whose pods end."""
_SOURCES = (("resourceClaimName", "ResourceClaim"), ("resourceClaimTemplateName", "ResourceClaimTemplate"))


def is_user(document: Document) -> bool:
    """Return whether the document has pod specs that this module checks."""
    return pod_templates.has_any(document)


@dataclass(frozen=True, kw_only=True)
class KnownClaims:
    """Claims and templates by kind, namespace and name, each with the names of its requests; the names of all classes; and the PodGroups.

    What the server refused is known too: its requests are None, and its PodGroup is empty.
    """

    requests: Mapping[tuple[str, str, str], frozenset[str] | None] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    groups: Mapping[Key, Object] = field(default_factory=dict)

    @classmethod
    def of(
        cls, claims: Iterable[Accepted], classes: Iterable[str], groups: Iterable[Accepted], refused: Collection[tuple[str, str, str]]
    ) -> "KnownClaims":
        """Return what is known. ``refused`` are kind, namespace and name of objects that the server refused."""
        specs = dict(map(_claim_spec, claims))
        kinds = {kind for _, kind in _SOURCES}
        refused_groups: dict[Key, Object] = {Key(namespace, name): {} for kind, namespace, name in refused if kind == "PodGroup"}
        return cls(
            requests={
                **{key: None for key in refused if key[0] in kinds},
                **{key: _request_names(spec) for key, spec in specs.items()},
            },
            classes=frozenset(classes),
            groups=refused_groups | {key_of(group.object): group.object for group in groups},
        )

    def names(self, kind: str, namespace: str) -> set[str]:
        return {name for known_kind, place, name in self.requests if (known_kind, place) == (kind, namespace)}

    def namespaces(self, kind: str, name: str) -> list[str]:
        return sorted(place for known_kind, place, other in self.requests if (known_kind, other) == (kind, name))

    def missing(self, document: Document, entry: Object, path: str) -> Iterator[Finding]:
        """Yield the claim or template that an entry of spec.resourceClaims names and no file has."""
        namespace = _namespace(document)
        for field_name, kind in _SOURCES:
            name = json_types.text(entry, field_name)
            if name and self.requests and (kind, namespace, name) not in self.requests:
                text = f"{kind} {namespace}/{name} is not in these files"
                yield findings.warning(document, f"{path}.{field_name}", text, self._elsewhere(kind, namespace, name))

    def _elsewhere(self, kind: str, namespace: str, name: str) -> str:
        """Return the fix for a name that belongs to the other kind or to another namespace."""
        for field_name, other in _SOURCES:
            if other != kind and name in self.names(other, namespace):
                return f"it is a {other}: write {field_name}"
        if namespaces := self.namespaces(kind, name):
            return f"it is in namespace {namespaces[0]}: move both to one namespace"
        return findings.suggestion_or_add(name, self.names(kind, namespace))


def _namespace(document: Document) -> str:
    return json_types.text(document.body, "metadata", "namespace") or DEFAULT_NAMESPACE


def _claim_spec(accepted: Accepted) -> tuple[tuple[str, str, str], Object]:
    template = accepted.document.resource is resources.CLAIM_TEMPLATE
    spec = json_types.mapping(accepted.object, "spec", "spec") if template else json_types.mapping(accepted.object, "spec")
    metadata = json_types.mapping(accepted.object, "metadata")
    kind = "ResourceClaimTemplate" if template else "ResourceClaim"
    return (kind, json_types.text(metadata, "namespace"), json_types.text(metadata, "name")), spec


def _request_names(spec: Object) -> frozenset[str]:
    return frozenset(json_types.text(request, "name") for request in json_types.objects(spec, "devices", "requests"))


def check(documents: Sequence[Document], known_claims: KnownClaims) -> Iterator[Finding]:
    """Yield mistakes in the references of all pods and PodGroups. Names are checked only if the files contain claims or templates."""
    for document in documents:
        if document.resource is resources.POD_GROUP:
            for place, entry in enumerate(json_types.objects(document.body, "spec", "resourceClaims")):
                yield from known_claims.missing(document, entry, f"spec.resourceClaims[{place}]")
        pods_of_document = list(pod_templates.of(document))
        if pod_templates.is_workload(document):
            yield from refusals.check(_of_workload(document, pods_of_document))
        for pod in pods_of_document:
            yield from _Pod(document, pod, known_claims).check()


def _of_workload(document: Document, pods_of_document: Sequence[PodSpec]) -> Iterator[Problem]:
    """Yield what the server refuses in a workload outside its pod specs. A status that ``kubectl get -o yaml`` wrote is not checked."""
    kind = json_types.text(document.body, "kind")
    model, body = f"V1{kind}", {name: value for name, value in document.body.items() if name != "status"}
    for path in unknown_fields.find(ANY, model, body, ""):
        if not any(path.startswith(f"{pod.path}.") for pod in pods_of_document):
            yield Problem(document=document, field=path, text="unknown field", part=("", ANY, model))
    failures = list(workload_rules.mismatch(body))
    if kind != "PodTemplate":
        for pod in pods_of_document:
            failures += workload_rules.restart_policy(pod.spec, pod.path, ends=kind in _ENDING)
    for failure in failures:
        yield Problem(document=document, field=failure.field, text=failure.message)


class _Pod:
    """One pod spec."""

    def __init__(self, document: Document, pod: PodSpec, known_claims: KnownClaims) -> None:
        self._document = document
        self._known_claims = known_claims
        self._path = pod.path
        self._spec = pod.spec
        self._is_whole = pod.is_whole
        self._namespace = _namespace(document)
        self._entries = {json_types.text(entry, "name"): entry for entry in json_types.objects(self._spec, "resourceClaims")}
        self._used: set[str] = set()
        self._is_well_formed = True
        statuses = json_types.objects(document.body, "status", "resourceClaimStatuses")
        self._generated = {json_types.text(status, "name") for status in statuses if document.resource is resources.POD}

    def check(self) -> Iterator[Finding]:
        yield from refusals.check(problem for problem in self._problems() if self._is_whole or _OF_CLAIMS.search(problem.field))
        for kind in _CONTAINERS:
            for place, container in enumerate(json_types.objects(self._spec, kind)):
                for number, use in enumerate(json_types.objects(container, "resources", "claims")):
                    yield from self._use(use, f"{self._path}.{kind}[{place}].resources.claims[{number}]")
        for place, entry in enumerate(json_types.objects(self._spec, "resourceClaims")):
            yield from self._entry(entry, f"{self._path}.resourceClaims[{place}]")
        yield from self._group()
        for resource in sorted(extended.requested({"spec": self._spec})):
            name = resource.removeprefix(extended.CLASS_PREFIX)
            if name != resource and self._known_claims.classes and name not in self._known_claims.classes:
                text = f"requests {resource}, but DeviceClass {name} is not in these files"
                yield findings.warning(
                    self._document, self._place_of(resource), text, findings.suggestion_or_add(name, self._known_claims.classes)
                )

    def _place_of(self, resource: str) -> str:
        """Return the path of the first container's limit or request of an extended resource."""
        for kind in _CONTAINERS:
            for place, container in enumerate(json_types.objects(self._spec, kind)):
                for amounts in ("limits", "requests"):
                    if resource in json_types.mapping(container, "resources", amounts):
                        return f"{self._path}.{kind}[{place}].resources.{amounts}[{resource}]"
        return f"{self._path}.containers"

    def _problems(self) -> Iterator[Problem]:
        """Yield what the server refuses in the fields of the workload's pods."""
        pod_spec_shape, decoder = workloads.POD.fields["spec"], decoding.Decoder()
        part = (self._path, pod_spec_shape, _MODEL)
        try:
            decoded = decoder.decode(pod_spec_shape, self._spec, self._path)
        except errors.BadRequestError as error:
            field_name, _, text = error.message.partition(": ")
            self._is_well_formed = False
            if self._document.resource is not resources.POD:
                yield Problem(document=self._document, field=field_name, text=text, part=part)
            return
        unknown = decoder.unknown if self._document.resource is not resources.POD else []  # The server reported those of a pod.
        for path in [*unknown, *unknown_fields.find(pod_spec_shape, _MODEL, self._spec, self._path)]:
            yield Problem(document=self._document, field=path, text="unknown field", part=part)
        if self._document.resource is resources.POD:
            return
        name = json_types.text(self._document.body, "metadata", "name")
        failures = [*(names.subdomain(name, "metadata.name") if name else ()), *fields.check(pod_spec_shape, decoded, self._path)]
        for failure in [*failures, *pods.of_spec(json_types.mapping(decoded), self._path)]:
            yield Problem(document=self._document, field=failure.field, text=failure.message, part=part)

    def _entry(self, entry: Object, path: str) -> Iterator[Finding]:
        name = json_types.text(entry, "name")
        if name not in self._generated:
            yield from self._known_claims.missing(self._document, entry, path)
        if name and name not in self._used and self._is_well_formed:
            text = f"no container uses {name}: its devices are allocated, but no container gets them"
            yield findings.warning(self._document, path, text, f"add resources: {{claims: [{{name: {name}}}]}} to a container")

    def _group(self) -> Iterator[Finding]:
        """Yield a PodGroup that no file has, if any file has one, and the entries that differ from the group's entry of their name."""
        name, groups = json_types.text(self._spec, "schedulingGroup", "podGroupName"), self._known_claims.groups
        if not name or not groups:
            return
        if (group := groups.get(Key(self._namespace, name))) is None:
            path, names = f"{self._path}.schedulingGroup.podGroupName", [key.name for key in groups if key.namespace == self._namespace]
            text = f"PodGroup {self._namespace}/{name} is not in these files"
            yield findings.warning(self._document, path, text, findings.suggestion_or_add(name, names))
            return
        shared = {json_types.text(entry, "name"): entry for entry in json_types.objects(group, "spec", "resourceClaims")}
        for place, entry in enumerate(json_types.objects(self._spec, "resourceClaims")):
            wanted = shared.get(json_types.text(entry, "name"))
            if wanted is not None and any(entry.get(field_name) != wanted.get(field_name) for field_name, _ in _SOURCES):
                text = f"is not the same as the entry of this name of PodGroup {name}: the pod does not use the group's claim"
                fix = ", ".join(f"{field_name}: {wanted[field_name]}" for field_name, _ in _SOURCES if field_name in wanted)
                yield findings.warning(self._document, f"{self._path}.resourceClaims[{place}]", text, f"write {fix}")

    def _use(self, use: Object, path: str) -> Iterator[Finding]:
        name, request = json_types.text(use, "name"), json_types.text(use, "request")
        self._used.add(name)
        if name not in self._entries:  # The server refuses it.
            return
        request_names = self._requests(self._entries[name])
        if request and request_names is not None and request not in request_names:
            text = f"the claim has no request {request}: the container gets no device"
            yield findings.warning(self._document, f"{path}.request", text, findings.suggestion(request, request_names))

    def _requests(self, entry: Object) -> frozenset[str] | None:
        for field_name, kind in _SOURCES:
            request_names = self._known_claims.requests.get((kind, self._namespace, json_types.text(entry, field_name)))
            if request_names is not None:
                return request_names
        return None
