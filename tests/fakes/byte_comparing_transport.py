"""A connection to the local API server that refuses writes of claims' statuses as Kubernetes 1.36.2 does for the bytes of opaque parameters.

The local server stores parsed JSON. The real one compares bytes: parameters whose keys are not sorted make it refuse server-side apply, and those
with white space every write. The answers are those that it gave to a driver's token, as ``kube.client`` reads and cuts them.
"""

from collections.abc import Callable, Mapping, Sequence

from drakit.core import errors
from drakit.kube import status, transport

ALLOCATION = (
    'ResourceClaim.resource.k8s.io "c1" is invalid: [status.allocation: Forbidden: changing status.allocation or status.reservedFor requires '
    'resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User '
    '"system:serviceaccount:drakit-system:drakit" cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster '
    'scope, status.allocation: Invalid value: {"Devices":{"Results":[{"Request":"r","Driver":"gpu.drakit.dev"}]}}: field is immutable]'
)
ALLOCATION_TO_ADMIN = (
    'ResourceClaim.resource.k8s.io "c1" is invalid: status.allocation: Invalid value: {"Devices":{"Results":[]}}: field is immutable'
)
OTHER_DRIVER = (
    'ResourceClaim.resource.k8s.io "c1" is invalid: status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", '
    'verb="[associated-node:patch arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "nic.drakit.dev" is forbidden: User '
    '"system:serviceaccount:drakit-system:drakit" cannot associated-node:patch resource "resourceclaims/driver" in API group "resource.k8s.io"'
)
_MESSAGE_MAX = 500


def nothing() -> None:
    """Let nothing happen before a write."""


class ByteComparingTransport:
    """``refused`` is what the server says to applies, ``refused_always`` what it says to all writes; ``before_patch`` runs before a JSON patch."""

    def __init__(self, api: transport.Transport, refused: str = ALLOCATION, *, refused_always: str = "") -> None:
        self._api = api
        self._refused, self._refused_always = refused, refused_always
        self.before_patch: Callable[[], None] = nothing
        self.writes: list[tuple[str, transport.Body | None]] = []

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: transport.Body | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        if method == "PATCH":
            self.writes.append((content_type, body))
            refused = self._refused_always or (self._refused if content_type == status.APPLY_TYPE else "")
            if refused:
                raise errors.ApiError(f"the API server answered 422: {refused[:_MESSAGE_MAX]}", status=422, reason="Invalid")
            self.before_patch()
        return self._api.request(method, path, query=query, body=body, content_type=content_type, timeout=timeout)

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> transport.Stream:
        return self._api.stream(path, query=query, timeout=timeout)

    def steps(self) -> Sequence[tuple[object, object]]:
        """Operation and path of each step of the JSON patches that were sent, but for the version."""
        patches = [body for _, body in self.writes if isinstance(body, Sequence)]
        return [(one["op"], one["path"]) for body in patches for one in body if one["path"] != "/metadata/resourceVersion"]
