"""The pods of the cluster by the claims that they use."""

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import Change, key_of
from drakit_cluster.objects.json_types import Object


class PodIndex:
    """Pods by the claims that they use. The cost of an update or lookup depends only on the pods and claims involved."""

    def __init__(self) -> None:
        self._pods: dict[Key, Object] = {}
        self._users: dict[Key, set[Key]] = {}

    def observe(self, change: Change) -> None:
        """Record a pod's current state. A deleted or finished pod uses no claims."""
        key, pod = key_of(change.object), change.object
        old_pod = self._pods.pop(key, None)
        for claim in pod_claims.claim_keys(old_pod) if old_pod else ():
            users = self._users[claim]
            users.discard(key)
            if not users:
                del self._users[claim]
        if change.deleted or pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod):
            return
        self._pods[key] = pod
        for claim in pod_claims.claim_keys(pod):
            self._users.setdefault(claim, set()).add(key)

    def users(self, claim: Key) -> list[Object]:
        """Return the pods that refer to the claim, by name."""
        return [self._pods[key] for key in sorted(self._users.get(claim, ()))]
