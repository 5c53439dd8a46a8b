"""The dashboard shows what a node and a cluster have, live, and to nobody but the user who started it."""

import base64
import contextlib
import hashlib
import http.client
import json
import pathlib
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from drakit import settings as values
from drakit.cli import composition, options
from drakit.cli.commands import slices
from drakit.core import advanced, errors, inventory
from drakit.core import device as devices
from drakit.core.slices import resource_slice
from drakit.journal import journal as journals
from drakit.kube import client, transport
from drakit.telemetry import logs
from drakit_cluster.api import registry
from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Object
from drakit_tools.dashboard import cluster_source, model, node_source, pool_devices, server, text
from fakes import cluster_dashboard, command_line, exhaustion, real_clock, stub_api, waits

PAGE_FILES = pathlib.Path(server.__file__).parent


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor of a server or client outlives its test."""
    with exhaustion.nothing_left():
        yield


@pytest.fixture
def dashboard() -> server.Dashboard:
    return server.Dashboard(lambda: model.State(title="node <b>one</b>"))


@pytest.fixture
def address(nothing_left: None, dashboard: server.Dashboard) -> Iterator[str]:
    with server.serving(dashboard, 0) as url:
        yield url


def ask(address: str, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
    host = address.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(host, timeout=waits.SECONDS)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def bearer(address: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.partition('#')[2]}"}


def test_the_state_needs_the_token_of_this_start(address: str) -> None:
    assert ask(address, "/state")[0].status == 401
    assert ask(address, "/state", {"Authorization": "Bearer guessed"})[0].status == 401
    answer, body = ask(address, "/state", bearer(address))
    assert answer.status == 200
    assert json.loads(body)["title"] == "node <b>one</b>"
    other = server.Dashboard(lambda: model.State(title=""))
    assert other.token != address.partition("#")[2]


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_another_host_or_origin_is_refused_with_the_token_too(address: str, headers: dict[str, str]) -> None:
    for path in ("/", "/state"):
        assert ask(address, path, {**bearer(address), **headers})[0].status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_dashboard_refuses_methods_that_write(address: str, method: str) -> None:
    assert ask(address, "/state", bearer(address), method)[0].status == 501


def test_an_unchanged_state_is_answered_with_304(address: str) -> None:
    first, _ = ask(address, "/state", bearer(address))
    tag = first.getheader("ETag")
    assert tag
    answer, body = ask(address, "/state", {**bearer(address), "If-None-Match": tag})
    assert (answer.status, body) == (304, b"")


def test_the_page_may_run_only_its_own_script_and_load_nothing(address: str) -> None:
    answer, body = ask(address, "/")
    policy = answer.getheader("Content-Security-Policy")
    assert policy is not None
    for kind, name in (("script", "script"), ("style", "style")):
        (inside,) = re.findall(rf"<{name}>(.*?)</{name}>", body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(rb"(?:src|href)=\"(?!#|data:,)", body), "nothing is loaded from anywhere"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert answer.getheader("Cache-Control") == "no-store"


def test_the_script_sets_text_and_never_markup() -> None:
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert way not in script


def test_a_state_that_cannot_be_read_is_a_problem_on_the_page() -> None:
    def read() -> model.State:
        raise errors.HardwareError("nvml", "the library does not answer")

    with server.serving(server.Dashboard(read), 0) as address:
        answer, body = ask(address, "/state", bearer(address))
    assert answer.status == 200
    assert "the library does not answer" in json.loads(body)["problem"]


def test_a_port_in_use_is_one_clear_line(address: str) -> None:
    port = int(address.partition("#")[0].rstrip("/").rpartition(":")[2])
    with (
        pytest.raises(errors.SettingsError, match=rf"--port: cannot listen on 127\.0\.0\.1:{port}"),
        server.serving(server.Dashboard(lambda: model.State(title="")), port),
    ):
        pass


def mock_settings(folder: pathlib.Path, more: Mapping[str, object] | None = None) -> values.Settings:
    given = {"mock.machine": command_line.MACHINE, "node.name": "node-1", **options.places(folder / "node"), **(more or {})}
    return values.load(given, environ={})


def test_a_node_shows_slices_shares_and_claims(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), name="train")).status == 0
    uid = "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
    assert shell.on_node("prepare", shell.claim_file(command_line.share("30G"), name="web", uid=uid)).status == 0
    state = node_source.NodeSource(mock_settings(tmp_path)).state()
    (node,) = state.nodes
    gpus, nics = node.pools
    busy, free = gpus.gpus
    assert [(span.start, span.size, span.kind, [use.claim for use in span.uses]) for span in busy.spans] == [
        (0, 4, "3g.20gb", ["default/train"])
    ]
    assert busy.width == 8
    assert busy.together == ({"3g.20gb": 1}, {"1g.5gb": 3})
    assert busy.alone["1g.5gb+me"] == 1  # Seven placements, but one set of media engines.
    assert busy.fragmented == "fragmented: 1 x 4g.20gb would fit after defragmentation"
    assert free.spans == ()
    assert (free.facts.model, free.facts.memory) == ("NVIDIA A100-SXM4-40GB", "39.2 GiB")
    assert free.facts.uuid.startswith("GPU-")
    assert free.readings == model.Readings(), "a mock GPU has no sensors"
    (fits,) = state.free
    assert (fits.model, fits.unused, fits.total) == ("NVIDIA A100-SXM4-40GB", 1, 2)
    assert fits.sets == ({"gpu": 1, "3g.20gb": 1}, {"1g.5gb": 10})
    assert [(share.use.claim, share.amount) for share in nics.nics[0].shares] == [("default/web", 30 * 10**9)]
    assert (nics.nics[0].capacity, nics.nics[0].interface) == (100 * 10**9, "eth1")
    got = {
        row.claim: (row.state, *((device.request, device.device, device.kind, device.prepared) for device in row.devices))
        for row in state.claims
    }
    assert got == {
        "default/train": ("prepared", ("gpu", "gpu-0-mig-3g20gb-9-0", "3g.20gb", True)),
        "default/web": ("prepared", ("net", "pci-0000-0c-00-0", "eth1", True)),
    }
    assert state.problem == ""


def test_a_gpu_with_a_fixed_layout_has_a_map_and_counts_as_one_gpu(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    given = {"gpu.mig_layouts": [{"match": "gpu-*", "partitions": {"3g.20gb": 1, "1g.5gb": 3}}]}
    settings = mock_settings(tmp_path, given)
    layout = f"gpu.mig_layouts={json.dumps(given['gpu.mig_layouts'])}"
    assert shell.on_node("prepare", shell.claim_file(command_line.mig("gpu-0-mig-1g5gb-19-2"), name="train"), "--set", layout).status == 0
    state = node_source.NodeSource(settings, only=("gpu",)).state()
    ((pool,),) = (node.pools for node in state.nodes)
    assert pool.others == ()
    busy, free = pool.gpus
    assert (busy.name, busy.width, free.name, free.width) == ("gpu-0", 8, "gpu-1", 8)
    assert [(span.start, span.size, span.kind, [use.claim for use in span.uses]) for span in busy.spans] == [
        (2, 1, "1g.5gb", ["default/train"])
    ]
    assert (busy.together, free.together) == (({"3g.20gb": 1, "1g.5gb": 2},), ({"3g.20gb": 1, "1g.5gb": 3},))
    assert (busy.fragmented, busy.facts.model, busy.facts.memory) == ("", "NVIDIA A100-SXM4-40GB", "")
    assert busy.facts.uuid.startswith("GPU-")
    (fits,) = state.free
    assert (fits.unused, fits.total, fits.sets) == (1, 2, ({"3g.20gb": 2, "1g.5gb": 5},))


def test_a_fixed_layout_has_the_sensors_and_slices_of_the_drivers_metrics() -> None:
    def partition(start: int, size: int) -> devices.Device:
        return devices.Device(
            name=f"gpu-3-mig-{size}g-{start}",
            attributes={"parentUUID": "GPU-1", "placementStart": start, "placementSize": size, "profile": f"{size}g"},
        )

    offered = inventory.Inventory(devices=(partition(0, 4), partition(4, 2)))
    heat = advanced.Metric(name="gpu_temperature_celsius", documentation="", value=61.0, labels={"gpu": "gpu-3"})
    slices = advanced.Metric(name="gpu_memory_slices", documentation="", value=8.0, labels={"gpu": "gpu-3"})
    base = model.Pool(driver="gpu.drakit.dev", name="node-1")
    (gpu,) = pool_devices.pool(base, offered, (), {}, (heat, slices)).gpus
    assert (gpu.name, gpu.width, gpu.readings.temperature) == ("gpu-3", 8, 61.0)
    assert pool_devices.pool(base, offered, (), {}).gpus[0].width == 6


def test_the_sensors_of_a_gpu_are_those_of_its_drivers_metrics() -> None:
    labels = {"gpu": "gpu-1"}
    metrics = [
        advanced.Metric(name="gpu_temperature_celsius", documentation="", value=61.0, labels=labels),
        advanced.Metric(name="gpu_power_watts", documentation="", value=212.5, labels=labels),
        advanced.Metric(name="gpu_shares_held", documentation="", value=1.0, labels=labels),
    ]
    assert pool_devices.readings(metrics) == {"gpu-1": model.Readings(temperature=61.0, power=212.5)}


def test_a_damaged_journal_hides_no_device(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    (database,) = (tmp_path / "node" / "plugins" / "gpu.drakit.dev").rglob("*.db")
    database.write_bytes(b"no database" * 1000)
    state = node_source.NodeSource(mock_settings(tmp_path)).state()
    assert len(state.nodes[0].pools[0].gpus) == 2
    assert "cannot be read" in state.nodes[0].pools[0].note


def test_a_node_says_that_its_driver_does_not_run_where_one_served_before(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    source = node_source.NodeSource(mock_settings(tmp_path), only=("gpu",))
    (pool,) = source.state().nodes[0].pools
    assert (pool.note, pool.is_down) == ("", False), "no driver has run here, only commands"
    home = tmp_path / "node" / "plugins" / "gpu.drakit.dev"
    with journals.Journal.open(
        home, driver="gpu.drakit.dev", boot_id=composition.families(mock_settings(tmp_path))[0].spec.identity.boot_id
    ) as journal:
        journal.set_pool("node-1")
    (pool,) = source.state().nodes[0].pools
    assert pool.note.startswith(f"the driver does not run: no socket in {home} answers")
    assert (pool.is_down, pool.unwell) == (True, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as served:
        served.bind(str(home / "dra.sock"))
        assert source.state().nodes[0].pools[0].is_down, "a socket without a process"
        served.listen()
        assert not source.state().nodes[0].pools[0].is_down


def test_a_node_says_nothing_of_pods_that_wait_because_it_knows_none(tmp_path: pathlib.Path) -> None:
    state = node_source.NodeSource(mock_settings(tmp_path)).state()
    assert not state.waiting_is_known
    assert not any("waiting" in line.text for line in text.lines(state, now=real_clock.RealClock().now(), width=None))
    assert "waiting_is_known" in (PAGE_FILES / "page.js").read_text("utf-8")


@pytest.fixture
def api(tmp_path: pathlib.Path) -> Iterator[tuple[registry.Registry, client.Client]]:
    with cluster_dashboard.api_server(tmp_path) as served:
        yield served


def publish(store: registry.Registry, folder: pathlib.Path, *, missing: int = 0) -> None:
    store.create(resources.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    for family, offered in slices.inventories(composition.families(mock_settings(folder))):
        for entry in slices.slices_of(family, offered, resource_slice.Form.FLAT).objects:
            assert isinstance(entry, dict)
            entry["spec"]["pool"]["resourceSliceCount"] += missing
            store.create(resources.SLICE, {**entry, "metadata": {"generateName": "slice-"}})


def allocated(store: registry.Registry, name: str, results: list[Any]) -> None:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]}}
    made: Any = store.create(
        resources.CLAIM,
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec},  # type: ignore[dict-item]
        namespace="default",
    )
    reserved: Any = [{"resource": "pods", "name": "trainer", "uid": "1"}]
    store.update(
        resources.CLAIM,
        {**made, "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}},
        subresource="status",
    )


def test_a_cluster_shows_every_pool_and_follows_claims(api: tuple[registry.Registry, client.Client], tmp_path: pathlib.Path) -> None:
    store, connection = api
    publish(store, tmp_path)
    source = cluster_source.ClusterSource(connection, real_clock.RealClock(), "cluster")
    try:
        state = cluster_dashboard.until(
            source, lambda seen: bool(seen.nodes) and [pool.slices for pool in seen.nodes[0].pools] == ["2 of 2", "1 of 1"]
        )
        gpus, nics = state.nodes[0].pools
        assert (state.nodes[0].name, gpus.driver, nics.driver) == ("node-1", "gpu.drakit.dev", "nic.drakit.dev")
        assert [gpu.spans for gpu in gpus.gpus] == [(), ()]
        allocated(store, "train", [command_line.mig()])
        state = cluster_dashboard.until(source, lambda seen: any(row.devices for row in seen.claims))
        assert [(row.claim, row.node, [device.device for device in row.devices]) for row in state.claims] == [
            ("default/train", "node-1", ["gpu-0-mig-3g20gb-9-0"])
        ]
        ((use,),) = (span.uses for span in state.nodes[0].pools[0].gpus[0].spans)
        assert (use.claim, use.pods) == ("default/train", ("default/trainer",))
        assert use.since == state.claims[0].since != ""
        store.delete(resources.CLAIM, "train", namespace="default")
        cluster_dashboard.until(source, lambda seen: not seen.claims)
    finally:
        source.close()


def test_a_pod_that_waits_is_at_the_top_with_the_schedulers_reason_until_it_runs(
    api: tuple[registry.Registry, client.Client],
) -> None:
    store, connection = api
    spec: Any = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "large"}]}
    made: Any = store.create(
        resources.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, namespace="default"
    )
    refusal: Any = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    store.update(resources.POD, {**made, "status": {"phase": "Pending", "conditions": [refusal]}}, subresource="status")
    source = cluster_source.ClusterSource(connection, real_clock.RealClock(), "cluster")
    try:
        (row,) = cluster_dashboard.until(source, lambda seen: bool(seen.waiting)).waiting
        assert (row.kind, row.name, row.asks, row.reason) == ("Pod", "default/p", "claim large", "0/1 nodes are available")
        made = store.get(resources.POD, "p", namespace="default")
        store.update(resources.POD, {**made, "status": {"phase": "Running"}}, subresource="status")
        cluster_dashboard.until(source, lambda seen: not seen.waiting)
    finally:
        source.close()


def test_nothing_fits_in_a_pool_that_lacks_a_slice(api: tuple[registry.Registry, client.Client], tmp_path: pathlib.Path) -> None:
    store, connection = api
    publish(store, tmp_path, missing=1)
    source = cluster_source.ClusterSource(connection, real_clock.RealClock(), "cluster")
    try:
        state = cluster_dashboard.until(
            source, lambda seen: bool(seen.nodes) and [pool.slices for pool in seen.nodes[0].pools] == ["2 of 3", "1 of 2"]
        )
        assert {(gpu.together, tuple(gpu.alone)) for gpu in state.nodes[0].pools[0].gpus} == {((), ())}
    finally:
        source.close()


def test_the_page_of_a_cluster_names_what_it_cannot_read(tmp_path: pathlib.Path) -> None:
    odd: Object = {"kind": "ResourceSlice", "metadata": {"name": "odd", "uid": "1"}, "spec": {"devices": "many"}}
    stub = stub_api.StubApi(version="1.37", objects={"resourceslices": [odd]}, statuses={"events": 403})
    with stub_api.serving(stub, tmp_path) as kubeconfig, contextlib.closing(client.connect(kubeconfig)) as connection:
        source = cluster_source.ClusterSource(connection, real_clock.RealClock(), "cluster")
        try:
            problem = cluster_dashboard.until(source, lambda seen: "odd" in seen.problem).problem
        finally:
            source.close()
    assert "no events are shown: the API server answered 403" in problem
    assert "ignored, because it cannot be read: ResourceSlice odd: " in problem


def rule(selector: Object | None, name: str = "r") -> Object:
    taint: Object = {"key": "broken", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-11-29T08:25:00Z"}
    spec: Object = {"taint": taint} if selector is None else {"taint": taint, "deviceSelector": selector}
    return {"kind": "DeviceTaintRule", "metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec}


def shown(stub: stub_api.StubApi, folder: pathlib.Path) -> tuple[model.State, tuple[model.Taint, ...]]:
    """Return the state of a server with one slice, and the taints of its device."""
    with stub_api.serving(stub, folder) as kubeconfig, contextlib.closing(client.connect(kubeconfig)) as connection:
        source = cluster_source.ClusterSource(connection, real_clock.RealClock(), "cluster")
        try:
            state = cluster_dashboard.until(
                source, lambda seen: bool(seen.nodes) and (bool(seen.note or seen.problem) or len(taints(seen)) > 1)
            )
        finally:
            source.close()
    return state, taints(state)


def taints(state: model.State) -> tuple[model.Taint, ...]:
    return state.nodes[0].pools[0].others[0].health.taints


PLAIN: Object = {
    "kind": "ResourceSlice",
    "metadata": {"name": "s", "uid": "1", "resourceVersion": "1"},
    "spec": {
        "driver": "x.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "taints": [{"key": "own", "effect": "NoSchedule"}]}],
    },
}
OF_DEVICE: Object = {"driver": "x.example.com", "device": "d"}


@pytest.mark.parametrize(
    "version, selector",
    [("1.34", OF_DEVICE), ("1.35", OF_DEVICE), ("1.36", OF_DEVICE), ("1.37", OF_DEVICE), ("1.38", OF_DEVICE), ("1.38", {}), ("1.37", None)],
)
def test_devices_have_the_taints_of_rules_in_the_version_that_the_server_serves(
    version: str, selector: Object | None, tmp_path: pathlib.Path
) -> None:
    stub = stub_api.StubApi(version=version, objects={"resourceslices": [PLAIN], "devicetaintrules": [rule(selector)]})
    state, found = shown(stub, tmp_path)
    assert (len(found), state.problem, state.note) == (2, "", "")
    assert found == (
        model.Taint(text="own:NoSchedule"),
        model.Taint(text="broken=yes:NoExecute", since="2026-11-29T08:25:00+00:00", rule="r"),
    )


def test_a_rule_of_another_device_or_without_a_selector_since_1_38_taints_nothing(tmp_path: pathlib.Path) -> None:
    rules = [rule(OF_DEVICE), rule(None, "a"), rule({"device": "e"}, "b")]
    stub = stub_api.StubApi(version="1.38", objects={"resourceslices": [PLAIN], "devicetaintrules": rules})
    _, found = shown(stub, tmp_path)
    assert len(found) == 2


def test_the_page_says_that_rules_may_not_be_listed_or_are_not_served(tmp_path: pathlib.Path) -> None:
    forbidden = stub_api.StubApi(version="1.37", objects={"resourceslices": [PLAIN]}, statuses={"devicetaintrules": 403})
    state, found = shown(forbidden, tmp_path)
    assert state.problem.startswith("taints of DeviceTaintRules are not shown: the API server answered 403")
    assert len(found) == 1
    state, _ = shown(stub_api.StubApi(version="1.36", objects={"resourceslices": [PLAIN]}, serves_rules=False), tmp_path)
    assert (state.problem, state.note) == ("", "The server does not serve DeviceTaintRules (404), so no rule taints a device.")


def test_a_cluster_that_cannot_be_read_is_an_error_of_the_command(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    (tmp_path / "kubeconfig").write_text("{}")
    for live in ((), ("--live",)):
        ended = shell.run("dashboard", *live, "--kubeconfig", str(tmp_path / "kubeconfig"))
        assert ended.status == 2
        assert ended.err.count("\n") == 1
    ended = shell.run("dashboard", "--live", "--mock", command_line.MACHINE)
    assert ended.err == "drakit: --mock: the page shows a cluster (--live) or this node; leave out one of the two\n"


def test_header_names_are_case_insensitive(address: str) -> None:
    host = address.removeprefix("http://").partition("/")[0]
    with contextlib.closing(http.client.HTTPConnection(host, timeout=waits.SECONDS)) as connection:
        connection.putrequest("GET", "/state", skip_host=True)
        for name, value in (("hOST", host), ("AUTHORIZATION", bearer(address)["Authorization"]), ("origin", f"http://{host}")):
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 200
    assert ask(address, "/", {"oRIGIN": "http://evil.example"})[0].status == 403


class Cut:
    """A connection to an API server, which does not answer while ``is_down``; lists wait for ``may_list``."""

    def __init__(self, api: client.Client) -> None:
        self._api = api
        self._streams: list[transport.Stream] = []
        self.is_down = False
        self.may_list = threading.Event()
        self.may_list.set()

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
        if (query or {}).get("limit", "1") != "1":
            assert self.may_list.wait(waits.SECONDS)
        self._check()
        return self._api.request(method, path, query=query, body=body, content_type=content_type)

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> transport.Stream:
        self._check()
        self._streams.append(self._api.stream(path, query=query, timeout=timeout))
        return self._streams[-1]

    def cut(self) -> None:
        self.is_down = True
        for stream in self._streams:
            stream.close()

    def _check(self) -> None:
        if self.is_down:
            raise errors.ApiError("no answer: connection refused")


def test_a_server_that_is_gone_is_said_once_with_what_was_last_seen_until_it_answers(
    api: tuple[registry.Registry, client.Client], tmp_path: pathlib.Path
) -> None:
    store, connection = api
    publish(store, tmp_path)
    cut = Cut(connection)
    lines: list[str] = []
    with contextlib.closing(cluster_source.ClusterSource(cut, real_clock.RealClock(), "cluster")) as source, logs.copied(lines.append):
        before = cluster_dashboard.until(source, lambda seen: bool(seen.nodes))
        assert (before.is_old, before.problem) == (False, "")
        cut.cut()
        state = cluster_dashboard.until(source, lambda seen: seen.is_old)
        assert re.match(
            r"API server does not answer since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; .* no answer: connection refused", state.problem
        )
        assert state.nodes == before.nodes
        store.delete(resources.NODE, "node-1")
        cut.is_down = False
        state = cluster_dashboard.until(source, lambda seen: not seen.is_old)
        assert state.problem == ""
    # Sources of earlier tests, whose servers ended, may say the same with another reason.
    assert sum("API server does not answer" in line and "no answer: connection refused" in line for line in lines) == 1


def test_nothing_is_said_about_the_cluster_before_all_kinds_are_listed(
    api: tuple[registry.Registry, client.Client], tmp_path: pathlib.Path
) -> None:
    store, connection = api
    publish(store, tmp_path)
    cut = Cut(connection)
    cut.may_list.clear()
    with contextlib.closing(cluster_source.ClusterSource(cut, real_clock.RealClock(), "cluster")) as source:
        state = source.state()
        assert state.reading[:2] == ("resourceslices", "resourceclaims")
        words = [line.text for line in text.lines(state, now=real_clock.RealClock().now(), width=None)]
        assert words == ["cluster", f"reading {', '.join(state.reading)} ..."]
        cut.may_list.set()
        assert cluster_dashboard.until(source, lambda seen: not seen.reading).nodes


def test_the_page_is_grey_while_it_is_old_and_has_no_empty_headings_at_first() -> None:
    script, style = ((PAGE_FILES / name).read_text("utf-8") for name in ("page.js", "page.css"))
    assert "state.is_old" in script
    assert re.search(r"\.stale [^{]*main[^{]*\{[^}]*grayscale", style)
    assert '<main id="main" hidden>' in (PAGE_FILES / "page.html").read_text("utf-8")


def test_the_age_of_a_taint_is_in_one_element_with_it() -> None:
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert (
        'made.push(element("span", { class: "taint" }, element("span", { class: "badge warn" }, `taint ${taint.text}`), more && " ", more));'
        in script
    )


def test_the_page_never_hides_only_a_few_rows_behind_a_button() -> None:
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert "const isLong = rows.length > ROWS[name] + FEW;" in script
    assert "button.hidden = !isLong;" in script


def test_the_totals_and_the_heading_say_the_same_of_what_waits() -> None:
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert "`Waiting: ${[pods, claims].filter(Boolean).join(" in script
    assert '[["Waiting", waits.pods, waits.claims && ` ${waits.claims}`' in script
    assert script.count("waitingCounts()") == 3, "its definition, the heading and the totals"


def test_the_filter_leaves_the_namespaces_whose_name_matches() -> None:
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert "state.namespaces.filter((row) => matches(terms, plain(`${row.name}/`)))" in script
    assert 'JSON.stringify([state.namespaces, shownAll.has("namespaces"), terms])' in script, "another filter draws the table again"


def test_words_of_the_table_do_not_break_and_its_buttons_are_large_enough() -> None:
    script, style = ((PAGE_FILES / name).read_text("utf-8") for name in ("page.js", "page.css"))
    assert "Node: [whole(nodesOf(row))]" in script
    assert '"badge bad nowrap" }, usage.unwell' in script
    assert re.search(r"th button \{[^}]*min-height: 24px", style), "WCAG 2.2, 2.5.8"
