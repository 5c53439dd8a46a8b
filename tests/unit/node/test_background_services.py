"""What a serving node runs beside the kubelet's calls: the author's start and stop in their order, taints in slices, health, statuses."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device, errors, inventory, names, records
from drakit.core import driver as drivers
from drakit.node import background, engine, local_node, metrics, node, recovery, timing
from fakes import author, channels, claim_source, claim_statuses, slice_store, waits

POOL = "node-1"
UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")
REF = claims.ClaimRef(uid=UID, namespace="default", name="claim")
HOT = device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_EXECUTE)


class Busy(author.FakeDriver):
    """Tells what is called, in order; ``start_error`` is raised by start, ``gate`` holds prepare until it is set."""

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.calls: list[str] = []
        self.context: contexts.DriverContext | None = None
        self.start_error: Exception | None = None
        self.preparing, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self.looks = 0

    def discover(self) -> inventory.Inventory:
        self.looks += 1
        return super().discover()

    def start(self, context: contexts.DriverContext) -> None:
        self.calls.append("start")
        if self.start_error is not None:
            raise self.start_error
        self.context = context

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return self.plan(grant)

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        self.preparing.set()
        assert self.gate.wait(waits.SECONDS)
        self.calls.append("prepare")
        return super().prepare(grant)

    def stop(self) -> None:
        self.calls.append("stop")
        if self.context is not None:
            self.context.record_event(REF, contexts.Event(reason="Bye", message="the driver stops"))


class RunningNode:
    """A node on real sockets with a busy driver."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.driver = Busy(author.Hardware())
        self.store, self.claims = slice_store.FakeSliceStore(), claim_source.FakeClaimSource()
        self.statuses, self.events = claim_statuses.FakeStatuses(POOL), claim_statuses.FakeEvents()
        self.listing = claim_statuses.FakeClaimList()
        self.node = self.new_node()

    def new_node(self, *, verify_seconds: float = node.VERIFY_SECONDS) -> node.Node:
        self.metrics = metrics.Metrics()
        (self.folder / "r").mkdir(exist_ok=True)
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name, build=lambda _: self.driver, identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1")
        )
        telling = background.ApiPorts(statuses=self.statuses, events=self.events, claim_list=self.listing)
        outside = node.NodeDependencies(
            claim_source=self.claims,
            slice_store=self.store,
            registry=self.folder / "r",
            clock=timing.SystemClock(),
            rescan_seconds=3600,
            api=telling,
            meter=self.metrics.of(author.FakeDriver.name),
            verify_seconds=verify_seconds,
        )
        return node.Node(spec, local_node.Folders(home=self.folder / "d", cdi=self.folder / "c"), outside, node_name=POOL)

    def prepare(self, device_name: str = "chip-0") -> wire.NodePrepareResourceResponse:
        result = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=POOL, device=device_name)
        self.claims.put(claims.Claim(ref=REF, results=(result,)))
        self.statuses.allocated[UID] = {(POOL, device_name, "")}
        request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=UID, name="claim")])
        with channels.insecure(f"unix:{self.folder / 'd' / 'dra.sock'}") as channel:
            return services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID]

    def taints(self) -> dict[str, tuple[device.Taint, ...]]:
        return {item.name: item.taints for one in self.store.list() for item in one.spec.page.devices}


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[RunningNode]:
    made = RunningNode(tmp_path)
    yield made
    made.driver.gate.set()
    made.node.stop()


def context_of(running: RunningNode) -> contexts.DriverContext:
    assert running.driver.context is not None
    return running.driver.context


def test_start_comes_before_the_kubelet_can_call_and_stop_after_the_last_verb(running: RunningNode) -> None:
    running.node.start()
    assert running.driver.calls == ["start"]
    running.driver.gate.clear()
    call = threading.Thread(target=running.prepare)
    call.start()
    assert running.driver.preparing.wait(waits.SECONDS)
    stopping = threading.Thread(target=running.node.stop)
    stopping.start()
    stopping.join(0.5)
    assert stopping.is_alive()
    assert running.driver.calls == ["start"]
    running.driver.gate.set()
    stopping.join(waits.SECONDS)
    call.join(waits.SECONDS)
    assert running.driver.calls == ["start", "prepare", "stop"]


def test_the_author_is_not_stopped_while_a_verb_of_a_background_loop_runs(running: RunningNode) -> None:
    running.node.start()
    assert running.prepare().error == ""
    running.driver.preparing.clear()
    running.driver.gate.clear()
    # The loops call the engine itself, not through the kubelet's calls.
    verb = threading.Thread(target=running.node.local.engine.refresh_edits, args=(UID, recovery.Deadline()))
    verb.start()
    assert running.driver.preparing.wait(waits.SECONDS)
    running.node.stop()
    stopped_under_verb = "stop" in running.driver.calls
    running.driver.gate.set()
    verb.join(waits.SECONDS)
    assert not stopped_under_verb


def test_what_the_author_reports_in_stop_is_still_sent(running: RunningNode) -> None:
    running.node.start()
    running.node.stop()
    assert [event.reason for _, event, _ in running.events.written] == ["Bye"]
    running.node.stop()
    assert running.driver.calls == ["start", "stop"]


@pytest.mark.parametrize(
    "error, message", [(errors.SettingsError("no"), "no"), (KeyError("bug"), r"start\(\): KeyError: 'bug'; see the log")]
)
def test_an_error_in_start_keeps_the_node_from_starting(running: RunningNode, error: Exception, message: str) -> None:
    running.driver.start_error = error
    with pytest.raises(errors.DrakitError, match=message):
        running.node.start()
    assert running.driver.calls == ["start"]
    assert list((running.folder / "r").iterdir()) == []
    assert not (running.folder / "d" / "dra.sock").exists()


def test_a_taint_is_published_at_once_survives_a_restart_and_can_be_removed(running: RunningNode) -> None:
    running.node.start()
    assert waits.eventually(lambda: "chip-0" in running.taints())
    context_of(running).taint("chip-0", HOT)
    assert waits.eventually(lambda: bool(running.taints()["chip-0"]))
    (put,) = running.taints()["chip-0"]
    assert put.time_added is not None
    assert put.time_added.microsecond == 0
    running.node.stop()
    running.node = running.new_node()
    running.node.start()
    assert waits.eventually(lambda: running.driver.calls.count("start") == 2 and running.node.publisher.published.is_set())
    assert running.taints()["chip-0"] == (put,)
    context_of(running).untaint("chip-0", HOT.key)
    assert waits.eventually(lambda: not running.taints()["chip-0"])


def test_changed_makes_discovery_look_at_once_and_a_burst_is_one_look(running: RunningNode) -> None:
    running.node.start()
    assert waits.eventually(lambda: running.driver.looks == 1 and "chip-1" in running.taints())
    running.driver.hardware.present.discard("chip-1")
    for _ in range(50):
        context_of(running).rediscover()
    assert waits.eventually(lambda: "chip-1" not in running.taints())
    assert running.driver.looks <= 3


def test_health_reaches_the_board_that_the_kubelet_reads(running: RunningNode) -> None:
    running.node.start()
    context_of(running).report_health(contexts.HealthReport(device="chip-0", health=contexts.Health.UNHEALTHY, message="too hot"))
    found = {one.device: (one.health, one.message) for one in running.node.health.snapshot()}
    assert found["chip-0"] == (contexts.Health.UNHEALTHY, "too hot")


def test_a_failed_prepare_is_reported_in_the_claim_and_taken_back_when_it_works(running: RunningNode) -> None:
    running.node.start()
    running.driver.failure = errors.DeviceGoneError("chip-0 fell off")
    assert "fell off" in running.prepare().error
    assert waits.eventually(lambda: running.statuses.conditions(UID, "chip-0") == {"Ready": (False, "DeviceGone")})
    running.driver.failure = None
    assert running.prepare().error == ""
    assert waits.eventually(lambda: running.statuses.conditions(UID, "chip-0") == {"Ready": (True, "Prepared")})


def lose_journal(running: RunningNode) -> None:
    """A claim was prepared and is in use; the next process finds an unreadable journal."""
    running.node.start()
    assert running.prepare().error == ""
    running.node.stop()
    (running.folder / "d" / "journal.db").write_bytes(b"nonsense" * 100)
    running.listing.known = [running.claims.fetch(REF)]
    running.node = running.new_node()
    assert running.node.local.is_lost


def sockets(running: RunningNode) -> list[str]:
    return [path.name for folder in ("d", "r") for path in (running.folder / folder).glob("*.sock")]


def test_a_lost_journal_is_restored_and_then_the_driver_serves(running: RunningNode) -> None:
    lose_journal(running)
    running.node.start()
    assert waits.eventually(lambda: len(sockets(running)) == 2)
    assert not running.node.local.is_lost
    entry = running.node.local.journal.entry(UID)
    assert entry is not None
    assert [grant.device.name for grant in entry.grants] == ["chip-0"]
    assert running.prepare().error == ""


def test_without_api_server_a_lost_journal_prevents_registration(running: RunningNode) -> None:
    lose_journal(running)
    running.listing.failures = [errors.ApiError("away", status=503)] * 2
    running.node.start()
    assert waits.eventually(lambda: "cannot be restored" in running.node.registration())
    assert "away" in running.node.registration()
    assert sockets(running) == []
    assert waits.eventually(lambda: len(sockets(running)) == 2)
    assert "journal lost" not in running.node.registration()
    assert running.prepare().error == ""


def test_while_a_lost_journal_is_not_restored_unclaimed_hardware_is_unknown_not_none(running: RunningNode) -> None:
    lose_journal(running)
    running.listing.failures = [errors.ApiError("away", status=503)] * 1000
    running.node.start()
    assert waits.eventually(lambda: "cannot be restored" in running.node.registration())
    assert "drakit_unclaimed{" not in running.metrics.text().decode()
    running.listing.failures = []
    assert waits.eventually(lambda: len(sockets(running)) == 2)
    assert f'drakit_unclaimed{{driver="{author.FakeDriver.name}",marked="true"}} 0.0' in running.metrics.text().decode()


def test_readiness_names_a_registration_socket_whose_real_path_is_too_long(running: RunningNode) -> None:
    """A kubelet that uses the path without symbolic links cannot connect, and says nothing to the driver."""
    real = running.folder / ("k" * 100)
    (running.folder / "r").rename(real)
    (running.folder / "r").symlink_to(real)
    running.node.start()
    assert waits.eventually(lambda: len(sockets(running)) == 2)
    reason = running.node.registration()
    assert reason.startswith("the kubelet has not registered the driver; the socket ")
    assert f"is {real.resolve()}/" in reason
    assert "of which the kernel takes 107" in reason


def test_a_driver_stops_while_its_journal_is_lost(running: RunningNode) -> None:
    lose_journal(running)
    running.listing.failures = [errors.ApiError("away", status=503)] * 1000
    running.node.start()
    assert waits.eventually(lambda: "cannot be restored" in running.node.registration())
    running.node.stop()
    assert (running.driver.calls[-1], sockets(running)) == ("stop", [])
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"restore", "guard"})


def serves_and_stops(running: RunningNode, other: node.Node) -> None:
    try:
        assert waits.eventually(lambda: len(sockets(running)) == 2)
        assert not other.local.is_lost
    finally:
        other.stop()


def test_a_process_that_waits_for_another_s_restoration_serves_after_it(running: RunningNode) -> None:
    lose_journal(running)
    with running.node.local.restorer.alone(lambda: True):
        other = running.new_node()
        try:
            other.start()
            threading.Event().wait(0.3)
            assert sockets(running) == []
            assert running.node.local.restorer.restore(running.listing) == {}
        except BaseException:
            other.stop()
            raise
    serves_and_stops(running, other)


def test_a_start_waits_for_another_process_for_a_while_and_goes_on_in_the_background(running: RunningNode) -> None:
    assert running.node.local.is_unverified
    with running.node.local.restorer.alone(lambda: True):
        other = running.new_node(verify_seconds=0.1)
        try:
            other.start()
            assert (sockets(running), other.local.is_unverified) == ([], True)
        except BaseException:
            other.stop()
            raise
    serves_and_stops(running, other)


class Watching(Busy):
    """A busy driver whose ``watch`` waits for the stop, as one does that waits for events."""

    def watch(self, context: contexts.DriverContext) -> None:
        self.calls.append("watch")
        context.taint("chip-0", HOT)
        context.stopping.wait(waits.SECONDS)
        self.calls.append("watch ends")


def test_a_watch_runs_from_start_to_stop_and_ends_first(running: RunningNode) -> None:
    running.driver = Watching(author.Hardware())
    running.node = running.new_node()
    running.node.start()
    assert waits.eventually(lambda: running.taints().get("chip-0", ()) != ())
    running.node.stop()
    assert running.driver.calls == ["start", "watch", "watch ends", "stop"]


def test_loops_that_call_verbs_start_only_after_a_lost_journal_is_restored(running: RunningNode) -> None:
    running.driver = Watching(author.Hardware())
    running.node.stop()
    running.node = running.new_node()
    lose_journal(running)
    running.driver.calls.clear()
    running.listing.failures = [errors.ApiError("away", status=503)] * 1000
    loops = {"orphaned-claims", "deferred-releases", "edits-refresh", "watch", "recovery"}
    running.node.start()
    assert waits.eventually(lambda: "cannot be restored" in running.node.registration())
    while_lost = {thread.name for thread in threading.enumerate()}
    assert running.node.local.is_lost
    assert while_lost.isdisjoint(loops)
    running.listing.failures = []
    assert waits.eventually(lambda: len(sockets(running)) == 2)
    assert loops - {thread.name for thread in threading.enumerate()} == {"recovery"}
    assert running.driver.calls[:2] == ["start", "prepare"], "the restorer is the first to call a verb"
