"""Claims from templates. Source: Kubernetes' resource claim controller (KEP-4381).

The pod's status.resourceClaimStatuses tells which claim was made for which entry of its spec. A claim that was made before a crash of
the controller is found again by its owner and its annotation, so there is never a second one.
"""

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import uid_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_MAX_BASE = 57
"""The server appends five characters to at most 58; one is kept for the dash at the end."""


class ClaimGenerator:
    """Makes the claims that pods ask for by templates."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder
        self._waiting: dict[Key, set[Key]] = {}

    def waiting_for(self, template: Key) -> set[Key]:
        """Return the pods whose claims could not be made for want of a template, and forget them."""
        return self._waiting.pop(template, set())

    def forget(self, pod: Key) -> None:
        """Stop waiting on behalf of a pod."""
        for pods in self._waiting.values():
            pods.discard(pod)

    def check(self, key: Key) -> None:
        """Make what is missing for the pod under ``key``. Raise ApiError where a write must be tried again."""
        try:
            pod = self._api.get(POD, key.name, key.namespace)
        except errors.NotFoundError:
            return
        if pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod):
            return
        missing = [reference for reference in pod_claims.references(pod) if reference.claim == "" and reference.template]
        made = {reference.name: claim for reference in missing if (claim := self._generate(pod, reference))}
        if made:
            self._record(pod, made)

    def _generate(self, pod: Object, reference: pod_claims.Reference) -> str:
        """Return the name of the entry's claim, made now or before; empty where the template is missing."""
        namespace = json_types.text(pod, "metadata", "namespace")
        for claim in self._api.list(CLAIM, namespace=namespace).items:
            if pod_claims.generated_for(claim, pod) and _entry_of(claim) == reference.name:
                return json_types.text(claim, "metadata", "name")
        try:
            template = self._api.get(CLAIM_TEMPLATE, reference.template, namespace)
        except errors.NotFoundError:
            waiting = self._waiting.setdefault(Key(namespace, reference.template), set())
            waiting.add(Key(namespace, json_types.text(pod, "metadata", "name")))
            message = f"ResourceClaimTemplate {namespace}/{reference.template} of claim {reference.name} not found"
            self._recorder.warning(POD, pod, "FailedResourceClaimCreation", message)
            return ""
        created = self._api.create(CLAIM, _claim(pod, reference.name, template), namespace=namespace)
        return json_types.text(created, "metadata", "name")

    def _record(self, pod: Object, made: dict[str, str]) -> None:
        statuses: list[Object] = [{"name": entry, "resourceClaimName": claim} for entry, claim in made.items()]
        known = json_types.objects(pod, "status", "resourceClaimStatuses")
        patch: Object = {
            "metadata": {"uid": uid_of(pod)},
            "status": {"resourceClaimStatuses": json_types.from_objects([*known, *statuses])},
        }
        metadata = json_types.mapping(pod, "metadata")
        name, namespace = json_types.text(metadata, "name"), json_types.text(metadata, "namespace")
        self._api.patch(POD, name, patch, namespace=namespace, kind=PatchKind.MERGE, subresource="status")


def _entry_of(claim: Object) -> str:
    return json_types.text(claim, "metadata", "annotations", POD_CLAIM_NAME)


def _claim(pod: Object, entry: str, template: Object) -> Object:
    """Return the claim to make for one entry of the pod's spec.resourceClaims."""
    name = json_types.text(pod, "metadata", "name")
    wanted = json_types.mapping(template, "spec", "metadata")
    annotations = json_types.mapping(wanted, "annotations") | {POD_CLAIM_NAME: entry}
    owner: Object = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid_of(pod), "controller": True, "blockOwnerDeletion": True}
    metadata: Object = {"generateName": generate_name(name, entry), "annotations": annotations, "ownerReferences": [owner]}
    if labels := json_types.mapping(wanted, "labels"):
        metadata["labels"] = json_types.copy(labels)
    return {"metadata": metadata, "spec": json_types.copy(json_types.mapping(template, "spec", "spec"))}


def generate_name(pod: str, entry: str) -> str:
    """Return ``<pod>-<entry>-``, both cut in proportion where the server would cut the end off."""
    room = _MAX_BASE - 1
    if len(pod) + len(entry) > room:
        kept = max(1, len(pod) * room // (len(pod) + len(entry)))
        pod, entry = pod[:kept], entry[: room - kept]
    return f"{pod}-{entry}-"
