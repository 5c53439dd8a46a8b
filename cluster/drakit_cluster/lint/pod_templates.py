"""Where the pod specs of an object are: in pods, in Kubernetes' workloads, in the usual workloads of other projects, and where others have claims."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from drakit_cluster.manifests import Document
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import api_models

_CORE: dict[str, str] = {
    "Pod": "spec",
    "PodTemplate": "template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
    **dict.fromkeys(("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"), "spec.template.spec"),
}
_COUNTS: dict[str, str] = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"), "spec.replicas"),
    "Job": "spec.parallelism",
    "CronJob": "spec.jobTemplate.spec.parallelism",
}
"""By kind: how many pods there are at the same time; one where the field is not set."""
_RAY = ("headGroupSpec.template.spec", "workerGroupSpecs[].template.spec")
_OTHERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("jobset.x-k8s.io", "JobSet"): ("spec.replicatedJobs[].template.spec.template.spec",),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        "spec.leaderWorkerTemplate.leaderTemplate.spec",
        "spec.leaderWorkerTemplate.workerTemplate.spec",
    ),
    ("ray.io", "RayCluster"): tuple(f"spec.{path}" for path in _RAY),
    ("ray.io", "RayJob"): tuple(f"spec.rayClusterSpec.{path}" for path in _RAY),
    ("ray.io", "RayService"): tuple(f"spec.rayClusterConfig.{path}" for path in _RAY),
    **{
        ("kubeflow.org", f"{name}Job"): (f"spec.{name.lower()}ReplicaSpecs{{}}.template.spec",)
        for name in ("PyTorch", "TF", "MPI", "XGBoost", "Paddle", "JAX")
    },
}
"""By group and kind: the paths of pod specs. ``[]`` stands for each item of a list, ``{}`` for each value of a map."""
_CORE_GROUPS = frozenset({"", "apps", "batch"})
_SIMILAR = 0.7


@dataclass(frozen=True, kw_only=True)
class PodSpec:
    """A pod spec of a document, and its path. ``is_whole`` is false in an unknown kind, whose spec may have more or fewer fields than a pod."""

    path: str
    spec: Object
    is_whole: bool = True


def is_workload(document: Document) -> bool:
    """Return whether the document is of a kind of Kubernetes that makes pods of a template."""
    return document.resource is None and _core_path(document) is not None


def intended(document: Document) -> str:
    """Return the kind of Kubernetes that a document's unknown kind is a misspelling of; "" where it is known or like none."""
    group, kind = _group_and_kind(document)
    if group not in _CORE_GROUPS or document.resource is not None or kind in _CORE or api_models.has_kind(kind):
        return ""
    by_lower_case = {known.lower(): known for known in _CORE}
    close = difflib.get_close_matches(kind.lower(), by_lower_case, n=1, cutoff=_SIMILAR)
    return by_lower_case[close[0]] if close else ""


def has_any(document: Document) -> bool:
    """Return whether objects of the document's kind have pod specs that this module finds."""
    return _core_path(document) is not None or bool(_other_paths(document)) or any(_with_claims(document))


def of(document: Document) -> Iterator[PodSpec]:
    """Yield the pod specs of a document; of a kind of another project those that it has."""
    if (core := _core_path(document)) is not None:
        yield PodSpec(path=core, spec=json_types.mapping(document.body, *core.split(".")))
        return
    for path in _other_paths(document):
        for where, value in _resolve(document.body, path.split("."), ""):
            if isinstance(value, dict):
                yield PodSpec(path=where, spec=value)
    yield from _with_claims(document)


def pods(document: Document) -> list[Document]:
    """Return the pods that a Deployment, StatefulSet, ReplicaSet, Job or run of a CronJob has at the same time; none for another kind."""
    if not is_workload(document) or (count := _COUNTS.get(json_types.text(document.body, "kind"))) is None:
        return []
    name, namespace = (json_types.text(document.body, "metadata", field) for field in ("name", "namespace"))
    template = json_types.mapping(document.body, *(_core_path(document) or "").split(".")[:-1])
    number = json_types.at(document.body, *count.split("."))
    bodies: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{place}", "namespace": namespace, "labels": json_types.mapping(template, "metadata", "labels")},
            "spec": json_types.copy(json_types.mapping(template, "spec")),
        }
        for place in range(number if isinstance(number, int) else 1)
    ]
    return [replace(document, resource=resources.POD, body=body) for body in bodies]


def _with_claims(document: Document) -> Iterator[PodSpec]:
    """Yield what looks like a pod spec with claims in an object of an unknown kind: a list of containers beside one of resourceClaims."""
    if document.resource is not None or _core_path(document) is not None or _other_paths(document):
        return
    left: list[tuple[str, Json]] = [("", document.body)]
    while left:
        path, value = left.pop()
        if isinstance(value, list):
            left += [(f"{path}[{place}]", item) for place, item in reversed(list(enumerate(value)))]
        elif isinstance(value, dict):
            if value.get("resourceClaims") and all(isinstance(value.get(name), list) for name in ("containers", "resourceClaims")):
                yield PodSpec(path=path, spec=value, is_whole=False)
            else:
                left += [(f"{path}.{name}" if path else name, item) for name, item in reversed(value.items())]


def _core_path(document: Document) -> str | None:
    group, kind = _group_and_kind(document)
    return _CORE.get(kind) if group in _CORE_GROUPS else None


def _other_paths(document: Document) -> tuple[str, ...]:
    return _OTHERS.get(_group_and_kind(document), ())


def _group_and_kind(document: Document) -> tuple[str, str]:
    return json_types.text(document.body, "apiVersion").rpartition("/")[0], json_types.text(document.body, "kind")


def _resolve(value: Json, steps: list[str], path: str) -> Iterator[tuple[str, Json]]:
    if not steps:
        yield path, value
        return
    step, rest = steps[0], steps[1:]
    name = step.removesuffix("[]").removesuffix("{}")
    inner, where = json_types.at(value, name), f"{path}.{name}" if path else name
    if step.endswith("[]"):
        for place, item in enumerate(json_types.items(inner)):
            yield from _resolve(item, rest, f"{where}[{place}]")
    elif step.endswith("{}"):
        for key, item in json_types.mapping(inner).items():
            yield from _resolve(item, rest, f"{where}.{key}")
    elif inner is not None:
        yield from _resolve(inner, rest, where)
