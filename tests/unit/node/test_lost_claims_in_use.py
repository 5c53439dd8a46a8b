"""A journal and CDI files that are gone or older than the node: claims in use are restored, ended ones do not come back, and hardware is released."""

import contextlib
import dataclasses
import pathlib
import shutil
import sqlite3
from collections.abc import Callable, Collection

import pytest

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import errors, inventory, lifecycle, names, quantity, records
from drakit.core.slices import resource_slice
from drakit.journal import files
from drakit.node import engine, local_node, restorer
from fakes import author, claim_source, claim_statuses, crash_node, journal_samples

Claim = claims.Claim


def claim(number: int, device: str, *, is_reserved: bool = True) -> Claim:
    """An allocated claim; a claim for the pipe gets a share."""
    result = claims.AllocationResult(
        request="r",
        driver=author.FakeDriver.name,
        pool=crash_node.POOL,
        device=device,
        share_id=journal_samples.share(number) if device == "pipe" else None,
        consumed_capacity={"bandwidth": quantity.Quantity.parse("1G")} if device == "pipe" else {},
    )
    return Claim(ref=journal_samples.ref(number), results=(result,), is_reserved=is_reserved)


class Recalling(author.FakeDriver):
    """Plans only what does not exist, and recalls only from the attributes of a device that this driver published."""

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.hidden: frozenset[str] = frozenset()
        self.recalled: list[str] = []
        self.before_prepare: Callable[[names.ClaimUid], object] = lambda _: None

    def discover(self) -> inventory.Inventory:
        found = super().discover()
        return dataclasses.replace(found, devices=tuple(device for device in found.devices if device.name not in self.hidden))

    def overlaps(self, first: devices.Device, second: devices.Device) -> bool:
        return first.name[:6] == second.name[:6] and {first.name[6:], second.name[6:]} != {"-left", "-right"}

    def plan(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        intent = super().plan(grant)
        if intent["identity"] in self.hardware.made:
            raise errors.DeviceBusyError("it exists already")
        return intent

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        self.before_prepare(grant.claim.uid)
        return super().prepare(grant)

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        self.recalled.append(grant.device.name)
        kind = grant.device.attributes.get("kind")
        return {**super().plan(grant), "borrowed": kind == "foreign"}

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        if not grant.intent.get("borrowed"):
            super().unprepare(grant)


class Site:
    """A node that outlives its driver."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.home, self.cdi, self.backup = folder / "home", folder / "cdi", folder / "backup"
        self.hardware, self.source = author.Hardware(), claim_source.FakeClaimSource()
        self.known: list[Claim] = []

    def open(self, *, checks_new: bool = True) -> local_node.LocalNode:
        """Open the node as the driver does, or without ``checks_new`` as a command by hand."""
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name,
            build=lambda _: Recalling(self.hardware),
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id="boot-1"),
        )
        return local_node.LocalNode.open(spec, local_node.Folders(home=self.home, cdi=self.cdi), self.source, checks_new=checks_new)

    def prepare(self, local: local_node.LocalNode, *wanted: Claim) -> None:
        for one in wanted:
            self.source.put(one)
            self.known.append(one)
            assert local.engine.prepare([one.ref], crash_node.Waiting())[one.ref.uid].error == ""

    def unprepare(self, local: local_node.LocalNode, *ended: Claim) -> None:
        for one in ended:
            self.source.remove(one.ref)
            self.known.remove(one)
            assert local.engine.unprepare([one.ref], crash_node.Waiting()) == {one.ref.uid: ""}

    @property
    def listing(self) -> claim_statuses.FakeClaimList:
        return claim_statuses.FakeClaimList(*self.known)

    def restore(
        self, local: local_node.LocalNode, *, tracked: Collection[Claim] | None = None, is_late: bool = False
    ) -> dict[names.ClaimUid, str]:
        state = restorer.NodeState(tracked=None if tracked is None else frozenset(one.ref.uid for one in tracked))
        failed = local.restorer.restore(self.listing, without_devices=is_late, state=state)
        if not failed:
            local.recover()
        return dict(failed)


class GivenClaims:
    """The claims that a command by hand was given: never all of the cluster's."""

    def __init__(self, *given: Claim) -> None:
        self._given = given

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        del driver, serves
        return claims.Listed(claims=self._given, is_complete=False)


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    """A new node whose journal is verified."""
    made = Site(tmp_path)
    with made.open() as local:
        assert local.is_unverified
        assert made.restore(local) == {}
        assert not local.is_lost
    return made


def prepared(local: local_node.LocalNode) -> set[str]:
    return {entry.claim.name for entry in local.journal.entries() if entry.state is lifecycle.State.PREPARED}


def test_claims_are_restored_and_released_after_both_folders_were_deleted(site: Site) -> None:
    half, share = claim(1, "chip-0-left"), claim(2, "pipe")
    with site.open() as local:
        site.prepare(local, half, share)
    made = dict(site.hardware.made)
    shutil.rmtree(site.home)
    shutil.rmtree(site.cdi)
    with site.open() as local:
        assert site.restore(local) == {}
        assert (prepared(local), site.hardware.made) == ({"claim-1", "claim-2"}, made)
        assert local.cdi.claims() == {half.ref.uid, share.ref.uid}
        site.unprepare(local, half, share)
    assert site.hardware.made == {}


def test_without_api_server_nothing_is_removed_and_nothing_served(site: Site) -> None:
    with site.open() as local:
        site.prepare(local, claim(1, "chip-0-left"))
    made = dict(site.hardware.made)
    shutil.rmtree(site.home)
    shutil.rmtree(site.cdi)
    with site.open() as local:
        listing = site.listing
        listing.failures = [errors.ApiError("away", status=503)]
        with pytest.raises(errors.ApiError):
            local.restorer.restore(listing)
        assert (local.is_lost, site.hardware.made) == (True, made)
        assert site.restore(local) == {}


def test_only_claims_that_the_kubelet_prepared_are_restored_from_the_list(site: Site) -> None:
    used, waiting = claim(1, "chip-0-left"), claim(2, "chip-1")
    site.known = [used, waiting, claim(3, "pipe", is_reserved=False)]
    shutil.rmtree(site.home)
    with site.open() as local:
        assert site.restore(local, tracked=[used]) == {}
        assert prepared(local) == {"claim-1"}
    shutil.rmtree(site.home)
    shutil.rmtree(site.cdi)
    with site.open() as local:
        assert site.restore(local) == {}
        assert prepared(local) == {"claim-1", "claim-2"}, "without a checkpoint those that pods have reserved"


def test_a_claim_that_only_the_list_has_blocks_the_start_for_a_minute_only(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.known = [claim(1, "chip-0-left")]
    shutil.rmtree(site.home)
    with site.open() as local:
        failing(local)
        assert list(site.restore(local)) == [site.known[0].ref.uid]
        assert site.restore(local, is_late=True) == {}
        assert not local.is_lost
    assert "claim not restored" in capsys.readouterr().err


@pytest.mark.parametrize("error", [errors.HardwareError("probe", "broken"), KeyError("bug")], ids=["error", "bug"])
def test_a_failed_restore_logs_a_traceback_only_for_a_bug(site: Site, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    site.known = [claim(1, "chip-0-left")]
    shutil.rmtree(site.home)
    with site.open() as local:
        failing(local).failure = error
        assert list(site.restore(local)) == [site.known[0].ref.uid]
    err = capsys.readouterr().err
    assert ("claim not restored" in err, "Traceback" in err) == (True, isinstance(error, KeyError))


@pytest.fixture
def used(site: Site) -> Claim:
    """A claim in use after both folders were deleted."""
    wanted = claim(1, "chip-0-left")
    with site.open() as local:
        site.prepare(local, wanted)
    shutil.rmtree(site.home)
    shutil.rmtree(site.cdi)
    return wanted


def failing(local: local_node.LocalNode) -> author.FakeDriver:
    """The driver, whose verbs fail from now on."""
    assert isinstance(local.author, author.FakeDriver)
    local.author.failure = errors.HardwareError("probe", "broken")
    return local.author


def test_a_claim_that_only_the_list_has_keeps_its_hardware_after_a_failed_attempt(site: Site, used: Claim) -> None:
    made = dict(site.hardware.made)
    with site.open() as local:
        driver = failing(local)
        assert list(site.restore(local, tracked=[used])) == [used.ref.uid]
        assert site.hardware.made == made
        driver.failure = None
        assert site.restore(local, tracked=[used]) == {}
        assert (prepared(local), site.hardware.made) == ({"claim-1"}, made)


def test_dropping_a_lost_claim_keeps_its_hardware(site: Site, used: Claim) -> None:
    made = dict(site.hardware.made)
    with site.open() as local:
        driver = failing(local)
        assert site.restore(local, tracked=[used], is_late=True) == {}
        driver.failure = None
        local.recover()
        assert (prepared(local), site.hardware.made) == (set(), made)


def test_the_next_process_goes_on_with_a_claim_whose_restoration_failed(site: Site, used: Claim) -> None:
    made = dict(site.hardware.made)
    half_restored(site, used)
    with site.open() as local:
        assert site.restore(local, tracked=[used]) == {}
        assert (prepared(local), site.hardware.made) == ({"claim-1"}, made)


def half_restored(site: Site, used: Claim) -> None:
    """A driver that failed to restore a claim which only the API server has, and ended."""
    with site.open() as local:
        failing(local)
        assert list(site.restore(local, tracked=[used])) == [used.ref.uid]


@pytest.mark.parametrize("command", ["unprepare", "prepare", "restore"])
def test_commands_by_hand_neither_end_the_loss_nor_undo_what_the_driver_is_restoring(site: Site, used: Claim, command: str) -> None:
    other, made = claim(2, "chip-1"), dict(site.hardware.made)
    half_restored(site, used)
    site.source.put(other)
    with site.open(checks_new=False) as by_hand:
        if command == "unprepare":
            assert by_hand.unprepare([other.ref], crash_node.Waiting()) == {other.ref.uid: ""}
        elif command == "restore":
            assert by_hand.restore(GivenClaims()) == {}
        else:
            assert by_hand.engine.prepare([other.ref], crash_node.Waiting())[other.ref.uid].error == ""
            made |= {"chip-1": 1}
        assert (by_hand.is_lost, site.hardware.made) == (True, made)
    with site.open() as local:
        assert site.restore(local, tracked=[used]) == {}
        assert ("claim-1" in prepared(local), site.hardware.made["chip-0-left"]) == (True, made["chip-0-left"])


def test_a_journal_made_by_hand_is_verified_by_the_driver_only(site: Site, used: Claim) -> None:
    other = claim(2, "chip-1")
    for _ in range(2):
        with site.open(checks_new=False) as by_hand:
            assert not by_hand.is_lost
    with site.open(checks_new=False) as by_hand:
        site.prepare(by_hand, other)
    with site.open() as local:
        assert local.is_unverified
        assert site.restore(local, tracked=[used]) == {}
        assert prepared(local) == {"claim-1", "claim-2"}
    with site.open() as local:
        assert not local.is_lost


def test_a_driver_verifies_the_journal_of_a_command_that_is_still_running(site: Site, used: Claim) -> None:
    with site.open(checks_new=False), site.open() as local:
        assert local.is_unverified
        assert site.restore(local, tracked=[used]) == {}
        assert prepared(local) == {"claim-1"}


@pytest.mark.parametrize("command", ["restore", "unprepare"])
def test_a_command_does_not_end_the_loss_for_a_driver_that_starts_beside_it(site: Site, command: str) -> None:
    kept, only_listed = claim(1, "chip-0"), claim(2, "chip-1")
    with site.open() as local:
        site.prepare(local, kept, only_listed)
    shutil.rmtree(site.home)
    for file in site.cdi.glob(f"*{only_listed.ref.uid}*"):
        file.unlink()
    with contextlib.ExitStack() as stack:
        by_hand = stack.enter_context(site.open(checks_new=False))
        driver = stack.enter_context(site.open())
        if command == "restore":
            assert by_hand.restore(GivenClaims(kept)) == {}
        else:
            site.source.remove(kept.ref)
            site.known.remove(kept)
            assert by_hand.unprepare([kept.ref], crash_node.Waiting()) == {kept.ref.uid: ""}
        assert by_hand.is_lost
        assert site.restore(driver, tracked=[only_listed]) == {}
        assert "claim-2" in prepared(driver)


def test_damage_that_a_command_finds_first_is_still_the_drivers_to_verify(site: Site) -> None:
    half, other = claim(1, "chip-0"), claim(2, "chip-1")

    def back_up(_: names.ClaimUid) -> None:
        site.backup.mkdir()
        with (
            contextlib.closing(sqlite3.connect(site.home / files.DATABASE)) as now,
            contextlib.closing(sqlite3.connect(site.backup / files.DATABASE)) as then,
        ):
            now.backup(then)

    with site.open() as local:
        assert isinstance(local.author, Recalling)
        site.prepare(local, other)
        local.author.before_prepare = back_up
        site.prepare(local, half)
    for path in site.home.glob(f"{files.DATABASE}*"):
        path.unlink()
    shutil.copy(site.backup / files.DATABASE, site.home / files.DATABASE)
    for path in site.cdi.glob(f"*{half.ref.uid}*"):
        path.unlink()
    with site.open(checks_new=False) as by_hand:
        assert by_hand.unprepare([other.ref], crash_node.Waiting()) == {other.ref.uid: ""}
        assert (by_hand.is_lost, set(site.hardware.made)) == (True, {"chip-0"})


def test_only_the_devices_that_exist_are_recalled(site: Site) -> None:
    one = claim(1, "chip-0-left")
    results = (dataclasses.replace(one.results[0], request="a"), dataclasses.replace(one.results[0], request="b", device="chip-1"))
    both = dataclasses.replace(one, results=results)
    site.known = [both]
    site.hardware.made["chip-0-left"] = 1
    shutil.rmtree(site.home)
    with site.open() as local:
        assert isinstance(local.author, Recalling)
        assert site.restore(local, tracked=[both]) == {}
        assert local.author.recalled == ["chip-0-left"]


def test_a_claim_that_waits_for_others_is_not_dropped(site: Site) -> None:
    broken, waiting = claim(1, "chip-0"), claim(2, "chip-1")
    with site.open() as local:
        site.prepare(local, broken)
    site.known.append(waiting)
    shutil.rmtree(site.home)
    with site.open() as local:
        failing(local)
        failed = site.restore(local, tracked=[broken, waiting], is_late=True)
        assert failed == {broken.ref.uid: "probe: broken", waiting.ref.uid: "waits until the other claims are restored"}
        assert isinstance(local.author, Recalling)
        local.author.failure = None
        assert site.restore(local, tracked=[broken, waiting], is_late=True) == {}
        assert prepared(local) == {"claim-1", "claim-2"}


def test_an_ended_claim_frees_hardware_that_is_offered_in_another_form_by_now(site: Site) -> None:
    ended, again = claim(1, "chip-0"), claim(2, "chip-0-left")
    older_copy(site, ended, again)
    with site.open() as local:
        assert isinstance(local.author, Recalling)
        local.author.hidden = frozenset({"chip-0"})
        state = restorer.NodeState(published={"chip-0-left": devices.Device(name="chip-0-left", attributes={"kind": "half"})})
        assert local.restorer.restore(site.listing, state=state) == {}
        assert prepared(local) == {"claim-2"}


def test_a_claim_prepared_by_a_command_during_the_loss_is_not_dropped(site: Site) -> None:
    first, second = claim(1, "chip-0"), claim(2, "chip-1")
    site.known = [first, second]
    site.source.put(first)
    site.source.put(second)
    shutil.rmtree(site.home)
    with site.open() as local, site.open(checks_new=False) as by_hand:
        assert isinstance(local.author, Recalling)

        def meanwhile(uid: names.ClaimUid) -> None:
            if uid == first.ref.uid:
                raise errors.HardwareError("probe", "broken")
            assert by_hand.engine.prepare([first.ref], crash_node.Waiting())[first.ref.uid].error == ""

        local.author.before_prepare = meanwhile
        assert site.restore(local, tracked=[first, second], is_late=True) == {}
        assert prepared(local) == {"claim-1", "claim-2"}


def test_without_a_driver_commands_by_hand_end_the_loss(site: Site) -> None:
    shutil.rmtree(site.home)
    shutil.rmtree(site.cdi)
    kept, gone = claim(1, "chip-0"), claim(2, "chip-1")
    with site.open(checks_new=False) as by_hand:
        site.prepare(by_hand, kept, gone)
    shutil.rmtree(site.home)
    with site.open(checks_new=False) as by_hand:
        assert by_hand.unprepare([gone.ref], crash_node.Waiting()) == {gone.ref.uid: ""}
        assert by_hand.is_lost
        assert by_hand.restore(GivenClaims(kept)) == {}
        assert (by_hand.is_lost, prepared(by_hand), set(site.hardware.made)) == (False, {"claim-1"}, {"chip-0"})
    with site.open() as local:
        assert local.is_unverified, "only the API server knows that no other claim is missing"


def test_a_device_that_discovery_misses_is_restored_as_it_was_published(site: Site, used: Claim) -> None:
    site.known[:] = [used]
    offered = author.FakeDriver(site.hardware).discover().flat().by_name()["chip-0-left"]
    with site.open() as local:
        assert isinstance(local.author, Recalling)
        local.author.hidden = frozenset({"chip-0-left"})
        assert list(site.restore(local, tracked=[used])) == [used.ref.uid]
        assert local.restorer.restore(site.listing, state=restorer.NodeState(published={"chip-0-left": offered})) == {}
        assert prepared(local) == {"claim-1"}


def older_copy(site: Site, ended: Claim, begun: Claim) -> None:
    """A journal of the time before one claim ended and the other began."""
    with site.open() as local:
        site.prepare(local, ended)
    shutil.copytree(site.home, site.backup)
    with site.open() as local:
        site.unprepare(local, ended)
        site.prepare(local, begun)
    shutil.rmtree(site.home)
    shutil.copytree(site.backup, site.home)


def test_a_claim_ended_after_the_backup_is_not_restored(site: Site) -> None:
    ended, other, again = claim(1, "chip-0"), claim(2, "chip-1"), claim(3, "chip-0")
    with site.open() as local:
        site.prepare(local, ended, other)
    shutil.copytree(site.home, site.backup)
    with site.open() as local:
        site.unprepare(local, ended)
        site.prepare(local, again)
    made = dict(site.hardware.made)
    shutil.rmtree(site.home)
    shutil.copytree(site.backup, site.home)
    with site.open() as local:
        assert local.journal.quarantine is not None
        assert site.restore(local) == {}
        assert (prepared(local), site.hardware.made) == ({"claim-2", "claim-3"}, made)
        site.unprepare(local, other, again)
    assert site.hardware.made == {}


def test_hardware_of_a_claim_ended_after_the_backup_is_released_if_unclaimed(site: Site) -> None:
    ended, other = claim(1, "chip-0"), claim(2, "chip-1")
    with site.open() as local:
        site.prepare(local, ended, other)
    shutil.copytree(site.home, site.backup)
    with site.open() as local:
        site.unprepare(local, ended)
    site.hardware.made["chip-0"] = 1  # as if the process had died before it released the hardware
    shutil.rmtree(site.home)
    shutil.copytree(site.backup, site.home)
    with site.open() as local:
        assert site.restore(local) == {}
        assert (prepared(local), set(site.hardware.made)) == ({"claim-2"}, {"chip-1"})


def test_a_claim_allocated_again_after_a_backup_has_its_new_devices(site: Site) -> None:
    before, after = claim(1, "chip-0"), claim(1, "chip-1")
    older_copy(site, before, after)
    with site.open() as local:
        assert site.restore(local) == {}
        assert [grant.device.name for entry in local.journal.entries() for grant in entry.grants] == ["chip-1"]
        site.unprepare(local, after)
    assert site.hardware.made == {}


def test_a_deleted_cdi_directory_alone_loses_no_claim(site: Site) -> None:
    with site.open() as local:
        site.prepare(local, claim(1, "chip-0-left"))
    made = dict(site.hardware.made)
    shutil.rmtree(site.cdi)
    with site.open() as local:
        assert local.is_unverified
        assert site.restore(local) == {}
        assert (prepared(local), site.hardware.made, len(local.cdi.claims())) == ({"claim-1"}, made, 1)


def test_a_restored_claim_has_the_device_as_it_was_published(site: Site) -> None:
    half = claim(1, "chip-0-left")
    with site.open() as local:
        site.prepare(local, half)
    for published, is_released in (("half", True), ("foreign", False)):
        shutil.rmtree(site.home)
        shutil.rmtree(site.cdi)
        with site.open() as local:
            offered = devices.Device(name="chip-0-left", attributes={"kind": published})
            state = restorer.NodeState(published={"chip-0-left": offered})
            assert local.restorer.restore(site.listing, state=state) == {}
            assert local.engine.unprepare([half.ref], crash_node.Waiting()) == {half.ref.uid: ""}
        assert (site.hardware.made == {}) is is_released
        site.hardware.made["chip-0-left"] = 1


def test_attributes_of_published_devices_include_those_of_their_mixins() -> None:
    mixin = inventory.DeviceMixin(name="all", attributes={"kind": "half", "size": 1})
    page = resource_slice.Page(
        devices=(devices.Device(name="a", attributes={"size": 2}, includes=("all",)),),
        mixins=inventory.Mixins(device=(mixin,)),
    )
    pool = resource_slice.Pool(name="n", generation=1, count=1)
    stored = resource_slice.Published(
        name="s", uid="u", version="1", spec=resource_slice.SliceSpec(driver="d", node="n", pool=pool, page=page)
    )
    assert resource_slice.published_devices([stored], "n")["a"].attributes == {"kind": "half", "size": 2}
    assert resource_slice.published_devices([stored], "another") == {}
    edited = dataclasses.replace(stored, spec=dataclasses.replace(stored.spec, page=dataclasses.replace(page, mixins=inventory.Mixins())))
    assert resource_slice.published_devices([edited], "n") == {}, "a slice that somebody edited"


def test_a_cdi_file_of_this_boot_is_no_orphan_while_another_process_has_the_journal(site: Site) -> None:
    with site.open() as elder:
        site.prepare(elder, claim(1, "chip-0-left"))
        [file] = site.cdi.glob("*.json")
        stray = site.cdi / file.name.replace(site.known[0].ref.uid, journal_samples.uid(9))
        stray.write_text(file.read_text().replace(site.known[0].ref.uid, journal_samples.uid(9)))
        with site.open() as younger:
            assert not younger.is_lost
            assert stray.exists()
    with site.open() as alone:
        assert alone.is_lost
        assert stray.exists()
