"""While memory is lost, what a prepare costs grows with what is in its way, not with all the files of the node."""

import uuid

from drakit.core import edits, lifecycle, names
from drakit.node import inventory_cache
from drakit.node.restore import recall
from fakes import author, cdi, journal, world

OTHERS = [names.ClaimUid(str(uuid.UUID(int=number, version=4))) for number in range(40)]


def name(uid: names.ClaimUid, device: str, share: int | None = None, request: str = "") -> edits.CdiName:
    share_id = None if share is None else names.ShareId(str(uuid.UUID(int=share, version=4)))
    return edits.CdiName(driver=author.FakeDriver.name, claim_uid=uid, device=device, share_id=share_id, request=request)


class Asked(journal.MemoryJournal):
    """Keeps which claims it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[names.ClaimUid] = []

    def entry(self, uid: names.ClaimUid) -> lifecycle.Entry | None:
        self.asked.append(uid)
        return super().entry(uid)


class Node:
    """CDI files of claims that an empty journal does not know."""

    def __init__(self) -> None:
        self.cdi = cdi.MemoryCdi(author.FakeDriver.name)
        self.journal = Asked()
        driver = author.FakeDriver(author.Hardware())
        offered = inventory_cache.InventoryCache(driver)
        offered.refresh()
        self.forgotten = recall.Forgotten(driver, self.journal, self.cdi, offered, world.POOL)

    def write(self, *files: edits.CdiName) -> None:
        for file in files:
            self.cdi.write(file, edits.Edits(env={"A": "1"}))


def test_the_journal_is_asked_only_about_claims_whose_device_is_wanted() -> None:
    node = Node()
    node.write(name(OTHERS[0], "chip-0"), *(name(uid, "chip-1") for uid in OTHERS[1:]))
    assert [item.claim.uid for item in node.forgotten.held({"chip-0"})] == [OTHERS[0]]
    assert node.forgotten.planned(node.forgotten.held({"chip-0"})[0].device) == []
    assert set(node.journal.asked) == {OTHERS[0]}


def test_one_share_stands_for_all_of_a_device_and_those_asked_for_are_told_each() -> None:
    node = Node()
    shares = [name(uid, "pipe", number) for number, uid in enumerate(OTHERS)]
    node.write(*shares)
    (stands,) = node.forgotten.held({"pipe"})
    assert (stands.device.name, stands.share_id is None) == ("pipe", False)
    wanted = shares[7]
    assert wanted.share_id is not None
    held = node.forgotten.held({"pipe"}, [wanted.share_id])
    assert {item.claim.uid for item in held} == {shares[0].claim_uid, wanted.claim_uid}
    assert node.journal.asked == [wanted.claim_uid]


def test_a_share_of_admin_access_stands_for_nobody() -> None:
    node = Node()
    node.write(name(OTHERS[0], "pipe", 0, request="admin"), name(OTHERS[1], "pipe", 1))
    held = node.forgotten.held({"pipe"})
    assert [item.claim.uid for item in held if not item.admin_access] == [OTHERS[1]]


def test_a_device_that_is_gone_is_held_by_nobody() -> None:
    node = Node()
    node.write(name(OTHERS[0], "chip-7"))
    assert node.forgotten.held({"chip-7"}) == ()
