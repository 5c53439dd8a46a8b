"""Ask the API server whether this account has a right (SelfSubjectAccessReview)."""

from drakit.core import records
from drakit.kube import client, transport

API_VERSION = "authorization.k8s.io/v1"
REVIEWS = f"/apis/{API_VERSION}/selfsubjectaccessreviews"


def may(api: client.Client, attributes: dict[str, records.Json]) -> bool:
    """Return whether this account may do what the attributes say: group, resource, subresource, verb, name and namespace. Raises ApiError."""
    body: transport.Object = {"apiVersion": API_VERSION, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
    status = api.request("POST", REVIEWS, body=body).get("status")
    return isinstance(status, dict) and status.get("allowed") is True
