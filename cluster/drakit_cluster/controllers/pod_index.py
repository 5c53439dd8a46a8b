"""Which pods refer to a claim: those that live, whether they are reserved or not. Source: KEP-5194, finding pods using a claim."""

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import Change, key_of
from drakit_cluster.objects.json_types import Object


class PodIndex:
    """Kept by ``note``; changing or asking costs no more than the pods and claims concerned."""

    def __init__(self) -> None:
        self._pods: dict[Key, Object] = {}
        self._users: dict[Key, set[Key]] = {}

    def note(self, change: Change) -> None:
        """Take in a pod as it is now. One that is deleted or done uses nothing any more."""
        key, pod = key_of(change.object), change.object
        known = self._pods.pop(key, None)
        for claim in pod_claims.claim_keys(known) if known else ():
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
