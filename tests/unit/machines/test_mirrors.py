"""A mirror of a mock machine's file reads it again when it is another, and only then."""

import os
import pathlib
import time

import pytest

from drakit import machines

LONG_AGO = 1_700_000_000_000_000_000


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state"


def write(file: pathlib.Path, text: str, dated: int) -> None:
    """In place, so that the inode stays."""
    file.write_text(text)
    os.utime(file, ns=(dated, dated))


def test_an_unchanged_file_is_not_read_again(file: pathlib.Path) -> None:
    mirror = machines.Mirror(file)
    write(file, "one", LONG_AGO)
    assert mirror.text() == "one"
    write(file, "two", LONG_AGO)
    assert mirror.text() == "one"


@pytest.mark.parametrize("text, dated", [("two", LONG_AGO + 1), ("three", LONG_AGO)])
def test_a_file_with_another_date_or_size_is_read_again(file: pathlib.Path, text: str, dated: int) -> None:
    mirror = machines.Mirror(file)
    write(file, "one", LONG_AGO)
    assert mirror.text() == "one"
    write(file, text, dated)
    assert mirror.text() == text


def test_a_replaced_file_is_read_again(file: pathlib.Path) -> None:
    mirror = machines.Mirror(file)
    write(file, "one", LONG_AGO)
    assert mirror.text() == "one"
    beside = file.with_name("beside")
    write(beside, "two", LONG_AGO)
    beside.replace(file)
    assert mirror.text() == "two"


def test_a_file_modified_in_the_last_two_seconds_is_not_cached(file: pathlib.Path) -> None:
    mirror, now = machines.Mirror(file), time.time_ns()
    for text in ("one", "two", "six"):
        write(file, text, now)
        assert mirror.text() == text, "writes within a tick of the clock bear one date"


def test_a_deleted_and_recreated_file_is_read_again(file: pathlib.Path) -> None:
    mirror = machines.Mirror(file)
    assert mirror.text() is None
    write(file, "one", LONG_AGO)
    assert mirror.text() == "one"
    file.unlink()
    assert mirror.text() is None
    write(file, "two", LONG_AGO)
    assert mirror.text() == "two"
