"""``planned`` returns every intent that the device's locks cover: an interchangeable part is never given to two claims."""

import dataclasses
from collections.abc import Sequence

import drakit
from drakit import testing
from drakit.core import lifecycle
from drakit.node import inventory_cache, resolution
from fakes import journal as journals
from fakes import journal_samples as samples


@dataclasses.dataclass
class Card:
    """Transcoder cards with two interchangeable engines each. ``parts`` are the partitions that the driver offers."""

    parts: tuple[str, ...] = ("card-0-a", "card-0-b", "card-0-both", "card-1-a")


class CardDriver(drakit.Driver[drakit.NoConfig]):
    """Gives each partition the lowest engines that no other partition of the card has."""

    name = "card.example.com"

    def __init__(self, card: Card) -> None:
        self.card = card

    def discover(self) -> drakit.Inventory:
        sets = tuple(drakit.CounterSet(name=f"card-{number}", counters={"engines": 2}) for number in range(2))
        return drakit.Inventory(devices=tuple(map(_part, self.card.parts)), counter_sets=sets)

    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        taken = {engine for intent in self.planned(grant.device) for engine in str(intent["engines"])}
        free = [engine for engine in "0123" if engine not in taken]
        return {"engines": "".join(free[: 2 if grant.device.name.endswith("both") else 1])}

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        variable = f"ENGINES_{grant.device.name.upper().replace('-', '_')}"
        return drakit.Prepared(edits=drakit.Edits(env={variable: str(grant.intent["engines"])}))


def _part(name: str) -> drakit.Device:
    drawn = drakit.CounterConsumption(counter_set=name[:6], counters={"engines": 2 if name.endswith("both") else 1})
    return drakit.Device(name=name, consumes=(drawn,))


def engines(node: testing.Node, *devices: str) -> str:
    return ",".join(node.prepare(node.claim(*devices)).env.values())


def test_partitions_of_a_counter_set_get_different_interchangeable_parts() -> None:
    with testing.Node(lambda: CardDriver(Card())) as node:
        assert [engines(node, "card-0-a"), engines(node, "card-0-b")] == ["0", "1"]
        assert engines(node, "card-1-a") == "0", "another card has its own engines"


def test_partitions_of_one_claim_get_different_parts() -> None:
    with testing.Node(lambda: CardDriver(Card())) as node:
        assert engines(node, "card-0-a", "card-0-b", "card-1-a") == "0,1,0"


def test_the_part_of_a_device_that_is_no_longer_discovered_stays_taken() -> None:
    card = Card()
    with testing.Node(lambda: CardDriver(card)) as node:
        assert engines(node, "card-0-a") == "0"
        card.parts = ("card-0-b",)
        node.restart()
        # The first partition is displaced, so the framework withholds its card; the driver's own choice must still see it.
        assert [intent["engines"] for intent in node.driver.planned(_part("card-0-b"))] == ["0"]


def test_the_part_of_an_earlier_boot_stays_taken_until_it_is_undone() -> None:
    card = Card()
    with testing.Node(lambda: CardDriver(card)) as node:
        first = node.claim("card-0-a")
        node.prepare(first)
        card.parts = ("card-0-b",)
        node.restart(boot_id="boot-2")
        assert engines(node, "card-0-b") == "1"
        node.unprepare(first)
        assert [intent["engines"] for intent in node.driver.planned(_part("card-0-b"))] == ["1"]


class CountingJournal(journals.MemoryJournal):
    """Counts how often the names of all held devices are read."""

    names_read = 0

    def device_names(self, pool: str) -> Sequence[str]:
        self.names_read += 1
        return super().device_names(pool)


def resolver(card: Card) -> tuple[resolution.Resolver, CountingJournal, inventory_cache.InventoryCache]:
    driver, journal = CardDriver(card), CountingJournal()
    offered = inventory_cache.InventoryCache(driver)
    offered.refresh()
    return resolution.Resolver(driver, journal, offered, pool="node-1", program="card"), journal, offered


def _grant(number: int, device: str) -> lifecycle.GrantEntry:
    return dataclasses.replace(samples.grant("a", device), device=_part(device), intent={"engines": str(number)})


def begin(made: resolution.Resolver, journal: CountingJournal, number: int, device: str) -> None:
    entry = samples.entry(number, _grant(number, device))
    made.beginning(entry.grants)
    journal.begin(entry)


def test_planning_does_not_read_the_names_of_all_held_devices_again() -> None:
    made, journal, _ = resolver(Card())
    for number, device in enumerate(("card-0-a", "card-0-b", "card-1-a")):
        assert len(made.planned(_part(device))) == (number if device.startswith("card-0") else 0)
        begin(made, journal, number, device)
    assert journal.names_read == 1


def test_a_part_begun_after_discovery_lost_its_device_stays_taken() -> None:
    card = Card()
    made, journal, offered = resolver(card)
    card.parts = ("card-0-b",)
    offered.refresh()
    assert made.planned(_part("card-0-b")) == []
    begin(made, journal, 1, "card-0-a")
    assert [intent["engines"] for intent in made.planned(_part("card-0-b"))] == ["1"]


def test_a_part_whose_device_is_lost_while_it_is_begun_stays_taken() -> None:
    card = Card()
    made, journal, offered = resolver(card)
    entry = samples.entry(1, _grant(1, "card-0-a"))
    made.beginning(entry.grants)
    card.parts = ("card-0-b",)
    offered.refresh()
    assert made.planned(_part("card-0-b")) == []
    journal.begin(entry)
    assert [intent["engines"] for intent in made.planned(_part("card-0-b"))] == ["1"]
