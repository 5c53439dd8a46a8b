"""``drakit lint``: find mistakes in slices, classes, claims and templates before they reach a cluster."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import exits, extras
from drakit import settings as values
from drakit.admission import lenient_json, opaque, whole_objects
from drakit.cli import composition, options, output
from drakit.core import errors
from drakit.telemetry import plurals
from drakit_tools import driver_checks, live_lint, worlds
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.lint import Finding, Severity
    from drakit_cluster.manifests import Document
    from drakit_cluster.objects.features import FeatureGates

_OTHER_KIND = "the kind for these devices"
_SELECTING = frozenset({"DeviceClass", "ResourceClaim", "ResourceClaimTemplate"})
_INDENT = 2
_NAMESPACE = "default"
_UNKNOWN_FIELD = "unknown field"
"""Of an object of a cluster: the server stored it, so it is newer than drakit."""
_ABSENT = re.compile(r"\b(\w+) \S+ is not in these files")
_INDEX = re.compile(r"\[[^\]]*\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Checked:
    """The findings, the number and kinds of checked objects, and the skipped documents."""

    found: "Mapping[Finding, Sequence[str]]"
    """With the versions that each finding concerns."""
    versions: Sequence[str]
    objects: int
    kinds: frozenset[object]
    skipped: "Sequence[Document]"


@options.quietly
@sources.answering()
def lint(
    given: sources.Given = None,
    files: sources.Files = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Check the objects of a cluster, that of --kubeconfig or KUBECONFIG: what concerns devices, and pods and workloads that want some.",
        ),
    ] = False,
    kubeconfig: sources.Kubeconfig = None,
    strict: Annotated[bool, typer.Option("--strict", help="Also fail on warnings.")] = False,
    gates: sources.Gates = None,
    kubernetes: Annotated[
        str | None,
        typer.Option(
            "--kubernetes",
            metavar="VERSION,...",
            help="Kubernetes version, or several: 1.34 to 1.37, or 1.38 as planned. Each finding then names its versions. Default: "
            "that of the server, or 1.37.",
        ),
    ] = None,
    config: options.Config = None,
    assignments: options.Set = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Find mistakes in slices, classes, claims, templates, taint rules and pods. Drakit's own DeviceClasses need not be in the files.

    The command applies the rules of a Kubernetes version's API server, and compares the objects with each other. It finds missing counters, a default
    above the value, incomplete pools, selectors that select nothing or fail on some devices, unknown attributes and drivers, claims that fit on no
    node, taint rules that select nothing, pods whose claims are missing, pods of the host's network with a NIC, and claims of a pod with one
    interface name. It checks opaque parameters of drakit's own drivers, and pods with their claims, by the functions and settings of drakit webhook:
    give it the settings of your driver. Kinds that do not concern devices are skipped and listed.

    --live checks the objects of a cluster as its version does: slices, classes, claims, templates, taint rules, PodGroups, and the pods and
    workloads that want devices. It reads no Secrets, and of pods neither environment nor commands.

    Exit status is 0 without errors, 1 with an error (or a warning, with --strict), and 2 for files or settings that cannot be read.

    [bold]Examples[/bold]

      drakit lint claims.yaml

      drakit lint manifests/ --strict -o json

      drakit lint manifests/ --kubernetes 1.34,1.37

      drakit lint --live

      drakit lint claims.yaml --set gpu.driver_name=gpu.nvidia.com

      kubectl get resourceslices,deviceclasses -o yaml | drakit lint - claims.yaml
    """
    settings = options.read(config=config, assignments=assignments, local=True)
    extras.require_local_cluster()
    wanted, is_live = [*(given or []), *(files or [])], live or kubeconfig is not None
    if not wanted and not is_live:
        raise errors.ConfigError("nothing to check; add FILE, -f FILE, or --live")
    if kubernetes is None and is_live:
        kubernetes = sources.server_version(kubeconfig)
    named = [part.strip() for part in kubernetes.split(",")] if kubernetes is not None else []
    chosen = [sources.feature_gates(gates or [], version) for version in dict.fromkeys(named)] or [sources.feature_gates(gates or [])]
    documents = sources.read(wanted, samples=True)
    cluster = live_lint.read(kubeconfig, documents, chosen, sources.gates(gates or [])) if is_live else None
    if cluster is not None:
        documents, chosen = [*documents, *cluster.documents], [*cluster.gates]
    checked = _lint(documents, chosen, settings, cluster, is_compared=bool(named))
    if form is options.Format.TABLE:
        _print(checked)
        output.note("" if is_live else _devices_notice(checked))
    else:
        output.document([_document(finding, versions) for finding, versions in checked.found.items()], form)
    output.note(sources.skip_notice(checked.skipped))
    if any(strict or finding.severity == "error" for finding in checked.found):
        raise typer.Exit(exits.Exit.NEGATIVE)


def _lint(
    documents: "Sequence[Document]",
    chosen: "Sequence[FeatureGates]",
    settings: values.Settings,
    cluster: live_lint.Cluster | None,
    *,
    is_compared: bool,
) -> _Checked:
    """Return the findings. ``is_compared``: a version was chosen, whose known errors count."""
    from drakit_cluster import lint as linting

    skipped = linting.skipped(documents)
    rules, known = composition.opaque_rules(settings), driver_checks.known(document.body for document in documents)
    classes = {reference: obj for reference, obj in known.items() if reference[0] == whole_objects.CLASS}
    refused = [finding for document in documents for finding in _refused(document, rules, known, classes)]
    kinds = frozenset(document.body.get("kind") for document in documents)

    def fits(driver: str, parameters: object, attributes: Mapping[str, object]) -> bool:
        return opaque.fits(driver, parameters, attributes, rules)

    def refuses(driver: str, parameters: object, attributes: Mapping[str, object]) -> tuple[str, str, str] | None:
        if driver in rules and isinstance(parameters, Mapping) and not fits(driver, parameters, attributes):
            return (
                "parameters",
                "is not for this device",
                f"use {opaque.fitting_kind(driver, parameters, attributes, rules) or _OTHER_KIND}",
            )
        refusal = opaque.refusal(driver, parameters, attributes, rules)
        return None if refusal is None else (refusal.field, *_text_and_fix(refusal))

    found: dict[Finding, list[str]] = {}
    own = _drakits_classes(documents) if cluster is None else []
    for features in chosen:
        compared = sources.compared_errors(features.version if is_compared else None)
        for raw in linting.lint([*documents, *own], features, refused, compared=compared, fits=fits, refuses=refuses):
            if raw.document in own or (cluster is not None and _is_unknown(raw, cluster)):
                continue
            finding = raw if cluster is None else _about_a_cluster(raw)
            concerned = found.setdefault(finding, [])
            concerned += [features.version] if features.version not in concerned else []
    versions = [features.version for features in chosen]
    position = {id(document): place for place, document in enumerate(documents)}
    ordered = {finding: found[finding] for finding in sorted(found, key=lambda one: (position[id(one.document)], one.severity))}
    return _Checked(found=ordered, versions=versions, objects=len(documents) - len(skipped), kinds=kinds, skipped=skipped)


def _drakits_classes(documents: "Sequence[Document]") -> "list[Document]":
    """Return those of drakit's DeviceClasses that no file has, and note those that claims name; none for claims alone, with nothing to compare."""
    from drakit_cluster import manifests
    from drakit_cluster.objects import json_types

    bodies = [document.body for document in documents]
    if not {"DeviceClass", "ResourceSlice"} & {body.get("kind") for body in bodies}:
        return []
    added = worlds.drakits_classes(body for body in bodies if body.get("kind") == "DeviceClass")
    paths = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
    worlds.note_added(added, [json_types.mapping(body, *paths[kind]) for body in bodies if (kind := body.get("kind")) in paths])
    return manifests.read("drakit", json.dumps({"apiVersion": "v1", "kind": "List", "items": added}))


def _devices_notice(checked: _Checked) -> str:
    """Return a note that nothing was compared for lack of slices; empty after a finding, and if files have no selectors."""
    if checked.found or not checked.kinds & _SELECTING or "ResourceSlice" in checked.kinds:
        return ""
    return "selectors were not compared with devices: no file has ResourceSlices; add those that drakit slices -o yaml or kubectl writes"


def _refused(document: "Document", rules: opaque.Rules, known: whole_objects.Known, classes: whole_objects.Known) -> "Iterator[Finding]":
    """Yield a finding for each mistake that drakit's drivers find in a claim or pod, as ``drakit webhook`` does, or else for likely mistakes.

    ``classes`` are those that are known. A check reads all objects that it gets, so it gets only those that it needs.
    """
    from drakit_cluster import lint as linting
    from drakit_cluster.lint import pod_templates

    kind, version = document.body.get("kind"), document.body.get("apiVersion")
    if isinstance(kind, str) and isinstance(version, str) and opaque.is_known(version, kind):
        refused = driver_checks.of_object(kind, document.body, rules, classes)
        severity = linting.Severity.ERROR if refused else linting.Severity.WARNING
        for mistake in refused or opaque.warnings(kind, document.body, rules):
            yield _finding(document, severity, mistake)
    namespace = lenient_json.text(document.body, "metadata", "namespace") or _NAMESPACE
    for pod in pod_templates.of(document):
        claims = whole_objects.claims_of(pod.spec, namespace).values()
        needed = {**classes, **{reference: known[reference] for reference in claims if reference in known}}
        for mistake in whole_objects.of_pod(pod.spec, rules, needed, namespace=namespace, path=pod.path):
            yield _finding(document, linting.Severity.ERROR, mistake)


def _finding(document: "Document", severity: "Severity", mistake: errors.ConfigError) -> "Finding":
    from drakit_cluster import lint as linting

    text, fix = _text_and_fix(mistake)
    return linting.Finding(severity=severity, document=document, field=mistake.field, text=text, fix=fix)


def _text_and_fix(mistake: errors.ConfigError) -> tuple[str, str]:
    reason, _, fix = mistake.reason.partition("; ")
    return reason, fix or "correct the value, or remove the field"


def _print(checked: _Checked) -> None:
    out = output.console()
    for finding, *alike in _grouped(checked.found):
        only = checked.found[finding]
        concerned = f"Kubernetes {', '.join(only)}: " if len(only) < len(checked.versions) else ""
        file = "" if _is_live(finding) else f"{finding.document.place(finding.field)} (document {finding.document.number}), "
        where = f"{file}{finding.document.label}"
        field = f"{finding.field}: " if finding.field else ""
        more = [f"and {plurals.counted(len(alike), 'more time')}, last at {alike[-1].field}"] if alike else []
        output.say(out, f"{finding.severity}: {where}", hang=_INDENT)
        for line in (f"{field}{concerned}{finding.text}", *more, f"fix: {finding.fix}"):
            output.say(out, line, indent=_INDENT, hang=_INDENT)
    mistakes = sum(finding.severity == "error" for finding in checked.found)
    total = ", ".join((plurals.counted(mistakes, "error"), plurals.counted(len(checked.found) - mistakes, "warning")))
    result = total if checked.objects or checked.found else "nothing was checked"
    output.say(output.prose(), f"{plurals.counted(checked.objects, 'object')}: {result}")
    for version in checked.versions if len(checked.versions) > 1 else ():
        mine = [finding for finding, only in checked.found.items() if version in only]
        refused = sum(finding.severity == "error" for finding in mine)
        counts = f"{plurals.counted(refused, 'error')}, {plurals.counted(len(mine) - refused, 'warning')}"
        output.say(output.prose(), f"Kubernetes {version}: {counts}", indent=_INDENT)


def _about_a_cluster(finding: "Finding") -> "Finding":
    from drakit_cluster.lint import findings

    text = finding.text.replace("in these files", "in the cluster").replace("these files have", "the cluster has")
    return dataclasses.replace(finding, text=text, fix=finding.fix.replace(findings.ADD, "create it"))


def _is_unknown(finding: "Finding", cluster: live_lint.Cluster) -> bool:
    """Return whether a finding may be no mistake: the server may know the field, or the cluster may have the object."""
    absent = _ABSENT.search(finding.text)
    return (_is_live(finding) and finding.text == _UNKNOWN_FIELD) or (absent is not None and absent[1] in cluster.partial)


def _is_live(finding: "Finding") -> bool:
    """Return whether the object was read from a cluster."""
    return finding.document.file == live_lint.SOURCE


def _grouped(findings: "Mapping[Finding, Sequence[str]]") -> "Iterable[list[Finding]]":
    """Return the findings in groups: the same mistake of the same versions in many places of one object is shown once."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding, versions in findings.items():
        key = (id(finding.document), tuple(versions), finding.severity, finding.text, finding.fix, _INDEX.sub("[]", finding.field))
        groups.setdefault(key, []).append(finding)
    return groups.values()


def _document(finding: "Finding", versions: Sequence[str]) -> Mapping[str, object]:
    place = (finding.document.file, finding.document.number, finding.document.part.line_of(finding.field))
    return {
        "severity": str(finding.severity),
        **dict(zip(("file", "document", "line"), (None, None, None) if _is_live(finding) else place, strict=True)),
        "kind": finding.document.body.get("kind"),
        "object": finding.document.label,
        "field": finding.field,
        "message": finding.text,
        "kubernetes": list(versions),
        "fix": finding.fix,
    }
