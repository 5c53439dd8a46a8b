"""What the controllers of all kinds that make pods have in common: the object that they reconcile, and the creation of its pods."""

import abc
from typing import ClassVar

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import find, key_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD, Resource


class Controller(abc.ABC):
    """Reconciles the objects of one kind."""

    resource: ClassVar[Resource]

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder

    def check(self, key: Key) -> float | None:
        """Reconcile an object, unless it is being deleted. Return the seconds until the next check; None for never.

        Raises the ApiError of a pod or another object that could not be created.
        """
        owner = find(self._api, self.resource, key)
        return None if owner is None or pod_claims.is_deleting(owner) else self._reconcile(owner)

    @abc.abstractmethod
    def _reconcile(self, owner: Object) -> float | None: ...

    def _create_pod(self, owner: Object, metadata: Object, fields: Object | None = None) -> None:
        """Create one pod from the template. ``metadata`` has its name or generateName, and labels and annotations beside the template's;
        ``fields`` are of its spec. A refusal is an event on ``owner``, and raises ForbiddenError or InvalidError.
        """
        template = json_types.copy_object(json_types.mapping(owner, "spec", "template"))
        own = json_types.mapping(template, "metadata")
        body: Object = metadata | {
            "labels": json_types.mapping(own, "labels") | json_types.mapping(metadata, "labels"),
            "annotations": json_types.mapping(own, "annotations") | json_types.mapping(metadata, "annotations"),
            "finalizers": json_types.items(own, "finalizers"),
            "ownerReferences": [pod_claims.owned_by(self.resource, owner)],
        }
        spec: Object = json_types.mapping(template, "spec") | (fields or {})
        try:
            pod = self._api.create(POD, {"metadata": body, "spec": spec}, namespace=key_of(owner).namespace)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            self._recorder.warning(self.resource, owner, "FailedCreate", f"Error creating: {error}")
            raise
        self._recorder.normal(self.resource, owner, "SuccessfulCreate", f"Created pod: {key_of(pod).name}")
