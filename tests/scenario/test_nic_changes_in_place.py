"""What an admin changes of a NIC's figures reaches the shares that pods use, in their classes and in place; and many shares leave nothing.

Traffic across such a change is measured elsewhere; here the classes are looked at, whose counters go on where a class was changed and begin anew
where it was replaced.
"""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.testing import fake_context
from drakit_nic import options as nic_options
from drakit_nic import port, reporting, tc_reconciler
from fakes import nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

GIGA = 10**9


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    with nic_attach.untouched_world() as made:
        yield made


def rule(world: nic_attach.World, speed: str, ceil: str | None = None) -> None:
    """The admin writes other figures for ``nic0``."""
    limit = nic_attach.BITS(ceil) if ceil is not None else None
    changed = nic_options.NicRule(match="nic0", speed=nic_attach.BITS(speed), ceil=limit)
    world.options = dataclasses.replace(world.options, rules=(changed,))


def borrowing(number: int, bandwidth: str, ceil: str) -> claims.Claim:
    return nic_attach.claim(number, bandwidth=bandwidth, parameters={"ceil": ceil}, source=claims.ConfigSource.CLASS)


def seen(driver: nic_attach.Running) -> port.Traffic:
    (found,) = driver.machine.traffic()
    return found


def ceil_is(driver: nic_attach.Running, wanted: int) -> bool:
    found = seen(driver)
    return found.egress.ceil == found.ingress.ceil == wanted


def complaints(driver: nic_attach.Running) -> list[contexts.HealthReport]:
    """What two reconciler at the NIC say of its health now."""
    author: Any = driver.local.author
    result = fake_context.FakeContext(driver.world.home)
    reconciler = tc_reconciler.TcReconciler(
        driver.machine,
        driver.local.context,
        survey=author.survey,
        uplink=author.uplink,
        intents=driver.local.journal.intents,
        health=reporting.DeviceHealth(result),
    )
    assert not any(reconciler.reconcile().values())
    assert not any(reconciler.reconcile().values())
    return result.reports


def test_the_admins_borrowing_limit_applies_to_shares_in_use_and_can_be_lifted(world: nic_attach.World) -> None:
    wanted = borrowing(1, "1G", "5G")
    with nic_attach.pod() as pod:
        with world.driver() as driver:
            driver.prepare(wanted)
            assert world.call(wanted.ref, pod) == nic_attach.Said(0, "")
            assert ceil_is(driver, 5 * GIGA)
            pod.space.run("sh", "-c", "ping -c 3 -i 0.2 -W 1 -I $(ls /sys/class/net | grep -v lo | head -1) ff02::1 || true")
            (member,), passed = driver.members(), seen(driver).egress.packets
        for figures, ceil in (({"ceil": "2G"}, 2 * GIGA), ({"ceil": "0"}, GIGA), ({"ceil": "400M"}, GIGA), ({}, 5 * GIGA)):
            rule(world, speed="10G", **figures)
            with world.driver() as driver:
                nic_attach.until(lambda driver=driver, ceil=ceil: ceil_is(driver, ceil), f"ceil {ceil}")  # type: ignore[misc]
                assert driver.prepare(wanted) == wanted.ref, "the kubelet asks again"
                assert world.call(wanted.ref, pod, "another") == nic_attach.Said(0, "")
                assert ceil_is(driver, ceil)
                assert driver.members() == [member], "the pod was never without its share"
                assert seen(driver).egress.packets >= passed, "the class is the one it was"
                assert not complaints(driver), "what the admin changes is no damage"
        with world.driver() as driver:
            driver.unprepare(wanted.ref)


def test_another_speed_of_the_nic_changes_its_classes_in_place(world: nic_attach.World) -> None:
    wanted = borrowing(1, "1G", "8G")
    with nic_attach.pod() as pod:
        with world.driver() as driver:
            driver.prepare(wanted)
            assert world.call(wanted.ref, pod) == nic_attach.Said(0, "")
            assert ceil_is(driver, 8 * GIGA)
            (member,) = driver.members()
        rule(world, speed="5G")
        with world.driver() as driver:
            nic_attach.until(lambda: ceil_is(driver, 5 * GIGA), "no share borrows more than the NIC has")
            assert driver.prepare(wanted) == wanted.ref
            assert ceil_is(driver, 5 * GIGA), "a prepare that is asked again does not go back to the speed of then"
            assert driver.members() == [member]
            assert not complaints(driver)
            driver.unprepare(wanted.ref)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_thousand_shares_prepared_and_unprepared_leave_the_kernel_as_it_was(
    world: nic_attach.World, capsys: pytest.CaptureFixture[str]
) -> None:
    rule(world, speed="100G")
    with world.driver() as driver:
        wanted = [nic_attach.claim(number, bandwidth="10M") for number in range(1, 1001)]
        start = time.monotonic()
        for one in wanted:
            driver.prepare(one)
        prepared = time.monotonic()
        assert len(driver.machine.shares()) == len(driver.machine.traffic()) == len(wanted)
        assert not complaints(driver)
        looked = time.monotonic()
        for one in wanted:
            driver.unprepare(one.ref)
        done = time.monotonic()
        assert not driver.machine.shares()
        assert not driver.local.journal.entries()
    assert not list(world.cdi.glob("*.json"))
    with capsys.disabled():
        print(f"\n1000 shares: prepared in {prepared - start:.1f} s, unprepared in {done - looked:.1f} s")  # noqa: T201 - the figure
