"""The server on the wire: TLS, identities, discovery, pages, streams, and every refusal as a Status."""

import contextlib
import gc
import json
import logging
import logging.handlers
import pathlib
import queue
import socket
import stat
import threading
import warnings

import httpx
import pytest

from drakit_cluster.api import apiserver, registry, tls
from drakit_cluster.api.storage import watching
from drakit_cluster.client import client
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLASS, SLICE
from fakes import waits
from unit.cluster import samples

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def events(raw: httpx.Client, count: int, **parameters: str) -> list[Object]:
    """Return the first ``count`` events of a watch on slices."""
    with raw.stream("GET", SLICES, params={"watch": "1", **parameters}) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        return [json.loads(next(lines)) for _ in range(count)]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
def test_health_and_version_need_no_identity(raw: httpx.Client, path: str) -> None:
    assert raw.get(path, headers={"authorization": ""}).status_code == 200


def test_a_client_that_asks_for_websocket_leaves_no_advice_to_install_packages(raw: httpx.Client) -> None:
    logged = queue.SimpleQueue[logging.LogRecord]()
    handler, logger = logging.handlers.QueueHandler(logged), logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        raw.get("/version", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    finally:
        logger.removeHandler(handler)
    assert logged.empty()


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic YTpi", "Bearer"])
def test_other_paths_refuse_clients_without_identity(raw: httpx.Client, header: str) -> None:
    for path in (SLICES, "/api", "/apis", "/openapi/v3", "/nothing", "/healthz/../api"):
        answer = raw.get(path, headers={"authorization": header})
        assert answer.status_code == 401
        assert answer.json()["reason"] == "Unauthorized"


@pytest.mark.parametrize("header", ["Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-node"])
def test_a_request_in_the_name_of_another_user_is_refused(raw: httpx.Client, header: str) -> None:
    refused = raw.get(SLICE.path(), headers={header: "bob"})
    assert refused.status_code == 400
    assert refused.json()["message"] == "Impersonate-User: the local cluster has no impersonation; use a token of that user"


def test_a_client_that_trusts_another_authority_does_not_connect(server: apiserver.ApiServer) -> None:
    stranger = tls.Authority().pem
    connected = client.ApiClient(server=server.url, ca_pem=stranger, token=server.issue_token("tester", ("system:masters",)))
    with connected, pytest.raises(client.UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        connected.list(SLICE)


def close_while_connecting() -> object:
    """Close a client while it waits for the server's part of the handshake; what its request was answered."""
    authority = tls.Authority()
    answers: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connected = client.ApiClient(server=f"https://127.0.0.1:{listener.getsockname()[1]}", ca_pem=authority.pem, token="any")  # noqa: S106
        asking = threading.Thread(target=lambda: answers.append(connected.list(SLICE).items))
        asking.start()
        plain, _ = listener.accept()
        connected.close()
        with authority.server_context.wrap_socket(plain, server_side=True) as served:
            served.recv(1 << 16)
            served.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            asking.join()
        with pytest.raises(RuntimeError, match="closed"):
            connected.list(SLICE)
    return answers


def test_a_client_that_is_closed_while_it_connects_leaves_no_connection_behind() -> None:
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        assert close_while_connecting() == [[]], "a request that was on its way is answered"
        gc.collect()
    assert [str(one.message) for one in result if one.category is ResourceWarning] == []


def test_only_tls_is_spoken(server: apiserver.ApiServer) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{server.port}/healthz", trust_env=False)
    context = tls.client_context(server.ca_pem)
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=waits.SECONDS)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as connected:
        assert connected.version() in ("TLSv1.2", "TLSv1.3")


def test_the_api_server_listens_on_loopback_only(server: apiserver.ApiServer) -> None:
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", server.port), timeout=1):
        pass


def test_the_kubeconfig_is_private_and_works(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "kubeconfig"
    server.write_kubeconfig(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["kubeconfig"]
    with client.ApiClient.from_kubeconfig(path) as connected:
        assert connected.create(CLASS, {"metadata": {"name": "gpu"}, "spec": {}})["kind"] == "DeviceClass"


def test_discovery_names_every_resource(raw: httpx.Client) -> None:
    assert raw.get("/api").json()["versions"] == ["v1"]
    groups = {one["name"]: one for one in raw.get("/apis").json()["groups"]}
    assert sorted(groups) == [
        "admissionregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "batch",
        "coordination.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
    ]
    assert groups["resource.k8s.io"]["preferredVersion"]["groupVersion"] == "resource.k8s.io/v1"
    assert [one["version"] for one in groups["resource.k8s.io"]["versions"]] == ["v1", "v1beta2", "v1alpha3"]
    assert raw.get("/apis/resource.k8s.io").json()["kind"] == "APIGroup"
    listed = raw.get("/apis/resource.k8s.io/v1").json()["resources"]
    assert [one["name"] for one in listed] == [
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "deviceclasses",
        "resourceslices",
        "devicetaintrules",
        "devicetaintrules/status",
    ]
    core = {one["name"]: one for one in raw.get("/api/v1").json()["resources"]}
    assert {"nodes", "nodes/status", "pods", "pods/status", "namespaces", "events"} <= set(core)
    assert core["serviceaccounts/token"]["kind"] == "TokenRequest"
    (review,) = [one for one in raw.get("/apis/authorization.k8s.io/v1").json()["resources"] if one["name"] == "subjectaccessreviews"]
    assert review["verbs"] == ["create"]


def test_openapi_matches_the_types_of_the_code(raw: httpx.Client) -> None:
    index = raw.get("/openapi/v3").json()["paths"]
    document = raw.get(index["apis/resource.k8s.io/v1"]["serverRelativeURL"]).json()
    found = document["components"]["schemas"]["io.k8s.api.resource.v1.ResourceClaim"]["properties"]
    devices = found["status"]["properties"]["devices"]
    assert devices["x-kubernetes-list-map-keys"] == ["driver", "device", "pool", "shareID"]
    assert "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status" in document["paths"]


@pytest.mark.parametrize(
    "method, path, code",
    [
        ("GET", "/apis/resource.k8s.io/v1/nothing", 404),
        ("GET", "/apis/resource.k8s.io/v9/resourceslices", 404),
        ("GET", f"{SLICES}/a/status", 404),
        ("GET", f"{SLICES}/a/b/c", 404),
        ("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceslices", 404),
        ("POST", f"{SLICES}/a", 405),
        ("PUT", SLICES, 405),
        ("DELETE", f"{CLAIMS}/a/status", 405),
        ("GET", f"{SLICES}?limit=many", 400),
        ("GET", f"{SLICES}?watch=1&resourceVersion=x", 400),
        ("GET", f"{SLICES}?fieldSelector=spec", 400),
        ("DELETE", f"{SLICES}/a?dryRun=Some", 422),
        ("DELETE", f"{SLICES}/a?propagationPolicy=None", 422),
        ("GET", f"{SLICES}?resourceVersion=99999", 504),
        ("GET", f"{SLICES}?resourceVersion=x", 400),
        ("GET", f"{SLICES}?resourceVersionMatch=Exact", 400),
        ("GET", f"{SLICES}?resourceVersionMatch=Exact&resourceVersion=0", 400),
        ("GET", f"{SLICES}?resourceVersionMatch=Newest&resourceVersion=1", 400),
        ("GET", f"{SLICES}?resourceVersionMatch=NotOlderThan&resourceVersion=1&continue=x", 400),
        ("GET", f"{SLICES}?resourceVersionMatch=NotOlderThan&resourceVersion=99999", 504),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("GET", "/api/v1/namespaces/default/serviceaccounts/x/token", 405),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/x/other", 404),
    ],
)
def test_malformed_requests_get_a_status(raw: httpx.Client, method: str, path: str, code: int) -> None:
    answer = raw.request(method, path)
    assert answer.status_code == code
    assert (answer.json()["kind"], answer.json()["code"]) == ("Status", code)


@pytest.mark.parametrize(
    "body, kind, code",
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\x00", "application/vnd.kubernetes.protobuf", 400),
        (b" " * (3 * 1024 * 1024 + 1), "application/json", 413),
        (b'{"kind":"Pod","apiVersion":"v1"}', "application/json", 400),
    ],
)
def test_bodies_that_cannot_be_read_store_nothing(raw: httpx.Client, body: bytes, kind: str, code: int) -> None:
    answer = raw.post(SLICES, content=body, headers={"content-type": kind})
    assert answer.status_code == code
    assert raw.get(SLICES).json()["items"] == []
    assert raw.patch(f"{SLICES}/a", content=b"{}").status_code == 415


def test_unknown_fields_warn_or_are_refused_as_asked(raw: httpx.Client) -> None:
    body = samples.slice_(colour="red")
    strict = raw.post(SLICES, json=body, params={"fieldValidation": "Strict"})
    assert strict.status_code == 400
    assert 'unknown field "spec.colour"' in strict.json()["message"]
    warned = raw.post(SLICES, json=body)
    assert warned.status_code == 201
    assert "colour" not in warned.json()["spec"]
    assert warned.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'
    assert "warning" not in raw.put(f"{SLICES}/0-n1-aaaaa", json=body, params={"fieldValidation": "Ignore"}).headers


def test_pages_of_a_list_are_one_snapshot_and_an_unknown_page_is_410(raw: httpx.Client, memory: registry.Registry) -> None:
    for index in range(5):
        memory.create(SLICE, samples.slice_(f"s{index}"))
    first = raw.get(SLICES, params={"limit": "2"}).json()
    assert first["metadata"]["remainingItemCount"] == 3
    memory.delete(SLICE, "s4")
    second = raw.get(SLICES, params={"limit": "5", "continue": first["metadata"]["continue"]}).json()
    names = [one["metadata"]["name"] for one in first["items"] + second["items"]]
    assert names == ["s0", "s1", "s2", "s3", "s4"]
    assert "continue" not in second["metadata"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    gone = raw.get(SLICES, params={"continue": "old"})
    assert (gone.status_code, gone.json()["reason"]) == (410, "Expired")


def test_items_of_a_list_have_no_kind_of_their_own(raw: httpx.Client, memory: registry.Registry) -> None:
    made = memory.create(SLICE, samples.slice_())
    listed = raw.get(SLICES).json()
    assert listed["kind"] == "ResourceSliceList"
    assert listed["items"] == [{key: value for key, value in made.items() if key not in ("kind", "apiVersion")}]


def test_an_exact_list_of_an_old_version_is_410(raw: httpx.Client) -> None:
    answer = raw.get(SLICES, params={"resourceVersion": "1", "resourceVersionMatch": "Exact"})
    assert answer.status_code == 410


def test_tables_are_for_people(raw: httpx.Client, memory: registry.Registry) -> None:
    memory.create(SLICE, samples.slice_())
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    table = raw.get(SLICES, headers=accept).json()
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert table["rows"][0]["cells"][:4] == ["0-n1-aaaaa", "n1", "gpu.drakit.dev", "n1"]
    assert raw.get(f"{SLICES}/0-n1-aaaaa", headers=accept).json()["kind"] == "Table"


@pytest.mark.parametrize(
    "include, kind", [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "ResourceSlice")]
)
def test_a_rows_object_is_whole_if_the_client_asks_for_it(raw: httpx.Client, memory: registry.Registry, include: str, kind: str) -> None:
    memory.create(SLICE, samples.slice_())
    accept, options = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, {"includeObject": include}
    [row] = raw.get(SLICES, headers=accept, params=options).json()["rows"]
    [one] = raw.get(f"{SLICES}/0-n1-aaaaa", headers=accept, params=options).json()["rows"]
    assert row["object"] == one["object"]
    assert (row["object"]["kind"], "spec" in row["object"]) == (kind, kind == "ResourceSlice")


def test_a_row_has_no_object_if_the_client_wants_none(raw: httpx.Client, memory: registry.Registry) -> None:
    memory.create(SLICE, samples.slice_())
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    assert set(raw.get(SLICES, headers=accept, params={"includeObject": "None"}).json()["rows"][0]) == {"cells"}


def test_initial_events_end_with_a_marked_bookmark(raw: httpx.Client, memory: registry.Registry) -> None:
    memory.create(SLICE, samples.slice_())
    wanted = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    added, mark = events(raw, 2, **wanted)
    assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
    assert json_types.text(mark, "object", "metadata", "annotations", "k8s.io/initial-events-end") == "true"
    assert raw.get(SLICES, params={"watch": "1", "sendInitialEvents": "true"}).status_code == 400


def test_bookmarks_are_sent_on_request(memory: registry.Registry) -> None:
    with apiserver.ApiServer(memory, bookmark_every=0.05) as quick:
        token = quick.issue_token("tester", ("system:masters",))
        with client.ApiClient(server=quick.url, ca_pem=quick.ca_pem, token=token) as connected:
            memory.create(CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
            with contextlib.closing(connected.watch(SLICE, since="", bookmarks=True)) as watch:
                event = next(watch)
            assert event.type is watching.EventType.BOOKMARK
            assert json_types.text(event.object, "metadata", "resourceVersion") == str(memory.store.version)
            assert list(connected.watch(SLICE, since="", timeout=1)) == []


def test_a_stopped_server_ends_watches_and_restarts_on_its_port(memory: registry.Registry) -> None:
    server = apiserver.ApiServer(memory)
    server.start()
    port, token = server.port, server.issue_token("tester", ("system:masters",))
    connected = client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token)
    watch = connected.watch(SLICE, since="")
    connected.create(SLICE, samples.slice_())
    assert next(watch).type is watching.EventType.ADDED
    server.stop()
    server.stop()
    with pytest.raises((StopIteration, client.UnreachableError)):
        next(watch)
    with pytest.raises(client.UnreachableError):
        connected.list(SLICE)
    server.start()
    assert server.port == port
    assert len(connected.list(SLICE).items) == 1
    connected.close()
    server.stop()


def test_a_stop_closes_idle_connections(memory: registry.Registry) -> None:
    with apiserver.ApiServer(memory) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=waits.SECONDS) for _ in range(3)]
    for one in silent:
        with one:
            assert one.recv(1) == b""
    del server
    gc.collect()


def test_a_taken_port_is_a_clear_error(server: apiserver.ApiServer) -> None:
    second = apiserver.ApiServer(registry.Registry(), port=server.port)
    with pytest.raises(apiserver.StartError, match=str(server.port)):
        second.start()
    second.stop()


def test_delete_answers_by_kind(raw: httpx.Client, memory: registry.Registry) -> None:
    memory.create(SLICE, samples.slice_())
    raw.post("/api/v1/nodes", json={"metadata": {"name": "n1"}})
    assert raw.delete(f"{SLICES}/0-n1-aaaaa").json()["kind"] == "ResourceSlice"
    answer = raw.delete("/api/v1/nodes/n1").json()
    assert (answer["kind"], answer["status"], answer["details"]["name"]) == ("Status", "Success", "n1")


def test_an_apply_may_be_yaml(raw: httpx.Client) -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  annotations: {at: 2026-01-01}\nspec: {}\n"
    headers = {"content-type": "application/apply-patch+yaml"}
    where = "/apis/resource.k8s.io/v1/deviceclasses/gpu"
    answer = raw.patch(where, content=text, headers=headers, params={"fieldManager": "me"})
    found: Json = answer.json()
    assert json_types.text(found, "metadata", "annotations", "at") == "2026-01-01"
    assert raw.patch(where, content=": :", headers=headers, params={"fieldManager": "me"}).status_code == 400
