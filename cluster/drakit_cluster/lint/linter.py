"""All rules over the documents of some files."""

from collections.abc import Collection, Iterator, Sequence

from drakit_cluster import cel as selectors
from drakit_cluster import manifests
from drakit_cluster.lint import demand, findings, fitting, pod_templates, refusals, supply, users
from drakit_cluster.lint.catalogue import Catalogue
from drakit_cluster.lint.findings import Finding, Severity
from drakit_cluster.manifests import Accepted, Document, Intake
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.versions import Rule
from drakit_cluster.scheduling.allocator.known_errors import KUBERNETES_1_36, KnownErrors

_NO_PARAMETERS = "write its parameters into config[].opaque.parameters of the {kind}"
_REMOVED = {
    "ResourceClass": "write DeviceClass, with selectors and config instead of driverName and parametersRef",
    "ResourceClassParameters": _NO_PARAMETERS.format(kind="DeviceClass"),
    "ResourceClaimParameters": _NO_PARAMETERS.format(kind="ResourceClaim or ResourceClaimTemplate"),
    "PodSchedulingContext": "remove it: the scheduler allocates claims itself",
}
"""Kinds of resource.k8s.io/v1alpha2 and v1alpha3 that Kubernetes removed, and what replaces them."""


def lint(
    documents: Sequence[Document],
    gates: FeatureGates,
    others: Sequence[Finding] = (),
    *,
    compared: KnownErrors = KUBERNETES_1_36,
    fits: demand.Fits = demand.any_fits,
    refuses: demand.Refuses = demand.none_refused,
) -> list[Finding]:
    """Return all findings in the order of the documents, with the errors of each first.

    ``others`` are the caller's findings. One is dropped if a rule here finds a mistake in the same field. A claim that a
    scheduler with the errors ``compared`` decides differently is a warning.
    ``fits`` says whether a driver's parameters are for a device, and ``refuses`` what its driver refuses in them for one.
    """
    intake = manifests.take(documents, gates)
    position = {id(document): place for place, document in enumerate(documents)}
    all_findings = [
        *_missing_fields(documents),
        *_unknown_kinds(documents),
        *refusals.check(intake.problems),
        *refusals.dropped(intake.dropped),
        *_across_objects(documents, intake, gates, compared, fits, refuses),
    ]
    reported_fields = {(id(finding.document), finding.field) for finding in all_findings}
    all_findings += [finding for finding in others if (id(finding.document), finding.field) not in reported_fields]
    return sorted(all_findings, key=lambda finding: (position[id(finding.document)], finding.severity))


def skipped(documents: Sequence[Document]) -> list[Document]:
    """Return the documents that are not checked, because their kinds do not concern devices."""
    kinds = _kinds()
    return [
        document
        for document in documents
        if document.resource is None
        and not users.is_user(document)
        and not pod_templates.intended(document)
        and (_group(document) != resources.RESOURCE_GROUP or _kind(document) in kinds)
    ]


def _missing_fields(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield what a sample lacks before a server could check it."""
    for document in documents:
        yield from (findings.error(document, missing.field, missing.text, missing.fix) for missing in document.missing)


def _unknown_kinds(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield objects of the API group with an unknown kind, and those whose kind is like one that makes pods. Other kinds are ignored."""
    kinds = _kinds()
    for document in documents:
        kind = _kind(document)
        if document.resource is None and _group(document) == resources.RESOURCE_GROUP and kind not in kinds:
            fix = _REMOVED.get(kind) or findings.suggestion(kind, kinds)
            yield findings.error(document, "kind", f"{resources.RESOURCE_GROUP} has no kind {kind}", fix)
        elif intended := pod_templates.intended(document):
            yield findings.warning(
                document, "kind", f"unknown kind; did you mean {intended}? The object was not checked", f"write {intended}"
            )


def _kinds() -> set[str]:
    return {served.kind for served in resources.SERVED if served.group == resources.RESOURCE_GROUP}


def _kind(document: Document) -> str:
    return json_types.text(document.body, "kind")


def _group(document: Document) -> str:
    return json_types.text(document.body, "apiVersion").rpartition("/")[0]


def _across_objects(
    documents: Sequence[Document],
    intake: Intake,
    gates: FeatureGates,
    compared: KnownErrors,
    fits: demand.Fits,
    refuses: demand.Refuses,
) -> Iterator[Finding]:
    """Yield mistakes between objects."""
    slices, rules = _accepted(intake, resources.SLICE), _accepted(intake, resources.TAINT_RULE)
    accepted_ids = {id(accepted.document) for accepted in slices}
    refused = [
        problem.document
        for problem in intake.problems
        if problem.document.resource is resources.SLICE and id(problem.document) not in accepted_ids
    ]
    published = Catalogue(slices, refused, [rule.object for rule in rules])
    claims = [*_accepted(intake, resources.CLAIM), *_accepted(intake, resources.CLAIM_TEMPLATE)]
    supply_findings = [*supply.check_pools(published), *supply.check_nodes(slices, intake.objects(resources.NODE))]
    yield from supply_findings
    yield from supply.check_scale(published, gates)
    yield from supply.check_amounts(intake.accepted)
    yield from supply.check_rules(rules, published, gates)
    groups = _accepted(intake, resources.POD_GROUP)
    absent = _refused(documents, intake)
    class_names = {json_types.text(accepted.object, "metadata", "name") for accepted in _accepted(intake, resources.CLASS)}
    refused_classes = {name for kind, _, name in absent if kind == resources.CLASS.kind}
    yield from users.check(documents, users.KnownClaims.of(claims, class_names | refused_classes, groups, absent))
    demand_findings = list(_demand_findings(intake, published, claims, gates, fits, refuses, refused_classes))
    yield from demand_findings
    if published.is_complete and not any(finding.severity is Severity.ERROR for finding in supply_findings):
        faulty = {id(finding.document) for finding in demand_findings}
        faultless = [claim for claim in claims if id(claim.document) not in faulty]
        yield from fitting.check(intake, faultless, _accepted(intake, resources.POD), gates, compared)


def _demand_findings(
    intake: Intake,
    published: Catalogue,
    claims: Sequence[Accepted],
    gates: FeatureGates,
    fits: demand.Fits,
    refuses: demand.Refuses,
    refused_classes: Collection[str],
) -> Iterator[Finding]:
    checker = demand.Demand(
        published=published,
        classes={json_types.text(accepted.object, "metadata", "name"): accepted for accepted in _accepted(intake, resources.CLASS)},
        refused_classes=refused_classes,
        selectors=selectors.Selectors(gates),
        lists=gates.on(Gate.LIST_TYPE_ATTRIBUTES),
        deriving=gates.on(Gate.DERIVED_ATTRIBUTES),
        tainting=gates.on(Gate.DEVICE_TAINTS),
        qualified=gates.follows(Rule.QUALIFIED_CAPACITIES),
        fits=fits,
        refuses=refuses,
    )
    for device_class in checker.classes.values():
        yield from checker.of_class(device_class)
    yield from checker.of_classes()
    misplaced = {id(problem.document) for problem in intake.problems if problem.text == "unknown field"}
    for claim in claims:
        yield from checker.of_claim(claim, is_known=id(claim.document) not in misplaced)


def _refused(documents: Sequence[Document], intake: Intake) -> frozenset[tuple[str, str, str]]:
    """Return kind, namespace and name of each object that the server refused."""
    accepted = {id(entry.document) for entry in intake.accepted}
    return frozenset(
        (document.resource.kind, (namespace or manifests.DEFAULT_NAMESPACE) if document.resource.namespaced else "", name)
        for document in documents
        if document.resource is not None and id(document) not in accepted
        for namespace, name in [tuple(json_types.text(document.body, "metadata", key) for key in ("namespace", "name"))]
    )


def _accepted(intake: Intake, resource: Resource) -> list[Accepted]:
    return [accepted for accepted in intake.accepted if accepted.document.resource is resource]
