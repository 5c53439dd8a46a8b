"""Webhooks: a real HTTPS server of the test's is asked, and obeyed."""

import base64
import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from drakit_cluster.api import registry, tls
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLASS, NODE, SLICE, WEBHOOKS, Resource
from fakes import waits
from unit.cluster import samples


class Hook:
    """A webhook: remembers what it was asked; ``decide`` makes the response."""

    def __init__(self) -> None:
        self.asked: list[Object] = []
        self.decide: Callable[[Object], Json] = lambda _: {"allowed": True}
        self.url = ""
        self.authority = tls.Authority()

    def answer(self, review: Object) -> bytes:
        request = json_types.mapping(review, "request")
        self.asked.append(request)
        found = self.decide(request)
        response = {"uid": request["uid"], **found} if isinstance(found, dict) else found
        return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()

    class Requests(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = found.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            with contextlib.suppress(OSError):  # The server gave up waiting.
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's name.
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests) as server:
        server.socket = found.authority.server_context.wrap_socket(server.socket, server_side=True)
        found.url = f"https://127.0.0.1:{server.server_port}/validate"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def install(
    memory: registry.Registry, hook: Hook, fields: Object | None = None, *, authority: bytes | None = None, kind: Resource = WEBHOOKS
) -> None:
    rules: list[Json] = [
        {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["*", "*/status"],
        }
    ]
    pem = hook.authority.pem if authority is None else authority
    configured: Object = {
        "name": "hook.example.com",
        "clientConfig": {"url": hook.url, "caBundle": base64.b64encode(pem).decode()},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    memory.create(kind, {"metadata": {"name": "hooks"}, "webhooks": [configured | (fields or {})]})


def test_a_webhook_sees_the_write_and_lets_it_pass(hook: Hook, https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, hook)
    made = https.create(SLICE, samples.slice_())
    https.delete(SLICE, "0-n1-aaaaa")
    created, deleted = hook.asked
    assert (created["operation"], created["name"], created["oldObject"]) == ("CREATE", "0-n1-aaaaa", None)
    assert json_types.text(created, "object", "spec", "nodeName") == "n1"
    assert json_types.text(created, "object", "metadata", "uid") == json_types.text(made, "metadata", "uid")
    assert created["resource"] == {"group": "resource.k8s.io", "version": "v1", "resource": "resourceslices"}
    assert json_types.text(created, "userInfo", "username") == "tester"
    assert (deleted["operation"], deleted["object"]) == ("DELETE", None)
    https.create(NODE, {"metadata": {"name": "n1"}})
    assert len(hook.asked) == 2


def test_a_refusal_stores_nothing_and_has_the_webhooks_message(hook: Hook, https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, hook)
    hook.decide = lambda _: {"allowed": False, "status": {"message": "bad parameters", "code": 422}}
    with pytest.raises(errors.InvalidError, match=r'admission webhook "hook\.example\.com" denied the request: bad parameters'):
        https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    hook.decide = lambda _: {"allowed": False}
    with pytest.raises(errors.ForbiddenError, match="without explanation"):
        https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    assert memory.list(CLASS).items == []
    assert memory.create(CLASS, {"metadata": {"name": "by-the-cluster"}, "spec": {}})


def test_a_webhook_may_warn(hook: Hook, raw: httpx.Client, memory: registry.Registry) -> None:
    install(memory, hook)
    hook.decide = lambda _: {"allowed": True, "warnings": ["old form"]}
    answer = raw.post(CLASS.path(), json={"metadata": {"name": "x"}, "spec": {}})
    assert (answer.status_code, answer.headers["warning"]) == (201, '299 - "old form"')


def test_a_webhook_may_read_from_the_server_that_calls_it(hook: Hook, https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, hook)
    seen: list[int] = []

    def decide(_request: Object) -> Json:
        seen.append(len(https.list(SLICE).items))
        return {"allowed": True}

    hook.decide = decide
    https.create(SLICE, samples.slice_())
    assert seen == [0]


def test_an_object_changed_during_a_review_is_reviewed_again(hook: Hook, https: client.ApiClient, memory: registry.Registry) -> None:
    made = memory.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    install(memory, hook)

    def decide(_request: Object) -> Json:
        if len(hook.asked) == 1:
            memory.update(CLASS, made | {"spec": {"extendedResourceName": "example.com/gpu"}})
        return {"allowed": True}

    hook.decide = decide
    https.patch(CLASS, "x", {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE)
    stored = memory.get(CLASS, "x")
    assert len(hook.asked) == 2
    assert json_types.text(stored, "spec", "extendedResourceName") == "example.com/gpu"
    assert json_types.mapping(stored, "metadata", "labels") == {"a": "b"}


@pytest.mark.parametrize("fault", ["authority", "gone", "answer", "slow"])
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_webhook_that_fails_counts_as_its_policy_says(
    hook: Hook, https: client.ApiClient, memory: registry.Registry, fault: str, policy: str
) -> None:
    fields: Object = {"failurePolicy": policy}
    released, ended = threading.Event(), threading.Event()

    def decide_late(_: Object) -> Object:
        released.wait(waits.SECONDS)
        ended.set()
        return {"allowed": True}

    if fault == "gone":
        fields["clientConfig"] = {"url": "https://127.0.0.1:1/", "caBundle": ""}
    elif fault == "answer":
        hook.decide = lambda _: None
    elif fault == "slow":
        fields["timeoutSeconds"] = 1
        hook.decide = decide_late
    install(memory, hook, fields, authority=tls.Authority().pem if fault == "authority" else None)
    if policy == "Ignore":
        assert https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    else:
        with pytest.raises(errors.InternalError, match=r'failed calling webhook "hook\.example\.com"'):
            https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    assert not ended.is_set(), "the server did not wait for the webhook"
    released.set()


def test_match_conditions_skip_a_webhook(hook: Hook, https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, hook, {"matchConditions": [{"name": "named", "expression": "object.metadata.name.startsWith('gpu')"}]})
    for name in ("nic", "gpu"):
        https.create(CLASS, {"metadata": {"name": name}, "spec": {}})
    assert [one["name"] for one in hook.asked] == ["gpu"]


@pytest.mark.parametrize(
    "fields, field",
    [
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
        ({"clientConfig": {"url": "http://127.0.0.1/"}}, "webhooks[0].clientConfig.url"),
        ({"clientConfig": {"service": {"name": "a", "namespace": "b"}}}, "webhooks[0].clientConfig.service"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
        ({"sideEffects": "Some"}, "webhooks[0].sideEffects"),
        ({"admissionReviewVersions": ["v1beta1"]}, "webhooks[0].admissionReviewVersions"),
        ({"matchConditions": [{"name": "a", "expression": "("}]}, "webhooks[0].matchConditions[0].expression"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_field(memory: registry.Registry, fields: Object, field: str) -> None:
    hook = Hook()
    hook.url = "https://127.0.0.1/"
    with pytest.raises(errors.InvalidError) as refused:
        install(memory, hook, fields)
    assert field in [cause.field for cause in refused.value.details.causes]


def test_the_context_for_webhooks_checks_names_and_chains() -> None:
    assert tls.client_context(None).verify_mode is ssl.CERT_REQUIRED


def test_a_webhook_sees_a_dry_run(hook: Hook, raw: httpx.Client, memory: registry.Registry) -> None:
    install(memory, hook)
    hook.decide = lambda _: {"allowed": True, "warnings": ["seen"]}
    answer = raw.post(CLASS.path(), json={"metadata": {"name": "x"}, "spec": {}}, params={"dryRun": "All"})
    assert answer.headers["warning"] == '299 - "seen"'
    assert [one["dryRun"] for one in hook.asked] == [True]
    assert memory.list(CLASS).items == []
