"""``drakit lint``: mistakes in slices, classes, claims and templates, before a cluster sees them."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit.cli import manifests as sources
from drakit.cli import options, output
from drakit.core import errors

if TYPE_CHECKING:
    from drakit.cluster.linting import Finding

HAS_ERRORS = 1
BAD_INPUT = 2


def lint(
    files: sources.Files = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    gates: sources.Gates = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Check ResourceSlices, DeviceClasses, ResourceClaims and ResourceClaimTemplates as Kubernetes 1.36's API server does, and beyond.

    Beyond what the server refuses, objects are judged by each other: counters that a pool lacks, a default above the value, incomplete pools,
    selectors that select nothing or fail on some devices, attributes and drivers that nobody has. Exit status is 0 when there is no error, 1 when
    there is one (or a warning, with --strict), 2 for files that cannot be read.

    [bold]Examples[/bold]

      drakit lint -f claims.yaml

      drakit lint -f manifests/ --strict -o json

      kubectl get resourceslices,deviceclasses -o yaml | drakit lint -f - -f claims.yaml
    """
    try:
        found, looked_at = _lint(files or [], gates or [])
    except errors.DrakitError as error:
        print(f"drakit: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error
    if form is options.Format.TABLE:
        _print(found, looked_at)
    else:
        output.document([_document(one) for one in found], form)
    if any(strict or one.severity == "error" for one in found):
        raise typer.Exit(HAS_ERRORS)


def _lint(files: Sequence[str], gates: Sequence[str]) -> "tuple[list[Finding], int]":
    """Return the findings, and how many objects were looked at."""
    sources.check_installed()
    from drakit.cluster import features, linting

    if not files:
        raise errors.ConfigError("nothing to check: give -f FILE")
    try:
        chosen = features.FeatureGates.of(sources.gates(gates))
    except ValueError as error:
        raise errors.ConfigError(f"--gate: {error}") from error
    documents = sources.read(files)
    return linting.lint(documents, chosen), sum(one.resource is not None for one in documents)


def _print(found: "Sequence[Finding]", looked_at: int) -> None:
    out = output.console()
    for one in found:
        where = f"{one.document.file}, document {one.document.number}, {one.document.label}"
        field = f"{one.field}: " if one.field else ""
        out.print(f"{one.severity}: {where}\n  {field}{one.text}\n  fix: {one.fix}", markup=False, soft_wrap=True)
    mistakes = sum(one.severity == "error" for one in found)
    total = ", ".join((_count(mistakes, "error"), _count(len(found) - mistakes, "warning")))
    out.print(f"{_count(looked_at, 'object')}: {total if looked_at or found else 'nothing was checked'}", markup=False)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _document(one: "Finding") -> Mapping[str, object]:
    return {
        "severity": str(one.severity),
        "file": one.document.file,
        "document": one.document.number,
        "kind": one.document.body.get("kind"),
        "object": one.document.label,
        "field": one.field,
        "message": one.text,
        "fix": one.fix,
    }
