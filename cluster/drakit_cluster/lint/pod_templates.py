"""Where the pod specs of an object are: in pods, in Kubernetes' workloads, in the usual workloads of other projects, and where others have claims."""

import difflib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from drakit_cluster.manifests import DEFAULT_NAMESPACE, Document
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


def path_of(kind: str) -> str | None:
    """Return the path of the pod spec in a pod or workload of Kubernetes; None for another kind."""
    return _CORE.get(kind)


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


def with_pods(documents: Sequence[Document]) -> list[Document]:
    """Return the documents with each Deployment, StatefulSet, ReplicaSet, Job and CronJob replaced by the pods that it has at the same time.

    A CronJob has those of one run. Each pod's name has the workload's kind, as no two workloads of one name may make pods of one name; those of a
    StatefulSet are as on a cluster. A name that another pod has gets a number.
    """
    taken = {_key(document.body) for document in documents if document.resource is resources.POD}
    return [entry for document in documents for entry in (_pods(document, taken) if _has_count(document) else [document])]


def _pods(document: Document, taken: set[tuple[str, str]]) -> Iterator[Document]:
    """Yield the pods of a workload, and add their names to ``taken``."""
    kind, namespace = (json_types.text(document.body, *path) for path in (("kind",), ("metadata", "namespace")))
    name, prefix = (json_types.text(document.body, "metadata", field) for field in ("name", "generateName"))
    start = f"{name}-" if name else prefix
    start += "" if kind == "StatefulSet" else f"{kind.lower()}-"
    path = _CORE[kind].removesuffix(".spec")
    template = json_types.mapping(document.body, *path.split("."))
    for place in range(_count(document.body, kind)):
        candidates = (f"{start}{place}{again}" for again in itertools.chain([""], map("-{}".format, itertools.count(2))))
        unused = next(candidate for candidate in candidates if (namespace or DEFAULT_NAMESPACE, candidate) not in taken)
        metadata: Object = {"name": unused, "namespace": namespace, "labels": json_types.mapping(template, "metadata", "labels")}
        spec = json_types.copy(json_types.mapping(template, "spec"))
        pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        taken.add(_key(pod))
        yield replace(document, resource=resources.POD, body=pod, workload=document, template=path)


def _count(body: Object, kind: str) -> int:
    """Return how many pods a workload has at the same time: a Job at most one for each completion, and none while it is suspended."""
    *parents, field = _COUNTS[kind].split(".")
    spec = json_types.mapping(body, *parents)
    wanted, needed = (number if isinstance(number := spec.get(name), int) else None for name in (field, "completions"))
    is_suspended = any(json_types.mapping(body, *parents[:depth]).get("suspend") is True for depth in range(1, len(parents) + 1))
    most = 1 if wanted is None else wanted
    return 0 if is_suspended else most if needed is None else min(most, needed)


def _has_count(document: Document) -> bool:
    return is_workload(document) and json_types.text(document.body, "kind") in _COUNTS


def _key(body: Object) -> tuple[str, str]:
    return json_types.text(body, "metadata", "namespace") or DEFAULT_NAMESPACE, json_types.text(body, "metadata", "name")


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
