"""All rules over the documents of some files."""

from collections.abc import Iterator, Sequence

from drakit_cluster import cel as selectors
from drakit_cluster import manifests
from drakit_cluster.lint import demand, findings, fitting, refusals, supply, users
from drakit_cluster.lint.catalogue import Catalogue
from drakit_cluster.lint.findings import Finding, Severity
from drakit_cluster.manifests import Accepted, Document, Intake
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.resources import Resource


def lint(documents: Sequence[Document], gates: FeatureGates, others: Sequence[Finding] = ()) -> list[Finding]:
    """Return all findings in the order of the documents, with the errors of each first.

    ``others`` are the caller's findings. One is dropped if a rule here finds a mistake in the same field.
    """
    intake = manifests.take(documents, gates)
    position = {id(document): place for place, document in enumerate(documents)}
    found = [
        *_left_out(documents),
        *_misspelt(documents),
        *refusals.check(intake.problems),
        *refusals.dropped(intake.dropped),
        *_between(documents, intake, gates),
    ]
    known = {(id(one.document), one.field) for one in found}
    found += [one for one in others if (id(one.document), one.field) not in known]
    return sorted(found, key=lambda one: (position[id(one.document)], one.severity))


def skipped(documents: Sequence[Document]) -> list[Document]:
    """Return the documents that are not checked, because their kinds do not concern devices."""
    kinds = _kinds()
    return [
        one
        for one in documents
        if one.resource is None and not users.is_user(one) and (_group(one) != resources.RESOURCE_GROUP or _kind(one) in kinds)
    ]


def _left_out(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield what a sample lacks before a server could check it."""
    for document in documents:
        yield from (findings.error(document, one.field, one.text, one.fix) for one in document.missing)


def _misspelt(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield objects of the API group with an unknown kind. Kinds of other groups are ignored."""
    kinds = _kinds()
    for document in documents:
        kind = _kind(document)
        if document.resource is None and _group(document) == resources.RESOURCE_GROUP and kind not in kinds:
            yield findings.error(document, "kind", f"{resources.RESOURCE_GROUP} has no kind {kind}", findings.suggestion(kind, kinds))


def _kinds() -> set[str]:
    return {one.kind for one in resources.SERVED if one.group == resources.RESOURCE_GROUP}


def _kind(document: Document) -> str:
    return json_types.text(document.body, "kind")


def _group(document: Document) -> str:
    return json_types.text(document.body, "apiVersion").rpartition("/")[0]


def _between(documents: Sequence[Document], intake: Intake, gates: FeatureGates) -> Iterator[Finding]:
    """Yield mistakes between objects."""
    slices, rules = _of(intake, resources.SLICE), _of(intake, resources.TAINT_RULE)
    kept = {id(one.document) for one in slices}
    refused = [one.document for one in intake.problems if one.document.resource is resources.SLICE and id(one.document) not in kept]
    offered = Catalogue(slices, refused, [rule.object for rule in rules])
    asked = [*_of(intake, resources.CLAIM), *_of(intake, resources.CLAIM_TEMPLATE)]
    of_supply = [*supply.check_pools(offered), *supply.check_nodes(slices, intake.objects(resources.NODE))]
    yield from of_supply
    yield from supply.check_amounts(intake.accepted)
    yield from supply.check_rules(rules, offered)
    yield from users.check(documents, users.KnownClaims.of(asked, intake.objects(resources.CLASS)))
    of_demand = list(_asked(intake, offered, asked, gates))
    yield from of_demand
    if offered.is_whole and not any(one.severity is Severity.ERROR for one in of_supply):
        wrong = {id(one.document) for one in of_demand}
        right = [one for one in asked if id(one.document) not in wrong]
        yield from fitting.check(intake, right, _of(intake, resources.POD), gates)


def _asked(intake: Intake, offered: Catalogue, asked: Sequence[Accepted], gates: FeatureGates) -> Iterator[Finding]:
    judge = demand.Demand(
        offered=offered,
        classes={json_types.text(one.object, "metadata", "name"): one for one in _of(intake, resources.CLASS)},
        selectors=selectors.Selectors(gates),
        lists=gates.on(Gate.LIST_TYPE_ATTRIBUTES),
        tainting=gates.on(Gate.DEVICE_TAINTS),
    )
    for one in judge.classes.values():
        yield from judge.of_class(one)
    yield from judge.of_classes()
    for one in asked:
        yield from judge.of_claim(one)


def _of(intake: Intake, resource: Resource) -> list[Accepted]:
    return [one for one in intake.accepted if one.document.resource is resource]
