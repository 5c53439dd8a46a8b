"""One hostile or undecodable object in a list or a watch, over real HTTP: it is logged by name and left out, and every other one is there."""

import collections.abc
import http.server
import itertools
import json
import threading

import pytest

from drakit.core import records
from drakit.kube import access, claims, client, slice_codec, watch
from drakit.kube import claims as kube_claims
from drakit.kube import slices as kube_slices
from drakit.telemetry import logs
from fakes import real_clock
from fakes import slice_samples as samples

DRIVER, POOL = "gpu.drakit.dev", "node-1"
RESULT = {"request": "r", "driver": DRIVER, "pool": POOL, "device": "gpu-0", "bindingConditions": ["ready"]}


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers a list with the server's ``body`` and a watch with its ``events``, after which the connection stays silent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        is_watch = "watch=true" in self.path
        body = self.server.events if is_watch else self.server.body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server uses
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    body = b"{}"
    events = b""


@pytest.fixture
def server() -> collections.abc.Iterator[Server]:
    with Server(("127.0.0.1", 0), Answering) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def api(server: Server) -> collections.abc.Iterator[client.Client]:
    made = client.Client(access.by_token(f"http://127.0.0.1:{server.server_address[1]}", lambda: "token"))
    yield made
    made.close()


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def claim(number: int, name: str = "", parameters: str = "{}", results: str = json.dumps([RESULT])) -> str:
    metadata = json.dumps({"name": name or f"c{number}", "namespace": "n", "uid": uid(number), "resourceVersion": str(number + 10)})
    opaque = f'{{"driver": "{DRIVER}", "parameters": {parameters}}}'
    devices = f'{{"results": {results}, "config": [{{"source": "FromClaim", "opaque": {opaque}}}]}}'
    return f'{{"metadata": {metadata}, "status": {{"allocation": {{"devices": {devices}}}}}}}'


def listed(*items: str) -> bytes:
    return f'{{"metadata": {{"resourceVersion": "9"}}, "items": [{", ".join(items)}]}}'.encode()


DEEP = 1200
HOSTILE = {
    "objects 1200 deep": claim(1, "bad", parameters='{"a":' * DEEP + "{}" + "}" * DEEP),
    "objects 300 deep, which Python parses": claim(1, "bad", parameters='{"a":' * 300 + "{}" + "}" * 300),
    "lists 5000 deep": claim(1, "bad", parameters='{"a": ' + "[" * 5000 + "]" * 5000 + "}"),
    "deep, with brackets in its texts": claim(1, "bad", parameters='{"}]\\"": "[[{", "a":' * DEEP + "{}" + "}" * DEEP),
    "a whole number of 6000 digits": claim(
        1, "bad", results='[{"driver": "gpu.drakit.dev", "pool": "node-1", "request": ' + "1" * 6000 + "}]"
    ),
    "results that are no list": claim(1, "bad", results='{"driver": "x"}'),
    "a result that is no object": claim(1, "bad", results='[7, "x"]'),
    "a name that is no name": claim(1, "bad/../x"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_list_of_claims_has_all_the_others_and_says_which_it_lacks(kind: str, server: Server, api: client.Client) -> None:
    server.body = listed(claim(0), HOSTILE[kind], claim(2))
    found = kube_claims.ApiClaimList(api).allocated(DRIVER, lambda pool, _: pool == POOL)
    assert [one.ref.name for one in found.claims] == ["c0", "c2"]
    assert found.unreadable == {uid(1)}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_watch_of_claims_tells_of_all_the_others(kind: str, server: Server, api: client.Client) -> None:
    bad = HOSTILE[kind]
    server.body = listed(claim(0), bad, claim(2))
    server.events = "\n".join(f'{{"type": "ADDED", "object": {one}}}' for one in (claim(3), bad, "7", claim(4), "")).encode()
    stop = threading.Event()
    following = claims.ApiBindings(api, driver=DRIVER, pool=POOL, clock=real_clock.RealClock()).follow(stop)
    found = [one.claim.name for one in itertools.islice(following, 12) if one is not None and one.claim.uid != uid(1)]
    stop.set()
    assert found[:4] == ["c0", "c2", "c3", "c4"]


def test_an_event_that_is_no_json_is_made_good_by_a_list(server: Server, api: client.Client) -> None:
    server.body = listed(claim(0))
    server.events = b'{"type": "ADDED", "object": \n'
    stop = threading.Event()
    following = watch.objects(api, kube_claims.LIST_PATH, clock=real_clock.RealClock(), stop=stop)
    found = list(itertools.islice(following, 4))
    stop.set()
    assert [one is None for one in found] == [True, False, True, False], "listed again, not asked for the same event for ever"


def test_the_bad_claim_is_named_in_the_log(server: Server, api: client.Client, capsys: pytest.CaptureFixture[str]) -> None:
    server.body = listed(claim(0), HOSTILE["objects 1200 deep"])
    logs.setup()
    try:
        kube_claims.ApiClaimList(api).allocated(DRIVER, lambda pool, _: pool == POOL)
    finally:
        logs.setup(level=logs.Level.WARNING)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["claim"] == "n/bad"


def slice_of(name: str, **changes: object) -> str:
    metadata = {"name": name, "uid": name, "resourceVersion": "1"}
    spec = slice_codec.encode(samples.spec_of(samples.plain_page(name)))
    return json.dumps({"metadata": metadata, "spec": records.thaw({**spec, **changes})})  # type: ignore[dict-item]


def test_an_unreadable_slice_is_listed_for_removal_or_omitted_and_the_others_remain(server: Server, api: client.Client) -> None:
    store = kube_slices.ApiSlices(api, driver=samples.DRIVER, node=samples.NODE, clock=real_clock.RealClock())
    server.body = listed(
        slice_of("a"), slice_of("b", pool={"name": 7}), '{"metadata": {"name": "c"}}', "7", slice_of("d", devices={}), slice_of("e")
    )
    found = {one.name: one for one in store.list()}
    assert list(found) == ["a", "b", "d", "e"]
    assert found["b"].spec.pool.name == kube_slices.UNREADABLE_POOL
    assert found["d"].spec.pool.count == 0, "of a pool of ours, and equal to no slice that anybody wants"


def test_what_is_cut_is_never_taken_for_the_whole() -> None:
    deep = records.parse_limited(f'{{"items": [{HOSTILE["objects 1200 deep"]}]}}'.encode())
    shallow = records.parse_limited(f'{{"items": [{claim(0)}]}}'.encode())
    assert shallow == json.loads(f'{{"items": [{claim(0)}]}}')
    assert isinstance(deep, dict)
    with pytest.raises(TypeError, match="nested deeper"):
        records.freeze(deep["items"][0]["status"])


@pytest.mark.parametrize("broken", [b"", b"{", b"[" * 5000, b'{"a": ' + b"[" * 5000, b"]" * 9, b"\xff", b'{"a": "', b"nonsense"])
def test_what_is_not_json_is_a_value_error(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        records.parse_limited(broken)
