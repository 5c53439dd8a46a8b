"""A failure: which field breaks which kind of rule, in Kubernetes' words for the kinds."""

import json
from dataclasses import dataclass, replace

from drakit_cluster.objects import errors
from drakit_cluster.objects.errors import Cause, Details
from drakit_cluster.objects.json_types import Json


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One broken rule. ``type`` is the reason of the metav1 cause, ``field`` the path, ``message`` what people read."""

    type: str
    field: str
    message: str


def required(field: str, detail: str = "") -> Failure:
    """Return the failure of a required field that is missing."""
    return Failure(type="FieldValueRequired", field=field, message=_with("Required value", detail))


def invalid(field: str, value: Json, detail: str) -> Failure:
    """Return the failure of a value that breaks a rule."""
    return Failure(type="FieldValueInvalid", field=field, message=_with(f"Invalid value: {_show(value)}", detail))


def duplicate(field: str, value: Json) -> Failure:
    """Return the failure of a value that may occur only once."""
    return Failure(type="FieldValueDuplicate", field=field, message=f"Duplicate value: {_show(value)}")


def forbidden(field: str, detail: str) -> Failure:
    """Return the failure of a field that must not be set (here, or now)."""
    return Failure(type="FieldValueForbidden", field=field, message=f"Forbidden: {detail}")


def not_found(field: str, value: Json, detail: str) -> Failure:
    """Return the failure of a name that does not exist."""
    return Failure(type="FieldValueNotFound", field=field, message=f"Not found: {_show(value)}: {detail}")


def too_many(field: str, actual: int, limit: int) -> Failure:
    """Return the failure of a list that is too long."""
    message = f"Too many: {actual}: must have at most {limit} items"
    return Failure(type="FieldValueTooMany", field=field, message=message)


def too_long(field: str, limit: int) -> Failure:
    """Return the failure of a text or raw JSON of more than ``limit`` bytes."""
    return Failure(type="FieldValueTooLong", field=field, message=f"Too long: may not be more than {limit} bytes")


def not_supported(field: str, value: Json, allowed: tuple[str, ...]) -> Failure:
    """Return the failure of a word that is not in the set."""
    words = ", ".join(f'"{word}"' for word in allowed)
    message = f"Unsupported value: {_show(value)}: supported values: {words}"
    return Failure(type="FieldValueNotSupported", field=field, message=message)


def immutable(field: str, value: Json) -> Failure:
    """Return the failure of a change of an immutable field."""
    return invalid(field, value, "field is immutable")


def unchanged(field: str, new: Json, old: Json) -> list[Failure]:
    """Return the failure of an immutable field that differs."""
    return [] if new == old else [immutable(field, new)]


def _show(value: Json) -> str:
    return f"{json.dumps(value):.200}"


def _with(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def refusal(kind: str, name: str, failures: list[Failure], details: Details) -> errors.InvalidError:
    """Return the error that names each failure with its field; ``details`` identify its object."""
    causes = tuple(Cause(reason=failure.type, message=failure.message, field=failure.field) for failure in failures)
    listed = [f"{failure.field}: {failure.message}" for failure in failures]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    return errors.InvalidError(f'{kind} "{name}" is invalid: {text}', replace(details, causes=causes))
