"""Rules of ObjectMeta between fields, and about deletion. Source: Kubernetes' apimachinery validation."""

from drakit.cluster import json_types
from drakit.cluster.json_types import Object
from drakit.cluster.validation import failure
from drakit.cluster.validation.failure import Failure


def check(new: Object, old: Object | None) -> list[Failure]:
    """Return what is wrong with the metadata of a new or updated object."""
    failures = []
    if not json_types.text(new, "metadata", "name"):
        failures.append(failure.required("metadata.name", "name or generateName is required"))
    if old is not None and json_types.text(old, "metadata", "deletionTimestamp"):
        known = json_types.items(old, "metadata", "finalizers")
        if added := [one for one in json_types.items(new, "metadata", "finalizers") if one not in known]:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            failures.append(failure.forbidden("metadata.finalizers", detail))
    return failures
