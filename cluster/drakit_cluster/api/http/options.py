"""The options of writes that come in the query, or for deletes in the body: checked as Kubernetes does.

Source: ValidateCreateOptions and its siblings in apimachinery's meta/v1 validation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.datastructures import QueryParams

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.errors import Cause, Details
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

_GROUP = "meta.k8s.io"
_ALL = "All"
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_MAX_MANAGER = 128


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """How a delete is asked for. ``grace_seconds`` is None where the object decides; ``orphan`` leaves what it owns behind."""

    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    dry_run: bool = False
    orphan: bool = False


def is_dry_run(kind: str, parameters: QueryParams, *, apply: bool = False) -> bool:
    """Check the parameters of a create, update or patch (``kind`` is CreateOptions or so); say whether it is a dry run.

    Raises InvalidError.
    """
    asked = parameters.getlist("dryRun")
    failures = [*_manager(parameters.get("fieldManager", "")), *_dry_run(asked)]
    mode = parameters.get("fieldValidation", "")
    if mode not in _FIELD_VALIDATIONS:
        failures.append(failure.not_supported("fieldValidation", mode, _FIELD_VALIDATIONS))
    if kind == "PatchOptions" and not apply and "force" in parameters:
        failures.append(failure.forbidden("force", "may not be specified for non-apply patch"))
    if kind == "PatchOptions" and apply and not parameters.get("fieldManager"):
        failures.append(failure.required("fieldManager", "is required for apply patch"))
    _refuse(kind, failures)
    return bool(asked)


def of_delete(body: Json, parameters: QueryParams) -> DeleteOptions:
    """Return the options of a delete: those of the body, and where it has none, of the query. Raises InvalidError."""
    dry: list[str] = json_types.strings(body, "dryRun") or parameters.getlist("dryRun")
    policy = json_types.text(body, "propagationPolicy") or parameters.get("propagationPolicy", "")
    failures = list(_dry_run(dry))
    if policy and policy not in _PROPAGATIONS:
        failures.append(failure.not_supported("propagationPolicy", policy, (*_PROPAGATIONS, "nil")))
    _refuse("DeleteOptions", failures)
    return DeleteOptions(
        uid=json_types.text(body, "preconditions", "uid"),
        resource_version=json_types.text(body, "preconditions", "resourceVersion"),
        grace_seconds=_grace(body, parameters.get("gracePeriodSeconds", "")),
        dry_run=bool(dry),
        orphan=policy == "Orphan" or json_types.at(body, "orphanDependents") is True,
    )


def _grace(body: Json, asked: str) -> int | None:
    if asked:
        if not asked.isdecimal():
            raise errors.BadRequestError(f"gracePeriodSeconds: want a whole number, got {asked!r}")
        return int(asked)
    given = json_types.at(body, "gracePeriodSeconds")
    return given if isinstance(given, int) else None


def _dry_run(asked: list[str]) -> Iterator[Failure]:
    if any(one != _ALL for one in asked):
        yield failure.not_supported("dryRun", json_types.from_strings(asked), (_ALL,))


def _manager(name: str) -> Iterator[Failure]:
    if len(name) > _MAX_MANAGER:
        yield failure.too_long("fieldManager", _MAX_MANAGER)
    for place, character in enumerate(name):
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {place})"
            yield failure.invalid("fieldManager", name, detail)


def _refuse(kind: str, failures: list[Failure]) -> None:
    if not failures:
        return
    causes = tuple(Cause(reason=one.type, message=one.message, field=one.field) for one in failures)
    listed = [f"{one.field}: {one.message}" for one in failures]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    raise errors.InvalidError(f'{kind}.{_GROUP} "" is invalid: {text}', Details(group=_GROUP, kind=kind, causes=causes))
