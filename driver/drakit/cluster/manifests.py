"""Files with Kubernetes objects, read as a server would take them: YAML or JSON, several documents, Lists; refusals with their fields.

A fresh registry is the server: it names, defaults, drops and validates exactly as the local cluster does. What files have beyond a request
to create (a status, a UID, what ``kubectl get -o yaml`` adds) is kept where it says something about the world.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import yaml

from drakit.cluster import errors, json_types, resources
from drakit.cluster.features import FeatureGates
from drakit.cluster.json_types import Json, Object
from drakit.cluster.registry import Registry
from drakit.cluster.resources import Resource
from drakit.cluster.schema import table

SIZE_MAX = 64 << 20
_ORDER = (
    resources.NAMESPACE,
    resources.NODE,
    resources.CLASS,
    resources.SLICE,
    resources.CLAIM_TEMPLATE,
    resources.CLAIM,
    resources.POD,
)
"""The kinds that are looked at, in the order in which a server gets them."""
_GIVEN_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_FIELD = re.compile(r"([A-Za-z][\w.\[\]/-]*): (.*)", re.DOTALL)


class ManifestError(Exception):
    """A file that is no list of objects. The message names the file and, where there is one, the document."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """One object of a file. ``number`` counts the file's documents from 1; ``resource`` is None for kinds that are not looked at."""

    file: str
    number: int
    resource: Resource | None
    body: Object

    @property
    def label(self) -> str:
        """Kind and name, for people."""
        name = json_types.text(self.body, "metadata", "name") or f"{json_types.text(self.body, 'metadata', 'generateName')}*"
        return f"{json_types.text(self.body, 'kind')} {name}"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a server refuses a document, or what it would silently drop. ``field`` is empty where the whole object is meant."""

    document: Document
    field: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A document that was taken, and the object that the server made of it."""

    document: Document
    object: Object


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What became of some documents."""

    accepted: list[Accepted] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def objects(self, resource: Resource) -> list[Object]:
        """Return the objects of one kind, in the order of the documents."""
        return [one.object for one in self.accepted if one.document.resource is resource]


class _JsonLikeLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # Either loader is a class.
    """YAML as Kubernetes reads it, by way of JSON: what looks like a date stays text."""


_JsonLikeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(file: str, text: str) -> list[Document]:
    """Return the objects in ``text``, Lists taken apart. Raise ManifestError."""
    if len(text) > SIZE_MAX:
        raise ManifestError(f"{file}: is larger than {SIZE_MAX >> 20} MiB")
    try:
        bodies = list(yaml.load_all(text, Loader=_JsonLikeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ManifestError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    documents = []
    for number, body in enumerate(bodies, 1):
        documents += [_document(file, number, one) for one in _flat(body)]
    return documents


def _flat(body: Json) -> Iterator[Json]:
    """Yield the objects of a document; an empty one has none."""
    if json_types.text(body, "kind").endswith("List") and isinstance(json_types.at(body, "items"), list):
        yield from json_types.items(body, "items")
    elif body is not None:
        yield body


def _document(file: str, number: int, body: Json) -> Document:
    kind, version = json_types.text(body, "kind"), json_types.text(body, "apiVersion")
    if not isinstance(body, dict) or not kind or not version:
        raise ManifestError(f"{file}: document {number}: an object needs apiVersion and kind")
    group = version.rpartition("/")[0]
    resource = next((one for one in _ORDER if (one.group, one.kind) == (group, kind)), None)
    return Document(file=file, number=number, resource=resource, body=body)


def take(documents: Iterable[Document], gates: FeatureGates) -> Intake:
    """Return what a server with these gates makes of the documents. Those of other kinds are left out."""
    intake = Intake()
    registry = Registry(gates=gates)
    known = [one for one in documents if one.resource is not None]
    for resource in _ORDER:
        for document in known:
            if document.resource is resource:
                _take(document, resource, registry, intake)
    position = {id(document): place for place, document in enumerate(known)}
    intake.accepted.sort(key=lambda one: position[id(one.document)])
    intake.problems.sort(key=lambda one: position[id(one.document)])
    return intake


def _take(document: Document, resource: Resource, registry: Registry, intake: Intake) -> None:
    version = json_types.text(document.body, "apiVersion")
    served = {one.api_version for one in resources.SERVED if (one.group, one.kind) == (resource.group, resource.kind)}
    if version not in served:
        text = f"{version} is not served: write {resource.api_version}"
        intake.problems.append(Problem(document=document, field="apiVersion", text=text))
    try:
        body, unknown = table.decode(resource, document.body | {"apiVersion": resource.api_version})
        intake.problems.extend(Problem(document=document, field=path, text="unknown field") for path in unknown)
        intake.accepted.append(Accepted(document=document, object=_create(body, resource, registry)))
    except errors.ApiError as error:
        intake.problems.extend(_problems(document, error))


def _create(body: Object, resource: Resource, registry: Registry) -> Object:
    metadata = json_types.mapping(body, "metadata")
    known: Object = {name: metadata[name] for name in ("uid", "ownerReferences") if name in metadata}
    status, namespace = body.pop("status", None), ""
    for name in _GIVEN_BY_SERVER:
        metadata.pop(name, None)
    if resource.namespaced:
        namespace = json_types.text(metadata, "namespace") or "default"
        _ensure_namespace(namespace, registry)
    made = registry.create(resource, body, namespace=namespace)
    json_types.child(made, "metadata").update(known)
    return made if status is None else made | {"status": status}


def _ensure_namespace(name: str, registry: Registry) -> None:
    """Make a namespace that no document describes; it may have any label, so it gets the one that admin access asks for."""
    try:
        registry.create(resources.NAMESPACE, {"metadata": {"name": name, "labels": {_ADMIN_LABEL: "true"}}})
    except errors.AlreadyExistsError:
        return


def _problems(document: Document, error: errors.ApiError) -> Sequence[Problem]:
    if causes := error.details.causes:
        return [Problem(document=document, field=cause.field, text=cause.message) for cause in causes]
    found = _FIELD.fullmatch(error.message) if isinstance(error, errors.BadRequestError) else None
    where, text = found.groups() if found else ("", error.message)
    return [Problem(document=document, field=where, text=text)]
