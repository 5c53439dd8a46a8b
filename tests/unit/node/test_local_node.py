"""A station that cannot be opened leaves nothing open."""

import contextlib
import os
import pathlib

import pytest

from drakit.core import driver
from drakit.node import engine, local_node
from fakes import author, claim_source, crash_node


class Misnamed(author.FakeDriver):
    """Its configuration is no dataclass, which is noticed once the journal is open."""

    config_types = (int,)


def refuse() -> driver.Driver[object]:
    raise OSError("no such hardware")


def open_files(under: pathlib.Path) -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib would open the folder while it is listed
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115 - a name in /proc, no path of ours
    return [path for path in found if path.startswith(str(under))]


@pytest.mark.parametrize("build, error", [(refuse, OSError), (lambda: Misnamed(author.Hardware()), TypeError)], ids=["hardware", "author"])
def test_a_failed_start_closes_the_journal(build: object, error: type[Exception], tmp_path: pathlib.Path) -> None:
    assert callable(build)
    spec = local_node.DriverSpec(
        driver_name=author.FakeDriver.name, build=lambda _: build(), identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id="boot-1")
    )
    with pytest.raises(error):
        local_node.LocalNode.open(spec, local_node.Folders(home=tmp_path / "home", cdi=tmp_path / "cdi"), claim_source.FakeClaimSource())
    assert (tmp_path / "home" / "journal.db").exists()
    assert open_files(tmp_path) == []
