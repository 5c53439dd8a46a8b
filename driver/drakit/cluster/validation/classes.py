"""Rules of DeviceClasses. Source: Kubernetes 1.36's validation."""

from drakit.cluster import json_types
from drakit.cluster.json_types import Object
from drakit.cluster.validation import claims, fields
from drakit.cluster.validation.failure import Failure


def check(new: Object) -> list[Failure]:
    """Return what is wrong with a class."""
    spec = json_types.mapping(new, "spec")
    configs = enumerate(json_types.items(spec, "config"))
    return fields.chain(claims.selectors(spec, "spec"), *(claims.parameters(one, f"spec.config[{index}]") for index, one in configs))
