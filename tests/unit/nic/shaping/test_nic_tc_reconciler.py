"""The reconciler restores what another program altered and reports it, and touches nothing that is still in use."""

import contextlib
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, names, quantity, records
from drakit.testing import fake_context
from drakit_nic import background, config, kernel_port, mock_port, port, reporting, tc_reconciler
from drakit_nic import driver as nic_driver
from drakit_nic import options as nic_options
from drakit_nic import share as shares
from drakit_nic.discovery import offers
from fakes import netns, waits, watched_driver

NIC = "pci-0000-0c-00-0"
Grant = drivers.Grant[object]


@dataclasses.dataclass
class Node:
    """One driver on a mock machine, the context it was given, and intents the journal would know."""

    machine: mock_port.MockPort
    driver: nic_driver.NicDriver
    context: fake_context.FakeContext
    intents: list[records.Record]

    def reconciler(self) -> tc_reconciler.TcReconciler:
        return tc_reconciler.TcReconciler(
            self.machine,
            self.context,
            survey=self.driver.survey,
            uplink=self.driver.uplink,
            intents=lambda: self.intents,
            health=reporting.DeviceHealth(self.context),
        )

    def prepared(self, number: int) -> port.Share:
        """A share of a prepared claim."""
        grant = prepared(self.driver, NIC, number)
        self.context.put(grant)
        return next(share for share in self.machine.shares() if share.id == grant.share_id)


def prepared(author: nic_driver.NicDriver, device: str, number: int) -> Grant:
    asked = drivers.Grant(
        claim=claims.ClaimRef(uid=names.ClaimUid(f"00000000-0000-4000-8000-{number:012}"), namespace="default", name="net"),
        request="uplink",
        pool="node-1",
        device=author.discover().by_name()[device],
        config=config.NicConfig(),
        share_id=names.ShareId(f"a671734a-0000-4000-8000-{number:012}"),
        consumed_capacity={"bandwidth": quantity.Quantity.of("100M")},
    )
    planned = dataclasses.replace(asked, intent=author.plan(asked))
    return cast("Grant", dataclasses.replace(planned, record=author.prepare(planned).record))


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    machine = mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))
    return Node(
        machine=machine, driver=nic_driver.NicDriver(machine, node="node-1"), context=fake_context.FakeContext(tmp_path), intents=[]
    )


def test_a_whole_nic_is_not_spoken_of(node: Node) -> None:
    node.prepared(1)
    assert node.reconciler().reconcile() == {NIC: ()}
    assert node.context.reports == []
    assert node.context.held == [frozenset({NIC})]


def test_what_is_gone_is_put_back_and_the_nic_is_unhealthy_until_it_is_found_whole(node: Node) -> None:
    share = node.prepared(1)
    reconciler = node.reconciler()
    reconciler.reconcile()
    node.machine.remove(share.id)
    assert reconciler.reconcile() == {NIC: (f"share {share.id} is missing",)}
    assert node.machine.shares() == (share,)
    assert node.context.health_of(NIC) == contexts.HealthReport(
        device=NIC, health=contexts.Health.UNHEALTHY, message=f"share {share.id} is missing"
    )
    reconciler.reconcile()
    assert node.context.health_of(NIC) == contexts.HealthReport(device=NIC, health=contexts.Health.HEALTHY)


class OnceNewInterest:
    """A watch without events, which may have missed some before its first filter."""

    def __init__(self) -> None:
        self._is_new = True

    def narrow(self, interest: port.Interest) -> bool:
        was_new, self._is_new = self._is_new, False
        return was_new

    def wait(self, seconds: float) -> bool:
        return False

    def drain(self) -> None:
        """Nothing is waiting."""

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is held."""


def test_nics_are_read_again_when_events_may_have_been_missed(node: Node) -> None:
    node.prepared(1)
    surveys: list[offers.Survey] = []

    events = OnceNewInterest()

    def survey() -> offers.Survey:
        surveys.append(node.driver.survey())
        return surveys[-1]

    assert background.survey_and_narrow(survey, events) is surveys[-1]
    assert len(surveys) == 2
    assert background.survey_and_narrow(survey, events) is surveys[-1]
    assert len(surveys) == 3


def test_hardware_without_shares_takes_no_room_in_the_filter_of_events(node: Node) -> None:
    assert node.driver.survey().nics
    assert node.driver.survey().interest.ifindexes == frozenset()


def test_the_first_look_after_a_reboot_puts_everything_back_without_alarm(node: Node) -> None:
    shares = [node.prepared(1), node.prepared(2)]
    for share in shares:
        node.machine.remove(share.id)
    node.reconciler().reconcile()
    assert node.machine.shares() == tuple(shares)
    assert node.context.reports == []


def test_a_share_nobody_knows_goes_unless_a_sandbox_uses_it_or_a_claim_is_half_way(node: Node) -> None:
    orphan, used, half = (node.prepared(number) for number in (1, 2, 3))
    for grant in node.context.grants():
        node.context.remove(grant)
    node.machine.admit(used, cookie=7001, mac="02:aa:00:00:00:01")
    node.intents.append({"id": half.id})
    node.reconciler().reconcile()
    assert orphan not in node.machine.shares()
    assert node.machine.shares() == (used, half)


def test_a_nic_that_cannot_be_mended_is_unhealthy_with_the_reason(node: Node) -> None:
    node.prepared(1)

    class Refusing(mock_port.MockPort):
        def repair(self, uplink: port.Uplink, shares: object) -> tuple[str, ...]:
            raise errors.HardwareError("repair", "no buffers")

    node.machine.__class__ = Refusing
    node.reconciler().reconcile()
    reported = node.context.health_of(NIC)
    assert reported is not None
    assert (reported.health, reported.message) == (contexts.Health.UNHEALTHY, "repair: no buffers")


def test_admin_access_and_shares_of_other_nics_are_left_out(node: Node) -> None:
    share = node.prepared(1)
    (grant,) = node.context.grants()
    node.context.remove(grant)
    node.context.put(dataclasses.replace(grant, admin_access=True, record={}))
    node.machine.remove(share.id)
    assert node.reconciler().reconcile() == {}


def test_start_and_stop_leave_no_thread(node: Node) -> None:
    node.prepared(1)
    before = set(threading.enumerate())
    for _ in range(2):
        node.driver.start(node.context)
        node.driver.stop()
        assert set(threading.enumerate()) == before
    node.driver.stop()


@pytest.fixture
def own() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("nic0", mac="02:00:00:00:00:20")
        yield made


@pytest.mark.root
def test_on_the_kernel_a_deleted_qdisc_is_back_soon_and_health_tells_of_it(own: netns.Namespace, tmp_path: pathlib.Path) -> None:
    rule = nic_options.NicRule(match="nic0", speed=quantity.Quantity.of("10G"))
    machine = kernel_port.KernelPort(own.name)
    author = nic_driver.NicDriver(machine, node="node-1", options=nic_options.NicOptions(exclude=("*-wire",), rules=(rule,)))
    node = fake_context.FakeContext(tmp_path)
    node.put(prepared(author, "nic0", 1))
    assert author.discover().by_name()["nic0"].attributes["shaping"] == "netns"
    with contextlib.closing(machine), watched_driver.watching(author, node):
        eventually(lambda: len(node.held) >= 1)

        def is_told_of_a_deletion() -> bool:
            # The first check of an uplink restores without a report, and it may be the one that meets the deletion.
            if "htb" in own.run("tc", "qdisc", "show", "dev", "nic0", "root"):
                own.run("tc", "qdisc", "del", "dev", "nic0", "root")
            eventually(lambda: "htb" in own.run("tc", "qdisc", "show", "dev", "nic0", "root"))
            return any("the root qdisc is not drakit's" in report.message for report in node.reports)

        # A check that meets the deletion or the repair half-way may report more often; the damage is reported, and the end is sound.
        eventually(is_told_of_a_deletion, lambda: node.reports)
        eventually(lambda: node.reports[-1].health is contexts.Health.HEALTHY, lambda: node.reports)


def eventually(holds: Callable[[], bool], evidence: Callable[[], object] = str) -> None:
    waiting, deadline = threading.Event(), time.monotonic() + waits.SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"did not come to hold within {waits.SECONDS:.0f} s: {evidence()}"
        waiting.wait(0.1)


def test_what_the_admin_allows_is_changed_in_place_and_is_no_damage(node: Node) -> None:
    share = node.prepared(1)
    wide = dataclasses.replace(share, ceil=5 * 10**9)
    (grant,) = node.context.grants()
    node.context.put(dataclasses.replace(grant, record=shares.to_record(wide)))
    for bound, ceil in ((None, 5 * 10**9), ("2G", 2 * 10**9), ("0", 0), (None, 5 * 10**9)):
        choices = nic_options.NicOptions(ceil=None if bound is None else quantity.Quantity.of(bound))
        node.driver = nic_driver.NicDriver(node.machine, node="node-1", options=choices)
        reconciler = node.reconciler()
        assert not any(reconciler.reconcile().values())
        assert node.machine.shares() == (dataclasses.replace(wide, ceil=ceil),)
    assert not node.context.reports


def test_leftovers_are_removed_and_nothing_restores_them(tmp_path: pathlib.Path) -> None:
    machine = mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))
    node = Node(
        machine=machine, driver=nic_driver.NicDriver(machine, node="node-1"), context=fake_context.FakeContext(tmp_path), intents=[]
    )
    node.prepared(1)
    node.driver.start(node.context)  # As the uninstaller does, which calls no watch.
    try:
        node.driver.remove_leftovers()
    finally:
        node.driver.stop()
    assert machine.shares() == ()
