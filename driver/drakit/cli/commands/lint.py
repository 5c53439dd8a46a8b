"""``drakit lint``: mistakes in slices, classes, claims and templates, before a cluster sees them."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import extras
from drakit import settings as values
from drakit.admission import opaque
from drakit.cli import composition, options, output
from drakit.cli import manifests as sources
from drakit.core import errors

if TYPE_CHECKING:
    from drakit_cluster.lint import Finding
    from drakit_cluster.manifests import Document

HAS_ERRORS = 1
BAD_INPUT = 2
_INDENT = 2
_INDEX = re.compile(r"\[[^\]]*\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Looked:
    """What was found, in how many objects, and what was left out."""

    found: "Sequence[Finding]"
    objects: int
    skipped: "Sequence[Document]"


@options.quietly
def lint(
    given: sources.Given = None,
    files: sources.Files = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    gates: sources.Gates = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Check slices, classes, claims, templates, taint rules and pods as Kubernetes 1.36's API server does, and beyond.

    Beyond what the server refuses, objects are judged by each other: counters that a pool lacks, a default above the value, incomplete pools,
    selectors that select nothing or fail on some devices, attributes and drivers that nobody has, claims that fit on no node, allocations that
    cannot be, taint rules that select nothing, pods whose claims are not there. Opaque parameters for drakit's own drivers are judged as at prepare
    and by drakit webhook. Kinds that have nothing to do with devices are named as skipped.

    Exit status is 0 when there is no error, 1 when there is one (or a warning, with --strict), 2 for files that cannot be read.

    [bold]Examples[/bold]

      drakit lint claims.yaml

      drakit lint manifests/ --strict -o json

      kubectl get resourceslices,deviceclasses -o yaml | drakit lint -f - -f claims.yaml
    """
    try:
        looked = _lint([*(given or []), *(files or [])], gates or [])
    except errors.DrakitError as error:
        output.warn(str(error))
        raise typer.Exit(BAD_INPUT) from error
    if form is options.Format.TABLE:
        _print(looked)
    else:
        output.document([_document(finding) for finding in looked.found], form)
    output.note(sources.skip_notice(looked.skipped))
    if any(strict or finding.severity == "error" for finding in looked.found):
        raise typer.Exit(HAS_ERRORS)


def _lint(files: Sequence[str], gates: Sequence[str]) -> _Looked:
    extras.require_local_cluster()
    from drakit_cluster import lint as linting

    if not files:
        raise errors.ConfigError("nothing to check: give FILE, or -f FILE")
    chosen = sources.feature_gates(gates)
    documents = sources.read(files, samples=True)
    skipped = linting.skipped(documents)
    refused = [finding for document in documents for finding in _refused(document)]
    return _Looked(found=linting.lint(documents, chosen, refused), objects=len(documents) - len(skipped), skipped=skipped)


def _refused(document: "Document") -> "Iterator[Finding]":
    """Yield the opaque parameters that our drivers would refuse to prepare, as ``drakit webhook`` does."""
    from drakit_cluster import lint as linting

    kind, version = document.body.get("kind"), document.body.get("apiVersion")
    if isinstance(kind, str) and isinstance(version, str) and opaque.is_known(version, kind):
        for mistake in opaque.mistakes(kind, document.body, composition.opaque_rules(values.Settings())):
            reason, _, fix = mistake.reason.partition("; ")
            yield linting.Finding(
                severity=linting.Severity.ERROR,
                document=document,
                field=mistake.field,
                text=reason,
                fix=fix or "correct the value, or remove the field",
            )


def _print(looked: _Looked) -> None:
    out = output.console()
    for finding, *alike in _grouped(looked.found):
        where = f"{finding.document.place(finding.field)} (document {finding.document.number}), {finding.document.label}"
        field = f"{finding.field}: " if finding.field else ""
        more = [f"and so {output.counted(len(alike), 'more time')}, the last at {alike[-1].field}"] if alike else []
        output.say(out, f"{finding.severity}: {where}", hang=_INDENT)
        for line in (f"{field}{finding.text}", *more, f"fix: {finding.fix}"):
            output.say(out, line, indent=_INDENT, hang=_INDENT)
    mistakes = sum(finding.severity == "error" for finding in looked.found)
    total = ", ".join((output.counted(mistakes, "error"), output.counted(len(looked.found) - mistakes, "warning")))
    checked = total if looked.objects or looked.found else "nothing was checked"
    output.say(output.prose(), f"{output.counted(looked.objects, 'object')}: {checked}")


def _grouped(findings: "Sequence[Finding]") -> "Iterable[list[Finding]]":
    """The same mistake in many places of one object is shown once."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (id(finding.document), finding.severity, finding.text, finding.fix, _INDEX.sub("[]", finding.field))
        groups.setdefault(key, []).append(finding)
    return groups.values()


def _document(finding: "Finding") -> Mapping[str, object]:
    return {
        "severity": str(finding.severity),
        "file": finding.document.file,
        "document": finding.document.number,
        "line": finding.document.part.line_of(finding.field),
        "kind": finding.document.body.get("kind"),
        "object": finding.document.label,
        "field": finding.field,
        "message": finding.text,
        "fix": finding.fix,
    }
