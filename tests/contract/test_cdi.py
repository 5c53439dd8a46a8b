"""What every CDI directory keeps: the suite runs on the fake and on the real one."""

import pathlib
from collections.abc import Callable

import pytest

from drakit.cdi import directory as real
from drakit.core import edits, errors, names, ports
from fakes import cdi as cdi_fakes
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"
OTHER = edits.Edits(env={"OTHER": "1"})


@pytest.fixture(params=["fake", "real"])
def lose_and_open(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Callable[[], ports.CdiDirectory]:
    """A directory as it is after a reboot: empty."""

    def fresh() -> ports.CdiDirectory:
        for file in tmp_path.glob("*"):
            file.unlink()
        return cdi_fakes.MemoryCdi(DRIVER) if request.param == "fake" else real.Directory(tmp_path, driver=DRIVER)

    return fresh


@pytest.fixture
def cdi(lose_and_open: Callable[[], ports.CdiDirectory]) -> ports.CdiDirectory:
    return lose_and_open()


def name(number: int = 1, *, device: str = "gpu-0", share_id: names.ShareId | None = None, driver: str = DRIVER) -> edits.CdiName:
    return edits.CdiName(driver=driver, claim_uid=samples.uid(number), device=device, share_id=share_id)


def test_a_written_file_stays_intact_until_it_is_removed(cdi: ports.CdiDirectory) -> None:
    assert not cdi_fakes.holds(cdi, name(), samples.rich_edits())
    cdi.write(name(), samples.rich_edits())
    assert cdi_fakes.holds(cdi, name(), samples.rich_edits())
    cdi.remove(samples.uid(1))
    assert not cdi_fakes.holds(cdi, name(), samples.rich_edits())


def test_a_file_with_other_edits_is_not_intact_and_is_replaced(cdi: ports.CdiDirectory) -> None:
    cdi.write(name(), samples.rich_edits())
    assert not cdi_fakes.holds(cdi, name(), OTHER)
    cdi.write(name(), OTHER)
    assert cdi_fakes.holds(cdi, name(), OTHER)


def test_a_claim_may_have_a_file_for_each_device_and_share(cdi: ports.CdiDirectory) -> None:
    grants = [name(), name(device="gpu-1"), name(share_id=samples.share(1)), name(share_id=samples.share(2)), name(2)]
    for one in grants:
        cdi.write(one, OTHER)
    assert all(cdi_fakes.holds(cdi, one, OTHER) for one in grants)
    assert cdi.claims() == {samples.uid(1), samples.uid(2)}
    cdi.remove(samples.uid(1))
    assert [cdi_fakes.holds(cdi, one, OTHER) for one in grants] == [False, False, False, False, True]
    assert cdi.claims() == {samples.uid(2)}


def test_removing_a_file_that_does_not_exist_succeeds(cdi: ports.CdiDirectory) -> None:
    cdi.remove(samples.uid(1))
    cdi.remove(samples.uid(1))
    assert cdi.claims() == frozenset()


def test_a_file_lost_in_a_reboot_is_detected_and_written_again(lose_and_open: Callable[[], ports.CdiDirectory]) -> None:
    lose_and_open().write(name(), OTHER)
    cdi = lose_and_open()
    assert not cdi_fakes.holds(cdi, name(), OTHER)
    cdi.write(name(), OTHER)
    assert cdi_fakes.holds(cdi, name(), OTHER)


def test_empty_edits_are_refused_because_a_runtime_would(cdi: ports.CdiDirectory) -> None:
    with pytest.raises(errors.CdiError, match="empty"):
        cdi.write(name(), edits.Edits())
    assert cdi.claims() == frozenset()


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "12345678-1234-1234-1234-1234567890AB", "12345678-1234-1234-1234-1234567890ab/.."])
def test_a_uid_that_is_not_a_uuid_is_refused_before_any_path_is_built(cdi: ports.CdiDirectory, uid: str) -> None:
    lie = edits.CdiName(driver=DRIVER, claim_uid=names.ClaimUid(uid), device="gpu-0")
    for attempt in (lambda: cdi.write(lie, OTHER), lambda: cdi.of(lie.claim_uid), lambda: cdi.remove(lie.claim_uid)):
        with pytest.raises(errors.ClaimError, match=r"claim\.uid: .* is not a UUID") as caught:
            attempt()
        assert caught.value.fault is errors.ClaimFault.MALFORMED


@pytest.mark.parametrize(
    "lie, message",
    [
        (name(device="../x"), "device: .* is not a DNS label"),
        (name(device=""), "device: .* is not a DNS label"),
        (name(driver="other.example.com"), "driver: .*the owner of these files"),
        (edits.CdiName(driver=DRIVER, claim_uid=samples.uid(1), device="gpu-0", request="a/../b"), "request: "),
    ],
)
def test_a_device_name_of_another_vendor_is_refused(cdi: ports.CdiDirectory, lie: edits.CdiName, message: str) -> None:
    with pytest.raises(errors.CdiError, match=message):
        cdi.write(lie, OTHER)
    assert cdi.claims() == frozenset()


def test_a_share_id_that_is_not_a_uuid_is_refused(cdi: ports.CdiDirectory) -> None:
    with pytest.raises(errors.ClaimError, match="shareID"):
        cdi.write(name(share_id=names.ShareId("../1")), OTHER)


def test_the_files_of_a_claim_are_read_in_order_of_name(cdi: ports.CdiDirectory) -> None:
    for one in (name(share_id=samples.share(1)), name(device="gpu-1"), name(), name(2)):
        cdi.write(one, samples.rich_edits() if one.device == "gpu-1" else OTHER)
    found = cdi.of(samples.uid(1))
    assert [*found] == [name(share_id=samples.share(1)), name(), name(device="gpu-1")], "'-' comes before '.'"
    assert found == {name(): OTHER, name(device="gpu-1"): samples.rich_edits(), name(share_id=samples.share(1)): OTHER}
    assert cdi.of(samples.uid(3)) == {}


def contents(cdi: ports.CdiDirectory) -> dict[edits.CdiName, edits.Edits | None]:
    """What the files of all claims hold, in order of claim and file name."""
    return {name: held for uid in sorted(cdi.claims()) for name, held in cdi.of(uid).items()}


def test_all_files_are_read_in_one_call_with_their_current_content(cdi: ports.CdiDirectory) -> None:
    assert contents(cdi) == {}
    for one in (name(2), name(device="gpu-1"), name()):
        cdi.write(one, OTHER)
    assert [*contents(cdi).items()] == [(name(), OTHER), (name(device="gpu-1"), OTHER), (name(2), OTHER)]
    cdi.write(name(), samples.rich_edits())
    cdi.remove(samples.uid(2))
    assert contents(cdi) == {**cdi.of(samples.uid(1))} == {name(): samples.rich_edits(), name(device="gpu-1"): OTHER}
