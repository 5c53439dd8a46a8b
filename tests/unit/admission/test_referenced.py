"""What a review of a pod reads from the API server, and what counts as unknown."""

from collections.abc import Mapping

import drakit
from drakit.admission import referenced, whole_objects
from drakit.kube import transport
from fakes import fake_transport

BASE = "/apis/resource.k8s.io/v1"
CLAIM: transport.Object = {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "fast"}}]}}}
TEMPLATE: transport.Object = {"spec": {"spec": {"devices": {"requests": [{"name": "a", "firstAvailable": [{"deviceClassName": "fast"}]}]}}}}
CLASS: transport.Object = {"spec": {"selectors": []}}
CLAIMS = {"one": ("ResourceClaim", "lab", "c"), "two": ("ResourceClaimTemplate", "lab", "t"), "again": ("ResourceClaim", "lab", "c")}
OBJECTS = {
    f"{BASE}/namespaces/lab/resourceclaims/c": CLAIM,
    f"{BASE}/namespaces/lab/resourceclaimtemplates/t": TEMPLATE,
    f"{BASE}/deviceclasses/fast": CLASS,
}


def api(objects: Mapping[str, transport.Object], status: int = 404) -> fake_transport.FakeTransport:
    return fake_transport.FakeTransport(lambda request: objects.get(request.path) or drakit.ApiError("no", status=status))


def test_the_claims_of_a_pod_and_their_classes_are_read_once_each() -> None:
    server = api(OBJECTS)
    assert referenced.Referenced(server).by(CLAIMS) == {
        ("ResourceClaim", "lab", "c"): CLAIM,
        ("ResourceClaimTemplate", "lab", "t"): TEMPLATE,
        ("DeviceClass", "", "fast"): CLASS,
    }
    assert [(request.method, request.path) for request in server.requests] == [("GET", path) for path in OBJECTS]


def test_what_does_not_exist_or_cannot_be_read_is_unknown() -> None:
    for status in (404, 403, 0):
        assert referenced.Referenced(api({}, status)).by(CLAIMS) == {}


def test_nothing_is_read_after_the_time_for_a_review() -> None:
    times = iter((0.0, 0.5, referenced.SECONDS, referenced.SECONDS))
    server = api(OBJECTS)
    known = referenced.Referenced(server, now=lambda: next(times)).by(CLAIMS)
    assert known == {("ResourceClaim", "lab", "c"): CLAIM}
    assert len(server.requests) == 1


def test_a_name_that_no_object_can_have_reaches_no_path() -> None:
    server = api(OBJECTS)
    wrong: dict[str, whole_objects.Reference] = {
        "up": ("ResourceClaim", "lab", "../../../../api/v1/secrets"),
        "query": ("ResourceClaim", "lab", "c?watch=1"),
        "namespace": ("ResourceClaim", "lab/pods", "c"),
        "empty": ("ResourceClaim", "", "c"),
    }
    referenced.Referenced(server).by(wrong)
    assert [request.path for request in server.requests] == []
