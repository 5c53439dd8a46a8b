"""The objects of a live cluster that ``drakit lint`` checks, without what may be secret."""

import dataclasses
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.cli import output
from drakit_tools import live

if TYPE_CHECKING:
    from drakit_cluster.manifests import Document
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource

SOURCE = "the cluster"
"""What the documents have in place of the name of a file."""
_METADATA = ("name", "namespace", "uid", "labels", "ownerReferences")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_CONTAINER = ("name", "image", "resources", "restartPolicy")
_NEEDLESS = ("volumes", "imagePullSecrets")
_ENDED = frozenset({"Complete", "Failed"})
"""The conditions of a Job that has ended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster's objects, and the gates with those on whose fields or kinds the server stored."""

    documents: "Sequence[Document]"
    gates: "Sequence[FeatureGates]"
    partial: Collection[str]
    """The kinds of which the cluster may have other objects, because some could not be read."""


def read(
    kubeconfig: pathlib.Path | None, files: "Sequence[Document]", gates: "Sequence[FeatureGates]", explicit: Collection[str]
) -> Cluster:
    """Return a cluster's objects, except those that the files replace.

    Notes say what cannot be read. Secrets are not read; environment, commands, volumes and annotations of pods are left out.
    """
    from drakit_cluster import manifests
    from drakit_cluster.lint import pod_templates
    from drakit_cluster.objects import json_types

    reading = live.read_to_check(kubeconfig)
    notes = [note.text for note in reading.notes]
    chosen = []
    for features in gates:
        _, features_with_stored, more = live.as_version(reading.objects, features, explicit)
        chosen.append(features_with_stored)
        notes += [note.text for note in more]
    replaced = {_key(document) for document in files}
    made = []
    for document in manifests.of_objects(SOURCE, _checked(reading.objects)):
        if _key(document) in replaced:
            notes.append(f"{document.label} is that of the files, not that of the cluster")
            continue
        for pod in pod_templates.of(document):
            _strip(pod.spec)
            json_types.mapping(document.body, *pod.path.split(".")[:-1], "metadata").pop("annotations", None)
        made.append(document)
    for note in dict.fromkeys(notes):
        output.note(note)
    return Cluster(documents=made, gates=chosen, partial=reading.partial)


def _key(document: "Document") -> tuple[str, str, str]:
    """Return kind, namespace and name, in a file without a namespace those of the default one."""
    from drakit_cluster import manifests
    from drakit_cluster.objects import json_types

    namespace, name = (json_types.text(document.body, "metadata", field) for field in ("namespace", "name"))
    return json_types.text(document.body, "kind"), namespace or manifests.DEFAULT_NAMESPACE, name


def _checked(objects: "Mapping[Resource, Sequence[Object]]") -> "Iterator[Object]":
    """Yield the objects to check, with kind and version.

    What another checked object makes is left out, as it has the same mistakes: pods of a Deployment, and claims of a pod's template. So are
    pods and Jobs that have ended, and pods and workloads that want no devices.
    """
    from drakit_cluster.client import pod_claims
    from drakit_cluster.lint import pod_templates
    from drakit_cluster.objects import json_types, resources
    from drakit_cluster.scheduling.explain import whatif

    makers = {
        json_types.text(entry, "metadata", "uid")
        for kind, listed in objects.items()
        for entry in listed
        if kind is resources.POD_GROUP or pod_templates.path_of(kind.kind) is not None
    }
    for kind, listed in objects.items():
        for entry in listed:
            pod = _pod(kind, entry)
            is_made = (json_types.text(pod_claims.owner(entry), "uid") or None) in makers
            if is_made or (pod is not None and (_has_ended(entry) or not whatif.wants_devices(pod))):
                continue
            metadata = {name: value for name, value in json_types.mapping(entry, "metadata").items() if name in _METADATA}
            yield {**json_types.copy_object(entry), "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def _has_ended(entry: "Object") -> bool:
    """Return whether a pod or Job has ended."""
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import json_types

    conditions = json_types.objects(entry, "status", "conditions")
    return pod_claims.is_terminal(entry) or any(entry.get("type") in _ENDED and entry.get("status") == "True" for entry in conditions)


def _pod(kind: "Resource", entry: "Object") -> "Object | None":
    """Return the pod, or the pod that a workload makes; None for another kind."""
    from drakit_cluster.lint import pod_templates
    from drakit_cluster.objects import json_types

    path = pod_templates.path_of(kind.kind)
    return None if path is None else {"spec": json_types.mapping(entry, *path.split("."))}


def _strip(spec: "Object") -> None:
    """Leave out of a pod spec what lint does not need and may be secret."""
    from drakit_cluster.objects import json_types

    for field in _NEEDLESS:
        spec.pop(field, None)
    for field in _CONTAINERS:
        for container in json_types.objects(spec, field):
            for name in set(container) - set(_CONTAINER):
                del container[name]
