"""Samples as documentation shows them: a part of an object, or dots in place of omitted fields. Linting reports both, and checks the rest.

A server accepts neither, so only linting reads them. Linting completes a part to an object, and ignores the dots.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from drakit_cluster.objects import json_types, reading, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.reading import Part
from drakit_cluster.objects.resources import CLAIM, CLASS, SLICE, Resource
from drakit_cluster.objects.schema import claims, devices
from drakit_cluster.objects.schema.shape import Leaf, ListOf, Shape

_DOTS = re.compile(r"^[ \t]*\.\.\.[ \t]*$", re.MULTILINE)
_NAME = "part"


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A part that a sample omits: its field, a text that describes it, and the fix."""

    field: str
    text: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An object, completed if possible, and what the sample omits."""

    part: Part
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A possible place of a part: ``path`` in an object of a kind. ``spec`` builds the spec that has the part at this path."""

    resource: Resource
    path: str
    fields: Mapping[str, Shape]
    spec: Callable[[Object], Object] = lambda part: part

    def fits(self, part: Object) -> int:
        """Return how many fields of a part fit here, or 0 if one of them would need another form."""
        fields = [(self.fields[name], value) for name, value in part.items() if name in self.fields]
        return len(fields) if all(_has_form(shape, value) for shape, value in fields) else 0


def _has_form(shape: Shape, value: Json) -> bool:
    return isinstance(shape, Leaf) or value is None or isinstance(value, list) is isinstance(shape, ListOf)


def _of_capacity(part: Object) -> Object:
    return {"devices": [{"name": _NAME, "allowMultipleAllocations": True, "capacity": {_NAME: part}}]}


_PLACES = (
    _Place(resource=SLICE, path="spec", fields=devices.SLICE_SPEC.fields),
    _Place(resource=CLAIM, path="spec", fields=claims.CLAIM_SPEC.fields),
    _Place(resource=CLASS, path="spec", fields=claims.CLASS_SPEC.fields),
    _Place(resource=SLICE, path=f"spec.devices[0].capacity[{_NAME}]", fields=devices.CAPACITY.fields, spec=_of_capacity),
)


def read(text: str) -> list[Sample]:
    """Return the objects of a text, each with what it omits. Raises ReadingError."""
    gaps: list[int] = []
    try:
        parts = reading.parts(text)
    except reading.ReadingError:
        gaps = [text.count("\n", 0, dots.start()) + 1 for dots in _DOTS.finditer(text)]
        if not gaps:
            raise
        parts = reading.parts(_DOTS.sub("", text))
    ends = [part.line for part in parts[1:]]
    return [_sample(part, [gap for gap in gaps if _owns(place, gap, ends)]) for place, part in enumerate(parts)]


def _owns(place: int, line: int, starts: list[int]) -> bool:
    """Return whether a line belongs to the document at ``place``; ``starts`` are the first lines of the documents after the first."""
    return sum(start <= line for start in starts) == place


def _sample(part: Part, gaps: list[int]) -> Sample:
    missing = [Missing(field="", text=f"line {line}: the dots stand for omitted fields", fix="write it out") for line in gaps]
    body = part.body
    if not isinstance(body, dict) or (json_types.text(body, "apiVersion") and json_types.text(body, "kind")):
        return Sample(part=part, missing=tuple(missing))
    if kind := json_types.text(body, "kind"):
        return _with_version(part, body, kind, missing)
    place = max(_PLACES, key=lambda candidate: candidate.fits(body))
    if "apiVersion" in body or not place.fits(body):
        return Sample(part=part, missing=tuple(missing))
    obj: Object = {"apiVersion": place.resource.api_version, "kind": place.resource.kind}
    obj |= {"metadata": {"name": f"{_NAME}-{part.number}"}, "spec": place.spec(body)}
    text = f"this is a part only: {place.path} of a {place.resource.kind}"
    fix = f"write apiVersion: {place.resource.api_version}, kind: {place.resource.kind} and metadata, and put it into {place.path}"
    missing.append(Missing(field="", text=text, fix=fix))
    return Sample(part=replace(part, body=obj, inside=place.path), missing=tuple(missing))


def _with_version(part: Part, body: Object, kind: str, missing: list[Missing]) -> Sample:
    resource = next(_of_kind(kind), None)
    if resource is None:
        return Sample(part=part, missing=tuple(missing))
    missing.append(Missing(field="apiVersion", text="Required value", fix=f"write {resource.api_version}"))
    return Sample(part=replace(part, body={"apiVersion": resource.api_version, **body}), missing=tuple(missing))


def _of_kind(kind: str) -> Iterator[Resource]:
    return (resource for resource in resources.ALL if resource.kind == kind and resource.group == resources.RESOURCE_GROUP)
