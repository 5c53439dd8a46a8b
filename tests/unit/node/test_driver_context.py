"""What a running driver may ask of its node; the fake context that drivers are tested with keeps the same promises."""

import contextlib
import io
import json
import pathlib
import threading
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import claim_status, device, errors, inventory, names
from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.node import driver_context
from drakit.telemetry import logs
from drakit.testing import fake_context
from fakes import crash_node, manual_clock, waits

HOT = device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_EXECUTE)


class ContextSetup:
    """A driver context on fakes, and the number of times it asked for another discovery."""

    def __init__(self, home: pathlib.Path, clock: manual_clock.ManualClock | None = None) -> None:
        self.world = crash_node.CrashNode()
        self.engine = self.world.boot()
        self.clock = clock or manual_clock.ManualClock()
        self.changes = 0
        self.context = self.new_site(home)

    def new_site(self, home: pathlib.Path) -> driver_context.NodeDriverContext:
        made = driver_context.NodeDriverContext(
            self.world.driver,
            data_dir=home,
            boot_id=self.world.boot_id,
            journal=self.world.journal,
            driver_state=self.world.journal,
            device_locks=self.world.device_locks,
            clock=self.clock,
        )
        made.sinks = driver_context.ReportSinks(rediscover=self.changed)
        return made

    def changed(self) -> None:
        self.changes += 1

    def prepare(self, *devices: str, shared: bool = False) -> claims.ClaimRef:
        ref = self.world.claim(*devices, shared=shared)
        assert self.engine.prepare([ref], self.world.caller)[ref.uid].error == ""
        return ref


@pytest.fixture
def setup(tmp_path: pathlib.Path) -> ContextSetup:
    return ContextSetup(tmp_path)


def test_grants_are_the_prepared_entries_of_the_journal_oldest_first(setup: ContextSetup) -> None:
    first, second = setup.prepare("chip-0"), setup.prepare("pipe", shared=True)
    assert [(grant.claim, grant.device.name) for grant in setup.context.grants()] == [(first, "chip-0"), (second, "pipe")]
    (grant,) = [one for one in setup.context.grants() if one.claim == second]
    assert setup.context.grant(second.uid, "pipe", grant.share_id) == grant
    assert grant.record == {"made": grant.share_id}
    assert setup.context.grant(second.uid, "pipe") is None
    assert setup.context.grant(second.uid, "chip-0") is None
    setup.engine.unprepare([first], setup.world.caller)
    assert setup.context.grant(first.uid, "chip-0") is None


def test_grants_of_an_earlier_boot_are_not_prepared_now(setup: ContextSetup, tmp_path: pathlib.Path) -> None:
    ref = setup.prepare("chip-0")
    setup.world.boot_id = "boot-2"
    again = setup.new_site(tmp_path)
    assert (list(again.grants()), again.grant(ref.uid, "chip-0")) == ([], None)


def test_values_of_a_claim_are_removed_with_it(setup: ContextSetup) -> None:
    ref = setup.prepare("chip-0")
    (grant,) = setup.context.grants()
    setup.context.set_state(grant, "a", {"x": 1})
    assert setup.context.state(grant) == {"a": {"x": 1}}
    setup.engine.unprepare([ref], setup.world.caller)
    assert setup.context.state(grant) == {}
    with pytest.raises(errors.ClaimError):
        setup.context.set_state(grant, "a", {"x": 2})


def test_a_key_has_a_name_of_reasonable_length(setup: ContextSetup) -> None:
    setup.prepare("chip-0")
    for key in ("", "k" * 64):
        with pytest.raises(ValueError, match="1 to 63"):
            setup.context.set_state(setup.context.grants()[0], key, {})


def test_a_taint_keeps_its_first_time_and_only_changes_are_published(setup: ContextSetup) -> None:
    setup.context.taint("chip-0", HOT)
    setup.clock.moment = 3600
    setup.context.taint("chip-0", HOT)
    (kept,) = setup.context.taints()["chip-0"]
    assert (kept.time_added, setup.changes, setup.context.revision) == (manual_clock.START, 1, 1)
    setup.context.untaint("chip-0", "example.com/other")
    assert setup.changes == 1
    setup.context.untaint("chip-0", HOT.key)
    assert (setup.context.taints(), setup.changes) == ({}, 2)


def test_a_taint_needs_a_device_that_can_be(setup: ContextSetup) -> None:
    with pytest.raises(errors.InventoryError):
        setup.context.taint("Not A Device", HOT)


def test_locks_are_those_of_the_verbs(setup: ContextSetup) -> None:
    entered = threading.Event()
    ref = setup.world.claim("chip-0")

    def prepare() -> None:
        setup.engine.prepare([ref], setup.world.caller)
        entered.set()

    work = threading.Thread(target=prepare)
    with setup.context.hold(["chip-0"]):
        work.start()
        assert not entered.wait(0.2)
    assert entered.wait(waits.SECONDS)
    work.join()


def test_without_an_api_server_statuses_and_events_are_logged(setup: ContextSetup) -> None:
    setup.context.sinks = driver_context.ReportSinks()
    ref = setup.prepare("chip-0")
    stream = io.StringIO()
    logs.setup(stream=stream)
    setup.context.report_health(contexts.HealthReport(device="chip-0", health=contexts.Health.UNHEALTHY, message="broken"))
    setup.context.set_status(
        ref, claim_status.DeviceStatus(device="chip-0", conditions=(claim_status.Condition(type="A", status=True, reason="B"),))
    )
    setup.context.record_event(ref, contexts.Event(reason="Hot", message="too hot"))
    logs.setup(level=logs.Level.WARNING)
    result = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["event"] for one in result] == ["health", "status", "event"]
    assert (result[0]["health"], result[1]["conditions"], result[2]["message"]) == ("Unhealthy", {"A": True}, "too hot")


def plain(*names_: str) -> inventory.Inventory:
    return inventory.Inventory.of(device.Device(name=name) for name in names_)


def test_put_taints_join_those_discovered_and_replace_their_equals() -> None:
    old = device.Taint(key=HOT.key, effect=HOT.effect, value="discovered")
    other = device.Taint(key="example.com/other")
    offered = inventory.Inventory.of([device.Device(name="a", taints=(old, other)), device.Device(name="b")])
    tainted = inventory.with_taints(offered, {"a": [HOT], "gone": [HOT]})
    assert tainted.by_name()["a"].taints == (HOT, other)
    assert tainted.by_name()["b"] == offered.by_name()["b"]
    assert inventory.with_taints(offered, {"gone": [HOT]}) is offered


def test_too_many_taints_cost_the_discovered_ones_their_place() -> None:
    many = tuple(device.Taint(key=f"example.com/t{number}") for number in range(device.TAINTS_MAX))
    tainted = inventory.with_taints(inventory.Inventory.of([device.Device(name="a", taints=many)]), {"a": [HOT]})
    assert tainted.by_name()["a"].taints == (HOT, *many[:-1])


def real_site(folder: pathlib.Path, clock: manual_clock.ManualClock | None = None) -> contexts.DriverContext:
    setup = ContextSetup(folder, clock)
    setup.prepare("chip-0")
    return setup.context


def faked_site(folder: pathlib.Path, clock: manual_clock.ManualClock | None = None) -> contexts.DriverContext:
    ref = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000001"), namespace="default", name="c")
    grant: drivers.Grant[object] = drivers.Grant(
        claim=ref, request="r0", pool=crash_node.POOL, device=device.Device(name="chip-0"), config=drivers.NoConfig()
    )
    return fake_context.FakeContext(folder, grants=[grant], monotonic=(clock or manual_clock.ManualClock()).monotonic)


@pytest.mark.parametrize("build", [real_site, faked_site])
def test_a_taint_with_a_time_is_added_once_its_fault_has_lasted(
    build: Callable[[pathlib.Path, manual_clock.ManualClock], contexts.DriverContext], tmp_path: pathlib.Path
) -> None:
    clock = manual_clock.ManualClock()
    context = build(tmp_path, clock)
    context.taint("chip-0", HOT, after=15.0)
    clock.moment = 14.0
    context.taint("chip-0", HOT, after=15.0)
    context.untaint("chip-0", HOT.key)
    clock.moment = 20.0
    context.taint("chip-0", HOT, after=15.0)
    assert context.taints() == {}
    clock.moment = 35.0
    context.taint("chip-0", HOT, after=15.0)
    assert [taint.key for taint in context.taints()["chip-0"]] == [HOT.key]


def sick(health: contexts.Health) -> contexts.HealthReport:
    return contexts.HealthReport(device="chip-0", health=health)


def test_a_bad_report_with_a_time_counts_once_it_has_lasted(tmp_path: pathlib.Path) -> None:
    clock = manual_clock.ManualClock()
    real, fake = ContextSetup(tmp_path, clock), fake_context.FakeContext(tmp_path, monotonic=clock.monotonic)
    reports: list[contexts.HealthReport] = []
    real.context.sinks = driver_context.ReportSinks(health=reports.append)
    steps = [(0.0, contexts.Health.UNHEALTHY), (9.0, contexts.Health.UNKNOWN), (9.5, contexts.Health.HEALTHY)]
    for moment, health in [*steps, (10.0, contexts.Health.UNHEALTHY), (20.0, contexts.Health.UNHEALTHY)]:
        clock.moment = moment
        real.context.report_health(sick(health), after=10.0)
        fake.report_health(sick(health), after=10.0)
    assert reports == fake.reports == [sick(contexts.Health.HEALTHY), sick(contexts.Health.UNHEALTHY)]


@pytest.mark.parametrize("build", [real_site, faked_site])
def test_the_fake_context_behaves_as_the_real_one(build: Callable[[pathlib.Path], contexts.DriverContext], tmp_path: pathlib.Path) -> None:
    one = build(tmp_path)
    (grant,) = one.grants()
    assert one.data_dir == tmp_path
    assert one.grant(grant.claim.uid, "chip-0") == grant
    one.set_state(grant, "k", {"a": 1})
    one.set_state(grant, "other", {})
    one.set_state(grant, "other", None)
    assert one.state(grant) == {"k": {"a": 1}}
    one.taint("chip-0", HOT)
    one.taint("chip-0", device.Taint(key=HOT.key, effect=HOT.effect, value="very"))
    assert [taint.value for taint in one.taints()["chip-0"]] == ["very"]
    one.untaint("chip-0", HOT.key)
    one.untaint("chip-9", HOT.key)
    assert one.taints() == {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(one.hold(["chip-0"]))
    one.rediscover()
    one.set_status(grant.claim, claim_status.DeviceStatus(device="chip-0"))
    one.record_event(grant.claim, contexts.Event(reason="A", message="b"))
    one.report_health(contexts.HealthReport(device="chip-0", health=contexts.Health.HEALTHY))
