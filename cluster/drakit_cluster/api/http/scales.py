"""The scale of a Deployment: its number of replicas as autoscaling/v1 shows it, which ``kubectl scale`` reads and writes."""

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object

GROUP, VERSION, KIND = "autoscaling", "v1", "Scale"


def of(deployment: Object) -> Object:
    """Return the Scale of a Deployment."""
    metadata = json_types.mapping(deployment, "metadata")
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = json_types.mapping(deployment, "spec", "selector", "matchLabels")
    status: Object = {
        "replicas": json_types.number(deployment, "status", "replicas"),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    }
    return {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {field: metadata[field] for field in kept if field in metadata},
        "spec": {"replicas": json_types.number(deployment, "spec", "replicas")},
        "status": status,
    }


def change(body: Json) -> Object:
    """Return the merge patch of the Deployment that a Scale, or a merge patch of one, asks for; InvalidError, BadRequestError."""
    replicas = json_types.at(body, "spec", "replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.BadRequestError("spec.replicas: want a whole number")
    if replicas < 0:
        raise errors.InvalidError(f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0")
    metadata: Object = {field: given for field in ("uid", "resourceVersion") if (given := json_types.text(body, "metadata", field))}
    return {"metadata": metadata, "spec": {"replicas": replicas}}
