"""Two NIC drivers of different names on one node, on the real kernel: a NIC is shared out by one of them, and the other leaves it alone."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from drakit_nic import port
from fakes import nic_attach

pytestmark = pytest.mark.root

OTHER = "other.example.com"
TAKEN = "is shared out by the driver nic.drakit.dev"


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    with nic_attach.untouched_world() as made:
        yield made


@contextlib.contextmanager
def beside(world: nic_attach.World, *, name: str = OTHER) -> Iterator[nic_attach.Running]:
    """A driver of another name on the same node; it has a journal, locks and a socket of its own."""
    with nic_attach.World(world.node, pathlib.Path(world.home).parent, world.options, name=name).driver() as other:
        yield other


def reasons(driver: nic_attach.Running) -> dict[str, str]:
    return {item.name: item.reason for item in nic_attach.author_of(driver).survey().withheld}


def offered(driver: nic_attach.Running) -> list[str]:
    return [nic.name for nic in nic_attach.author_of(driver).survey().nics]


def test_a_share_that_no_pod_uses_yet_survives_another_driver(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        before = driver.machine.shares()
        assert (len(before), driver.members()) == (1, [])
        with beside(world) as other:
            assert nic_attach.look(other) == {}
            assert driver.machine.shares() == before
            assert driver.machine.check(uplink(driver), before) == ()
        driver.unprepare(ref)


def uplink(driver: nic_attach.Running) -> port.Uplink:
    (nic,) = nic_attach.author_of(driver).survey().nics
    return nic_attach.author_of(driver).uplink(nic.interface, nic.speed)


def test_a_nic_that_one_driver_shares_out_is_withheld_by_the_other_until_it_is_free(world: nic_attach.World) -> None:
    with world.driver() as driver, beside(world) as other:
        ref = driver.prepare(nic_attach.claim(1))
        assert reasons(other)["nic0"] == TAKEN
        assert other.machine.interface("nic0") in other.machine.interfaces(), "one look says what the other says"
        assert offered(driver) == ["nic0"], "it goes on being offered by whose it is"
        driver.unprepare(ref)
        assert offered(other) == ["nic0"]


def test_a_claim_that_was_allocated_before_is_refused_by_the_driver_s_name(world: nic_attach.World) -> None:
    with world.driver() as driver, beside(world) as other:
        ref = driver.prepare(nic_attach.claim(1))
        late = nic_attach.claim(2, driver=OTHER)
        other.world.source.put(late)
        refused = other.local.engine.prepare([late.ref], nic_attach.Waiting())[late.ref.uid].error
        assert "nic0 is shared out by the driver nic.drakit.dev; only one driver can share out an interface" in refused
        assert [share.id for share in driver.machine.shares()] == [str(nic_attach.claim(1).results[0].share_id)]
        other.unprepare(late.ref)
        driver.unprepare(ref)


def test_neither_driver_counts_or_removes_shares_of_the_other(world: nic_attach.World) -> None:
    with world.driver() as driver, beside(world) as other, nic_attach.pod() as pod:
        ref = driver.prepare(nic_attach.claim(1))
        assert world.call(ref, pod) == nic_attach.Said(0, "")
        counted = [reading for reading in nic_attach.author_of(other).metrics() if reading.name != "nic_shaping"]
        assert not [reading for reading in counted if reading.value], "all that it counts is zero"
        assert [reading for reading in nic_attach.author_of(driver).metrics() if reading.value]
        (share,) = driver.machine.shares()
        other.machine.remove(share.id)
        assert driver.machine.shares() == (share,)
        attachment = nic_attach.author_of(other)._attachment
        assert attachment is not None
        attachment.remove_leftovers()
        assert len(pod.space.links()) == 2, "the pod has lo and its interface"
        driver.unprepare(ref)


def test_a_driver_of_the_same_name_takes_over(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
    with world.driver() as later:
        assert offered(later) == ["nic0"]
        assert nic_attach.look(later) == {"nic0": ()}
        later.unprepare(ref)


def test_a_driver_adopts_and_marks_shares_of_a_version_without_marks(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        index = next(link["ifindex"] for name, link in world.node.links().items() if name == "nic0")
        world.node.ip("link", "set", f"drb{index}", "alias", f"drakit ingress of {index}, own hook")
        nic_attach.look(driver)
        assert world.node.links()[f"drb{index}"]["ifalias"] == f"drakit ingress of {index} by nic.drakit.dev, own hook"
        driver.unprepare(ref)


def test_each_of_two_drivers_may_share_a_nic_of_its_own(world: nic_attach.World) -> None:
    world.node.make_nic("nic1", mac="02:00:00:00:00:21")
    rule = dataclasses.replace(world.options.rules[0], match="nic*")
    world.options = dataclasses.replace(world.options, rules=(rule,))
    with world.driver() as driver, beside(world) as other:
        first = driver.prepare(nic_attach.claim(1))
        late = nic_attach.claim(2, driver=OTHER)
        (result,) = late.results
        second = other.prepare(dataclasses.replace(late, results=(dataclasses.replace(result, device="nic1"),)))
        for running, name in ((driver, "nic0"), (other, "nic1")):
            assert nic_attach.look(running) == {name: ()}
        other.unprepare(second)
        driver.unprepare(first)
    world.node.ip("link", "delete", "nic1")


def test_a_nic_of_a_removed_driver_is_free_once_its_mark_is_removed(world: nic_attach.World) -> None:
    with world.driver() as driver:
        driver.prepare(nic_attach.claim(1))
    with beside(world) as other:
        (reported,) = (item.refusal.change for item in nic_attach.author_of(other).survey().withheld if item.name == "nic0")
        _, _, command = reported.rpartition("gone for good: ip ")
        world.node.ip(*command.removesuffix(")").split())
        assert offered(other) == ["nic0"]
        ref = other.prepare(nic_attach.claim(2, driver=OTHER))
        nic_attach.look(other)
        assert [share.id for share in other.machine.shares()] == [str(nic_attach.claim(2).results[0].share_id)]
        other.unprepare(ref)
