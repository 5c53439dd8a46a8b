"""All rules over the documents of some files."""

from collections.abc import Iterator, Sequence

from drakit.cluster import json_types, manifests, resources, selectors
from drakit.cluster.features import FeatureGates, Gate
from drakit.cluster.linting import demand, findings, served, supply
from drakit.cluster.linting.catalogue import Catalogue
from drakit.cluster.linting.findings import Finding
from drakit.cluster.manifests import Accepted, Document, Intake
from drakit.cluster.resources import Resource


def lint(documents: Sequence[Document], gates: FeatureGates) -> list[Finding]:
    """Return what is wrong, in the order of the documents, errors of each first."""
    intake = manifests.take(documents, gates)
    position = {id(document): place for place, document in enumerate(documents)}
    found = [*_misspelt(documents), *served.check(intake.problems), *_between(intake, gates)]
    return sorted(found, key=lambda one: (position[id(one.document)], one.severity))


def _misspelt(documents: Sequence[Document]) -> Iterator[Finding]:
    """Objects of the API group whose kind does not exist in it; kinds of other groups are none of our business."""
    kinds = {one.kind for one in resources.SERVED if one.group == resources.RESOURCE_GROUP}
    for document in documents:
        kind, group = json_types.text(document.body, "kind"), json_types.text(document.body, "apiVersion").rpartition("/")[0]
        if document.resource is None and group == resources.RESOURCE_GROUP and kind not in kinds:
            yield findings.error(document, "kind", f"{resources.RESOURCE_GROUP} has no kind {kind}", findings.suggestion(kind, kinds))


def _between(intake: Intake, gates: FeatureGates) -> Iterator[Finding]:
    taken = _of(intake, resources.SLICE)
    kept = {id(one.document) for one in taken}
    refused = [one.document for one in intake.problems if one.document.resource is resources.SLICE and id(one.document) not in kept]
    offered = Catalogue(taken, refused)
    classes = {json_types.text(one.object, "metadata", "name"): one for one in _of(intake, resources.CLASS)}
    judge = demand.Demand(
        offered=offered,
        classes=classes,
        selectors=selectors.Selectors(gates),
        lists=gates.on(Gate.LIST_TYPE_ATTRIBUTES),
    )
    yield from supply.check(offered)
    for one in classes.values():
        yield from judge.of_class(one)
    for one in (*_of(intake, resources.CLAIM), *_of(intake, resources.CLAIM_TEMPLATE)):
        yield from judge.of_claim(one)


def _of(intake: Intake, resource: Resource) -> list[Accepted]:
    return [one for one in intake.accepted if one.document.resource is resource]
