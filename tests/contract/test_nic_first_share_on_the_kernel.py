"""Whose a NIC is, is decided by the kernel in one request: what is left of a death before it, what is in the way, and what it costs."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import pytest

from drakit.core import errors
from drakit_nic import kernel_port
from drakit_nic.shaping import ifb_links
from fakes import netns, paused_calls
from fakes.nic_samples import MAC, index, share, uplink

pytestmark = pytest.mark.root

OWNER, OTHER = "nic.drakit.dev", "other.example.com"


@pytest.fixture
def own(own: netns.Namespace) -> Iterator[netns.Namespace]:
    """The shared NIC, which must be as it was in the end."""
    before = own.state()
    yield own
    assert own.state() == before


@contextlib.contextmanager
def driver(own: netns.Namespace, name: str = OWNER) -> Iterator[kernel_port.KernelPort]:
    made = kernel_port.KernelPort(own.name, driver=name)
    yield made
    made.close()


def alias(own: netns.Namespace) -> object:
    return own.links()[f"drb{index(own)}"].get("ifalias", "")


def test_temporary_ifb_names_are_unique_to_driver_and_nic_and_fit() -> None:
    names = {ifb_links.private_name(nic, owner) for nic in (1, 2**31 - 1) for owner in ("", OWNER, OTHER, "a" * 63)}
    assert len(names) == 8
    assert {len(name) for name in names} == {15}
    assert ifb_links.private_name(5, OWNER) == ifb_links.private_name(5, OWNER)


def test_a_driver_adopts_its_ifb_that_a_crash_left_unnamed_and_others_can_share(own: netns.Namespace) -> None:
    left = ifb_links.private_name(index(own), OWNER)
    own.ip("link", "add", left, "type", "ifb")
    made = own.links()[left]["ifindex"]
    with driver(own, OTHER) as other, driver(own) as owner:
        interface = owner.interface("nic0")
        assert interface is not None
        assert interface.other_driver == ""
        other.install(uplink(own), share(own))
        other.remove("share-1", share(own))
        assert own.links()[left]["ifindex"] == made
        owner.install(uplink(own), share(own))
        assert own.links()[f"drb{index(own)}"]["ifindex"] == made
        owner.remove("share-1", share(own))


def test_removing_a_share_removes_an_ifb_that_a_crash_left_unnamed(own: netns.Namespace) -> None:
    left = ifb_links.private_name(index(own), OWNER)
    own.ip("link", "add", left, "type", "ifb")
    with driver(own, OTHER) as other, driver(own) as owner:
        other.install(uplink(own), share(own, 2))
        owner.remove("share-1", share(own))
        assert left not in own.links()
        assert other.check(uplink(own), [share(own, 2)]) == ()
        other.remove("share-2", share(own, 2))


@pytest.mark.parametrize("kind", ["bridge", "ifb"])
def test_a_link_of_somebody_else_s_that_has_the_private_name_is_refused_and_left(own: netns.Namespace, kind: str) -> None:
    left = ifb_links.private_name(index(own), OWNER)
    own.ip("link", "add", left, "type", kind)
    own.ip("link", "set", left, "alias", "of the admin")
    before = own.state()
    with driver(own) as owner:
        with pytest.raises(errors.HardwareError, match=f"the name {left} belongs to a link of another program; rename it"):
            owner.install(uplink(own), share(own))
        owner.remove("share-1", share(own))
    assert own.state() == before
    own.ip("link", "delete", left)


def test_exactly_one_of_two_drivers_adopts_an_unmarked_ifb_of_an_older_version(own: netns.Namespace) -> None:
    with driver(own) as owner, driver(own, OTHER) as other:
        owner.shaping()
        other.shaping()
        for number in range(0, 24, 2):
            own.ip("link", "add", f"drb{index(own)}", "type", "ifb")
            with paused_calls.PausedCall[object](lambda: owner.install(uplink(own), share(own))) as paused:
                paused.run_to(number)
                result = refusal(lambda: other.install(uplink(own), share(own, 2))), refusal(paused.finish)
            winner, kept = (owner, share(own)) if result[0] else (other, share(own, 2))
            assert sorted(map(bool, result)) == [False, True]
            assert f"is shared out by the driver {OWNER if winner is owner else OTHER};" in "".join(result)
            assert winner.shares() == (kept,)
            assert winner.check(uplink(own), [kept]) == ()
            winner.remove(kept.id, kept)
            assert not [name for name in own.links() if name.startswith("dr")]


def refusal(call: Callable[[], object]) -> str:
    """What a call is refused for; empty where it is not."""
    try:
        call()
    except errors.HardwareError as error:
        return str(error)
    return ""


def test_a_driver_does_not_adopt_parts_that_another_creates_during_its_read(own: netns.Namespace) -> None:
    rival = dataclasses.replace(share(own), id="rival")
    with driver(own) as owner, driver(own, OTHER) as other:
        owner.shaping()
        other.shaping()
        calls: list[Callable[[], object]] = [lambda: other.install(uplink(own), rival), lambda: other.repair(uplink(own), [])]
        for call, number in itertools.product(calls, range(1, 9)):
            with paused_calls.PausedCall(call) as paused:
                paused.run_to(number)
                owner.install(uplink(own), share(own))
                result = refusal(paused.finish)
            assert not result or "is shared out by the driver nic.drakit.dev" in result
            assert owner.check(uplink(own), [share(own)]) == ()
            owner.remove("share-1", share(own))


@pytest.mark.parametrize(
    "verb, requests",
    [
        ("install", range(8, 100, 6)),
        ("remove", range(2, 26, 2)),
        pytest.param("install", range(8, 100, 3), marks=pytest.mark.full),
        pytest.param("remove", range(2, 26), marks=pytest.mark.full),
    ],
    ids=["install", "remove", "install more often", "remove at every request"],
)
def test_a_driver_neither_marks_nor_deletes_an_ifb_that_another_took_meanwhile(verb: str, requests: range) -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    taken = [taken_within(verb, number) for number in requests]
    assert taken.count(True) > 4


def taken_within(verb: str, number: int) -> bool:
    """Somebody deletes the ifb before a request of a verb, and another driver has the NIC then; whether there was an ifb to delete."""
    with netns.namespace() as space:
        space.make_nic("nic0", mac=MAC)
        with driver(space) as owner, driver(space, OTHER) as other:
            own, later = share(space), share(space, 2)
            owner.shaping()
            if verb == "remove":
                owner.install(uplink(space), own)
            calls: dict[str, Callable[[], object]] = {
                "install": lambda: owner.install(uplink(space), own),
                "remove": lambda: owner.remove(own.id, own),
            }
            with paused_calls.PausedCall(calls[verb]) as paused:
                paused.run_to(number)
                if f"drb{index(space)}" not in space.links():
                    return False
                space.ip("link", "delete", f"drb{index(space)}")
                other.install(uplink(space), later)
                made = space.links()[f"drb{index(space)}"]["ifindex"]
                refusal(paused.finish)
            assert str(alias(space)).startswith(f"drakit ingress of {index(space)} by {OTHER},")
            assert space.links()[f"drb{index(space)}"]["ifindex"] == made
            return True


def test_a_driver_whose_ifb_somebody_deleted_does_not_mark_the_next_driver_s(own: netns.Namespace) -> None:
    with driver(own) as owner, driver(own, OTHER) as other:
        owner.install(uplink(own), share(own))
        own.ip("link", "delete", f"drb{index(own)}")
        other.install(uplink(own), share(own, 2))
        with pytest.raises(errors.HardwareError, match="is shared out by the driver"):
            owner.repair(uplink(own), [share(own)])
        assert alias(own) == f"drakit ingress of {index(own)} by {OTHER}, own hook"
        other.repair(uplink(own), [share(own, 2)])
        other.remove("share-2", share(own, 2))


def test_each_later_share_of_a_nic_costs_the_same_number_of_requests(own: netns.Namespace) -> None:
    with driver(own) as owner:
        owner.shaping()
        sent = []
        for number in (1, 2, 3):
            with paused_calls.PausedCall(functools.partial(owner.install, uplink(own), share(own, number))) as paused:
                paused.finish()
            sent.append(paused.sent)
        for number in (1, 2, 3):
            owner.remove(f"share-{number}", share(own, number))
    first, *later = sent
    assert later[0] == later[1] < first
