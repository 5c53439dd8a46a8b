"""A device is prepared only beside devices of its counter set with which it has a compatibility group in common (KEP-5963)."""

import pytest

import drakit
from drakit import testing


class Chip(drakit.Driver[drakit.NoConfig]):
    """One chip with several modes; ``groups`` are those of each device."""

    name = "chip.example.com"

    def __init__(self, groups: dict[str, tuple[str, ...]], made: set[str]) -> None:
        self.groups, self.made = groups, made

    def discover(self) -> drakit.Inventory:
        def offered(name: str, groups: tuple[str, ...]) -> drakit.Device:
            part = drakit.CounterConsumption(counter_set="chip", counters={"slots": 1}, compatibility_groups=groups)
            return drakit.Device(name=name, consumes=(part,))

        return drakit.Inventory(
            devices=tuple(offered(name, groups) for name, groups in self.groups.items()),
            counter_sets=(drakit.CounterSet(name="chip", counters={"slots": 8}),),
        )

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        self.made.add(grant.device.name)
        return drakit.Prepared()

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        self.made.discard(grant.device.name)


@pytest.fixture
def groups() -> dict[str, tuple[str, ...]]:
    return {"mig-0": ("mig",), "mig-1": ("mig",), "vm-0": ("vm",), "both-0": ("mig", "vm"), "plain-0": (), "plain-1": ()}


@pytest.mark.parametrize(
    "first, second, refused",
    [
        (["mig-0"], "mig-1", False),
        (["mig-0"], "both-0", False),
        (["mig-0"], "vm-0", True),
        (["mig-0"], "plain-0", True),
        (["plain-0"], "plain-1", False),
        (["plain-0"], "vm-0", True),
        (["mig-0", "both-0"], "vm-0", True),
    ],
)
def test_devices_without_a_common_group_are_not_prepared_together(
    groups: dict[str, tuple[str, ...]], first: list[str], second: str, *, refused: bool
) -> None:
    made: set[str] = set()
    with testing.Node(lambda: Chip(groups, made)) as node:
        holder = node.claim(*first, name="holder")
        node.prepare(holder)
        claim = node.claim(second)
        error = node.try_prepare(claim).error
        assert made == {*first} | (set() if refused else {second})
        if refused:
            assert f"{second} has no compatibility group of chip in common with what is held by claim default/holder" in error
            node.unprepare(holder)
            node.prepare(claim)
        assert second in made


def test_one_claim_of_devices_that_exclude_each_other_is_refused(groups: dict[str, tuple[str, ...]]) -> None:
    with testing.Node(lambda: Chip(groups, set())) as node:
        assert "in common with what is held by the claim itself" in node.try_prepare(node.claim("mig-0", "vm-0")).error
        assert node.is_clean


def test_groups_that_a_new_version_of_the_driver_adds_count_for_held_devices_too(groups: dict[str, tuple[str, ...]]) -> None:
    made: set[str] = set()
    before: dict[str, tuple[str, ...]] = dict.fromkeys(groups, ())
    with testing.Node(lambda: Chip(before, made)) as node:
        node.prepare(node.claim("mig-0", name="holder"))
        before.update(groups)
        node.restart()
        node.prepare(node.claim("mig-1"))
        assert "no compatibility group" in node.try_prepare(node.claim("vm-0")).error
