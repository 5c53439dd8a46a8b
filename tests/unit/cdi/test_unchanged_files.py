"""A file that did not change is not read again, and one that did always is."""

import os
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from drakit.cdi import directory, spec, unchanged
from drakit.core import edits
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"
NAMES = [edits.CdiName(driver=DRIVER, claim_uid=samples.uid(number), device="gpu-0") for number in range(3)]
FIRST, SECOND = edits.Edits(env={"A": "1"}), edits.Edits(env={"A": "2"})
LONG = 10 * unchanged.TICK_NS


class Desk:
    """A folder that is looked at a long time after now; ``read`` are the names of the files that were read, in order."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.read: list[str] = []
        self.late = LONG
        self.readings: unchanged.Readings[bytes] = unchanged.Readings(lambda: self.newest() + self.late)
        self.descriptor = os.open(path, os.O_RDONLY)

    def newest(self) -> int:
        """When a file last changed in any way."""
        return max((max(one.stat().st_ctime_ns, one.stat().st_mtime_ns) for one in self.path.iterdir()), default=0)

    def look(self) -> dict[str, bytes]:
        return self.readings.of(self.descriptor, lambda name: not name.startswith("."), self.said)

    def said(self, name: str) -> bytes:
        self.read.append(name)
        return (self.path / name).read_bytes()


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"1")
    yield made
    os.close(made.descriptor)


def test_a_file_that_did_not_change_is_read_once(desk: Desk) -> None:
    assert [desk.look() for _ in range(3)] == [{"a": b"1", "b": b"1"}] * 3
    assert desk.read == ["a", "b"]


def replace(file: pathlib.Path) -> None:
    beside = file.with_name(".new")
    beside.write_bytes(b"2")
    beside.replace(file)


def edit_and_set_the_time_back(file: pathlib.Path) -> None:
    before = file.stat()
    file.write_bytes(b"2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [replace, lambda file: file.write_bytes(b"2"), edit_and_set_the_time_back])
def test_a_file_that_changed_is_read_again_and_no_other(desk: Desk, change: Callable[[pathlib.Path], object]) -> None:
    desk.look()
    desk.read.clear()
    before = desk.newest()
    while desk.newest() == before:  # the clock of a file system stands still for some milliseconds
        change(desk.path / "b")
    assert desk.look() == {"a": b"1", "b": b"2"}
    assert desk.read == ["b"]


def test_what_changed_a_moment_ago_is_read_again_because_it_may_change_unseen(desk: Desk) -> None:
    desk.late = unchanged.TICK_NS
    desk.look()
    desk.look()
    assert desk.read.count("b") == 2
    desk.late = unchanged.TICK_NS + 1
    desk.look()
    desk.look()
    assert desk.read.count("b") == 3


def test_a_file_that_is_gone_and_one_that_is_not_wanted_say_nothing(desk: Desk) -> None:
    (desk.path / ".hidden").write_bytes(b"1")
    desk.look()
    (desk.path / "a").unlink()
    assert desk.look() == {"b": b"1"}
    assert desk.read == ["a", "b"]


def test_what_was_kept_can_be_given_back(desk: Desk) -> None:
    desk.look()
    desk.readings.forget()
    assert desk.look() == {"a": b"1", "b": b"1"}
    assert desk.read == ["a", "b"] * 2


def test_a_cdi_directory_looks_into_a_file_that_does_not_change_once(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    cdi = directory.Directory(tmp_path, driver=DRIVER, now=lambda: time.time_ns() + LONG)
    cdi.write(NAMES[0], FIRST)
    (tmp_path / spec.file_name(NAMES[1])).write_bytes(b"{}")
    assert [cdi.of_all() for _ in range(3)] == [{NAMES[0]: FIRST}] * 3
    assert capsys.readouterr().err.count("content does not match its name") == 1
    cdi.forget_readings()
    assert cdi.of_all() == {NAMES[0]: FIRST}
    assert capsys.readouterr().err.count("content does not match its name") == 1


def test_a_cdi_directory_tells_of_every_change_at_once(tmp_path: pathlib.Path) -> None:
    cdi = directory.Directory(tmp_path, driver=DRIVER)
    for name in NAMES:
        cdi.write(name, FIRST)
    assert cdi.of_all() == dict.fromkeys(NAMES, FIRST)
    for number in range(20):
        result = (FIRST, SECOND)[number % 2]
        cdi.write(NAMES[0], result)
        (tmp_path / spec.file_name(NAMES[1])).write_bytes(spec.encode(NAMES[1], result))
        assert cdi.of_all() == {NAMES[0]: result, NAMES[1]: result, NAMES[2]: FIRST}
    cdi.remove(NAMES[0].claim_uid)
    cdi.forget_readings()
    assert cdi.of_all() == {NAMES[1]: SECOND, NAMES[2]: FIRST}
