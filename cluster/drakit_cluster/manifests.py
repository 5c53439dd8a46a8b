"""Files with Kubernetes objects, read as a server would accept them: YAML or JSON, several documents, Lists; refusals with their fields.

The server is a new registry: it names, defaults, drops and validates as the local cluster does. Files may have fields that are not
part of a request to create an object: a status, a UID, and what ``kubectl get -o yaml`` adds. Status, UID and owners are kept. An object
with a UID counts as stored: gates that are off drop none of its fields, and its expressions may use features of those gates.
"""

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from drakit_cluster.api.registry import DEFAULT_NAMESPACES, Registry
from drakit_cluster.objects import errors, features, fragments, json_types, reading, resources, versions
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.fragments import Missing
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.reading import Part
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Shape

SIZE_MAX = 64 << 20
DEFAULT_NAMESPACE = "default"
_ORDER = (
    resources.NAMESPACE,
    resources.NODE,
    resources.CLASS,
    resources.SLICE,
    resources.CLAIM_TEMPLATE,
    resources.CLAIM,
    resources.POD_GROUP,
    resources.POD,
    resources.TAINT_RULE,
)
"""The kinds that are checked, in the order in which a server gets them."""
_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_FIELD = re.compile(r"([A-Za-z][\w.\[\]/-]*): (.*)", re.DOTALL)


class ManifestError(Exception):
    """A file that is not a list of objects. The message names the file and, if known, the document."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """One object of a file. ``number`` counts the file's documents from 1; ``resource`` is None for kinds that are not checked.

    ``missing`` is what a sample omits. It is empty if objects must be complete. ``workload`` is the document of which a pod was made, and
    ``template`` the path of the pod's template in it.
    """

    file: str
    number: int
    resource: Resource | None
    body: Object
    part: Part = field(repr=False)
    missing: tuple[Missing, ...] = ()
    workload: "Document | None" = field(default=None, repr=False)
    template: str = ""

    @property
    def label(self) -> str:
        """Kind and name, with the namespace for kinds that have one, for people."""
        name = json_types.text(self.body, "metadata", "name") or f"{json_types.text(self.body, 'metadata', 'generateName')}*"
        namespace = json_types.text(self.body, "metadata", "namespace")
        if not namespace and self.resource is not None and self.resource.namespaced:
            namespace = DEFAULT_NAMESPACE
        return f"{json_types.text(self.body, 'kind')} {f'{namespace}/' if namespace else ''}{name}"

    def place(self, field: str = "") -> str:
        """File and line of a field, as editors and compilers write it."""
        return f"{self.file}:{self.part.line_of(self.written(field))}"

    def written(self, field: str) -> str:
        """Return the path of a field in the file: of a pod's field, in its workload."""
        return f"{self.template}.{field}" if self.template and field else field


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A server's error for a document, or a field that it would silently drop. ``field`` is empty for the whole object.

    ``part`` is the path, shape and model of the part of a document that was checked, where the document itself was not.
    """

    document: Document
    field: str
    text: str
    part: tuple[str, Shape, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """An accepted document, and the object that the server created from it."""

    document: Document
    object: Object


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Fields that a server drops: the path of the first field, and their number. ``field`` is empty for a kind that it does not serve.

    ``gate`` is the one that is off; None if the version does not have the field, and ``span`` names the versions that have it.
    """

    document: Document
    field: str
    count: int
    version: str
    gate: Gate | None = None
    span: str = ""

    @property
    def why(self) -> str:
        """Why the server drops it, for people."""
        if self.gate is None:
            return f"only Kubernetes {versions.since(self.span).removeprefix('only ')} has it"
        unreleased = "" if versions.gate_span(self.gate.value) else ", and no released version of Kubernetes has it"
        return f"feature gate {self.gate} is off{unreleased}"


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The result of reading documents."""

    accepted: list[Accepted] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def objects(self, resource: Resource) -> list[Object]:
        """Return the objects of one kind, in the order of the documents."""
        return [accepted.object for accepted in self.accepted if accepted.document.resource is resource]


def read(file: str, text: str, *, samples: bool = False, others: bool = False) -> list[Document]:
    """Return the objects in ``text``; of a List, its items. Raises ManifestError.

    With ``samples``, objects may be incomplete. With ``others``, a text may have none: nothing in it has apiVersion or kind.
    """
    if len(text) > SIZE_MAX:
        raise ManifestError(f"{file}: is larger than {SIZE_MAX >> 20} MiB")
    if samples and not file.endswith(".json"):
        return _samples(file, text, others=others)
    try:
        parts = reading.parts(text, must_be_json=file.endswith(".json"))
    except reading.ReadingError as error:
        raise ManifestError(f"{file}: {error}") from error
    return [] if others and _has_no_object(parts) else [_document(file, item) for part in parts for item in _flat(part)]


def _has_no_object(parts: Iterable[Part]) -> bool:
    return not any({"apiVersion", "kind"} & json_types.mapping(part.body).keys() for part in parts)


def of_objects(source: str, objects: Iterable[Object]) -> list[Document]:
    """Return the documents of objects that are in no file, such as those of a cluster."""
    return [_document(source, Part(number=number, first_line=0, body=obj)) for number, obj in enumerate(objects, 1)]


def _samples(file: str, text: str, *, others: bool) -> list[Document]:
    try:
        samples = fragments.read(text)
    except reading.ReadingError as error:
        raise ManifestError(f"{file}: {error}") from error
    if others and _has_no_object(sample.part for sample in samples):
        return []
    return [replace(_document(file, part), missing=sample.missing) for sample in samples for part in _flat(sample.part)]


def _flat(part: Part) -> list[Part]:
    """Return the objects of a document."""
    is_list = json_types.text(part.body, "kind").endswith("List") and isinstance(json_types.at(part.body, "items"), list)
    return part.items() if is_list else [part]


def _document(file: str, part: Part) -> Document:
    body = part.body
    kind, version = json_types.text(body, "kind"), json_types.text(body, "apiVersion")
    if not isinstance(body, dict) or not kind or not version:
        missing = " nor ".join(name for name, value in (("apiVersion", version), ("kind", kind)) if not value)
        where = f"{file}: document {part.number} (line {part.line})"
        raise ManifestError(f"{where}: an object needs apiVersion and kind, and this has no {missing}")
    group = version.rpartition("/")[0]
    resource = next((served for served in _ORDER if (served.group, served.kind) == (group, kind)), None)
    return Document(file=file, number=part.number, resource=resource, body=body, part=part)


def take(documents: Iterable[Document], gates: FeatureGates) -> Intake:
    """Return the result of sending the documents to a server with these gates. Documents of other kinds are skipped."""
    intake = Intake()
    registry = Registry(gates=gates)
    stored = Registry(registry.store, gates=FeatureGates(enabled=frozenset(Gate), version=gates.version))
    checked = [entry for entry in documents if entry.resource is not None]
    for resource in _ORDER:
        for document in checked:
            if document.resource is resource:
                _take(document, resource, stored if json_types.text(document.body, "metadata", "uid") else registry, intake)
    position = {id(document): place for place, document in enumerate(checked)}
    intake.accepted.sort(key=lambda accepted: position[id(accepted.document)])
    intake.problems.sort(key=lambda problem: position[id(problem.document)])
    return intake


def _take(document: Document, resource: Resource, registry: Registry, intake: Intake) -> None:
    gates, asked = registry.gates, replace(resource, version=json_types.text(document.body, "apiVersion").rpartition("/")[2])
    if (gate := features.missing_gate(asked, gates)) is not None:
        intake.dropped.append(Dropped(document=document, gate=gate, field="", count=1, version=gates.version))
        return
    if asked not in resources.SERVED or not gates.serves(asked):
        intake.problems.append(Problem(document=document, field="apiVersion", text=features.not_served(asked, gates)))
    try:
        body, unknown = table.decode(resource, document.body | {"apiVersion": resource.api_version})
        intake.problems.extend(Problem(document=document, field=path, text="unknown field") for path in unknown)
        intake.dropped.extend(_dropped(document, resource, body, gates))
        status = json_types.mapping(body, "status")
        stored = _create(body, resource, registry)
        intake.accepted.append(Accepted(document=document, object=stored))
        if resource is resources.CLAIM and status:
            _check_status(stored, status, registry)
    except errors.ApiError as error:
        intake.problems.extend(_problems(document, error))


def _dropped(document: Document, resource: Resource, body: Object, gates: FeatureGates) -> Iterable[Dropped]:
    """Yield what the version does not have, and what it drops because a gate is off."""
    absent = [place for place in features.absent_places(resource, body, gates) if place[0]]
    for span, path, count in absent:
        yield Dropped(document=document, field=path, count=count, version=gates.version, span=span)
    for gate, path, count in features.disabled_fields(resource, body, gates):
        if path not in {place[1] for place in absent}:
            yield Dropped(document=document, field=path, count=count, version=gates.version, gate=gate)


def _check_status(claim: Object, status: Object, registry: Registry) -> None:
    """Let the server validate a claim's status as a write of the scheduler or driver. Raises ApiError."""
    metadata = json_types.mapping(claim, "metadata")
    stored = registry.get(resources.CLAIM, json_types.text(metadata, "name"), json_types.text(metadata, "namespace"))
    registry.update(resources.CLAIM, stored | {"status": json_types.copy(status)}, subresource="status")


def _create(body: Object, resource: Resource, registry: Registry) -> Object:
    metadata = json_types.mapping(body, "metadata")
    preserved: Object = {name: metadata[name] for name in ("uid", "ownerReferences") if name in metadata}
    status, namespace = body.pop("status", None), ""
    for name in _SERVER_FIELDS:
        metadata.pop(name, None)
    if resource.namespaced:
        namespace = json_types.text(metadata, "namespace") or DEFAULT_NAMESPACE
        # A namespace may have any label, so it gets the one that admin access requires.
        _ensure(resources.NAMESPACE, {"metadata": {"name": namespace, "labels": {_ADMIN_LABEL: "true"}}}, registry)
    if resource is resources.POD:
        _ensure_account(body, namespace, registry)
    name = json_types.text(metadata, "name")
    if resource is resources.NAMESPACE and name in DEFAULT_NAMESPACES:
        return _relabelled(name, metadata, registry)
    stored = registry.create(resource, body, namespace=namespace)
    json_types.child(stored, "metadata").update(preserved)
    return stored if status is None else stored | {"status": status}


def _relabelled(namespace: str, metadata: Object, registry: Registry) -> Object:
    """Return a namespace that every cluster has, with the labels of the document."""
    stored = registry.get(resources.NAMESPACE, namespace, "")
    json_types.child(stored, "metadata")["labels"] = json_types.copy(json_types.mapping(metadata, "labels"))
    return registry.update(resources.NAMESPACE, stored)


def _ensure(resource: Resource, obj: Object, registry: Registry) -> None:
    """Create an object that other objects need and that no document describes."""
    with contextlib.suppress(errors.AlreadyExistsError):
        registry.create(resource, obj)


def _ensure_account(pod: Object, namespace: str, registry: Registry) -> None:
    """Create the ServiceAccount that a pod names: whether it exists is not a question about devices."""
    name = json_types.text(pod, "spec", "serviceAccountName") or json_types.text(pod, "spec", "serviceAccount")
    with contextlib.suppress(errors.InvalidError):  # The name is invalid for a ServiceAccount: the server then refuses the pod.
        _ensure(resources.SERVICEACCOUNT, {"metadata": {"name": name, "namespace": namespace}}, registry)


def _problems(document: Document, error: errors.ApiError) -> Sequence[Problem]:
    if causes := error.details.causes:
        return [Problem(document=document, field=cause.field, text=cause.message) for cause in causes]
    match = _FIELD.fullmatch(error.message) if isinstance(error, errors.BadRequestError) else None
    path, text = match.groups() if match else ("", error.message)
    return [Problem(document=document, field=path, text=text)]
