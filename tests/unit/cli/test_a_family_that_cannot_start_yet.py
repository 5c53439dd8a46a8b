"""A family whose socket's path another program uses is retried, and nothing that happens to it ends the other families."""

import pathlib

import pytest

from drakit.cli import family_starts
from drakit.core import errors
from drakit.serving import unix_sockets


class Family:
    """A family whose starts are counted; ``error`` is raised by a start, after the check of its path."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.name, self.socket = name, folder / f"{name}.sock"
        self.attempts = 0
        self.error: Exception | None = None

    def start(self) -> None:
        self.attempts += 1
        unix_sockets.refuse_occupied(self.socket)
        if self.error is not None:
            raise self.error


def starts_of(*families: Family) -> family_starts.FamilyStarts:
    return family_starts.FamilyStarts(
        [family_starts.FamilyStart(driver=family.name, socket=family.socket, start=family.start) for family in families]
    )


@pytest.fixture
def gpu(tmp_path: pathlib.Path) -> Family:
    """A family with a foreign file at its path."""
    made = Family(tmp_path, "gpu")
    made.socket.write_text("notes")
    return made


@pytest.fixture
def nic(tmp_path: pathlib.Path) -> Family:
    return Family(tmp_path, "nic")


def test_a_retry_starts_a_family_only_once_its_path_is_free(gpu: Family, nic: Family, capfd: pytest.CaptureFixture[str]) -> None:
    starts = starts_of(gpu, nic)
    starts.start()
    for _ in range(3):
        starts.retry()
    assert (gpu.attempts, nic.attempts, list(starts.waiting)) == (1, 1, ["gpu"])
    assert f"{gpu.socket} exists and is not a socket" in starts.reason()
    assert capfd.readouterr().err.count("family not started: retrying") == 1
    gpu.socket.unlink()
    starts.retry()
    assert (gpu.attempts, nic.attempts, starts.reason()) == (2, 1, "")
    starts.retry()
    assert gpu.attempts == 2


@pytest.mark.parametrize("error", [errors.JournalError("disk full"), KeyError("bug")])
def test_an_error_of_a_retry_is_logged_once_and_retried(
    gpu: Family, nic: Family, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    starts = starts_of(gpu, nic)
    starts.start()
    gpu.socket.unlink()
    gpu.error = error
    for _ in range(3):
        starts.retry()
    assert (gpu.attempts, starts.reason()) == (4, str(error))
    assert capfd.readouterr().err.count("family not started: retrying") == 2, "once for each reason"
    gpu.error = None
    starts.retry()
    assert starts.reason() == ""


def test_where_no_family_can_start_the_process_ends(gpu: Family, nic: Family) -> None:
    nic.socket.mkdir()
    with pytest.raises(unix_sockets.OccupiedError, match=r"nic\.sock exists and is not a socket"):
        starts_of(gpu, nic).start()


def test_any_other_error_of_the_first_start_ends_the_process(gpu: Family, nic: Family) -> None:
    nic.error = errors.HardwareError("nic start()", "no")
    with pytest.raises(errors.HardwareError):
        starts_of(gpu, nic).start()
