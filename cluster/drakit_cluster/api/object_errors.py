"""Errors about one object with the messages that clients expect, and the preconditions of a write."""

from drakit_cluster.api.storage.store import Entry
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

UNSET_VERSIONS = ("", "0")


def not_found(resource: Resource, name: str) -> errors.NotFoundError:
    """Return the error for an object that does not exist."""
    details = Details(name=name, group=resource.group, kind=resource.plural)
    return errors.NotFoundError(f'{resource.qualified} "{name}" not found', details)


def already_exists(resource: Resource, name: str) -> errors.AlreadyExistsError:
    """Return the error for a name that is in use."""
    details = Details(name=name, group=resource.group, kind=resource.plural)
    return errors.AlreadyExistsError(f'{resource.qualified} "{name}" already exists', details)


def invalid(resource: Resource, obj: Object, failures: list[Failure]) -> errors.InvalidError:
    """Return the error for an object that breaks rules, each named with its field."""
    name = json_types.text(obj, "metadata", "name") or json_types.text(obj, "metadata", "generateName")
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return failure.refusal(kind, name, failures, Details(name=name, group=resource.group, kind=resource.kind))


def check_preconditions(resource: Resource, stored: Entry, *, uid: str, version: str) -> None:
    """Raise ConflictError unless ``uid`` and ``version``, where set, are those of the stored object."""
    details = Details(name=stored.key.name, group=resource.group, kind=resource.plural)
    head = f'Operation cannot be fulfilled on {resource.qualified} "{stored.key.name}"'
    actual = json_types.text(stored.view, "metadata", "uid")
    if uid and uid != actual:
        raise errors.ConflictError(f"{head}: Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}", details)
    if version not in UNSET_VERSIONS and version != str(stored.version):
        changed = "the object has been modified; please apply your changes to the latest version and try again"
        raise errors.ConflictError(f"{head}: {changed}", details)


def check_identity(resource: Resource, stored: Entry, uid: str) -> None:
    """Raise InvalidError unless ``uid``, where set, is that of the stored object. Patches get this error where a PUT gets a conflict."""
    actual = json_types.text(stored.view, "metadata", "uid")
    if uid and uid != actual:
        raise invalid(resource, stored.view, failure.unchanged("metadata.uid", uid, actual))
