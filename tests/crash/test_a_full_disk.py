"""Real file systems that are full or read-only: errors say what to do, nothing is left half done, and all goes on when there is room again."""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import errors, lifecycle
from drakit.journal import files
from drakit.node import engine, local_node
from fakes import author, crash_node

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root and mount, to mount small file systems"),
]


@pytest.fixture
def mounted(tmp_path: pathlib.Path) -> Iterator[Callable[[str], pathlib.Path]]:
    """Makes a file system of 256 KiB in memory; gone at the end."""
    with contextlib.ExitStack() as ending:

        def mount(name: str) -> pathlib.Path:
            path = tmp_path / name
            path.mkdir()
            made = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "drakit-test", path], capture_output=True, check=False
            )
            if made.returncode:
                pytest.skip(f"mount is not allowed here: {made.stderr.decode().strip()}")
            ending.callback(lambda: subprocess.run(["umount", path], check=True))
            return path

        yield mount


@contextlib.contextmanager
def opened(node: crash_node.CrashNode, home: pathlib.Path, cdi: pathlib.Path) -> Iterator[local_node.LocalNode]:
    spec = local_node.DriverSpec(
        driver_name=author.FakeDriver.name,
        build=lambda _: author.FakeDriver(node.hardware),
        identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id="boot-1"),
    )
    with local_node.LocalNode.open(spec, local_node.Folders(home=home, cdi=cdi), node.claims) as local:
        yield local


def fill(folder: pathlib.Path) -> pathlib.Path:
    """Leave no byte."""
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        while file.write(b"x"):
            pass
    return path


def prepare(node: crash_node.CrashNode, local: local_node.LocalNode, ref: claims.ClaimRef) -> str:
    return local.engine.prepare([ref], node.caller)[ref.uid].error


def test_a_full_disk_fails_one_claim_and_loses_none(mounted: Callable[[str], pathlib.Path], tmp_path: pathlib.Path) -> None:
    node, home = crash_node.CrashNode(), mounted("home")
    first, second = node.claim("chip-0"), node.claim("chip-1")
    with opened(node, home, tmp_path / "cdi") as local:
        assert prepare(node, local, first) == ""
        filler = fill(home)
        assert "free space" in prepare(node, local, second)
        filler.unlink()
        assert prepare(node, local, second) == ""
        assert {entry.claim: entry.state for entry in local.journal.entries()} == dict.fromkeys((first, second), lifecycle.State.PREPARED)
        for ref in (first, second):
            assert local.engine.unprepare([ref], node.caller)[ref.uid] == ""
        assert (local.journal.entries(), node.hardware.made, local.cdi.claims()) == ((), {}, frozenset())


def test_a_full_cdi_directory_refuses_a_claim_and_leaves_nothing(mounted: Callable[[str], pathlib.Path], tmp_path: pathlib.Path) -> None:
    node, cdi = crash_node.CrashNode(), mounted("cdi")
    ref = node.claim("chip-0")
    with opened(node, tmp_path / "home", cdi) as local:
        filler = fill(cdi)
        assert "free space" in prepare(node, local, ref)
        assert (local.journal.entries(), node.hardware.made, list(cdi.glob("[!.]*"))) == ((), {}, [filler])
        filler.unlink()
        assert prepare(node, local, ref) == ""


def test_a_read_only_cdi_directory_refuses_claims_until_it_can_be_written(
    mounted: Callable[[str], pathlib.Path], tmp_path: pathlib.Path
) -> None:
    node, cdi = crash_node.CrashNode(), mounted("cdi")
    first, second = node.claim("chip-0"), node.claim("chip-1")
    with opened(node, tmp_path / "home", cdi) as local:
        assert prepare(node, local, first) == ""
        subprocess.run(["mount", "-o", "remount,ro", cdi], check=True)
        assert "mount it read-write" in prepare(node, local, second)
        assert "mount it read-write" in local.engine.unprepare([first], node.caller)[first.uid]
        subprocess.run(["mount", "-o", "remount,rw", cdi], check=True)
        for ref in (first, second):
            assert local.engine.unprepare([ref], node.caller)[ref.uid] == ""
        assert (local.journal.entries(), node.hardware.made, list(cdi.glob("*.json"))) == ((), {}, [])


def test_an_unreadable_journal_stays_until_there_is_room_for_its_successor(
    mounted: Callable[[str], pathlib.Path], tmp_path: pathlib.Path
) -> None:
    node, home = crash_node.CrashNode(), mounted("home")
    ref = node.claim("chip-0")
    with opened(node, home, tmp_path / "cdi") as local:
        assert prepare(node, local, ref) == ""
    path = home / files.DATABASE
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE grants SET record = 'mended'")
    content = path.read_bytes()
    filler = fill(home)
    with pytest.raises(errors.JournalError), opened(node, home, tmp_path / "cdi"):
        pass
    assert path.read_bytes() == content
    filler.unlink()
    with opened(node, home, tmp_path / "cdi") as local:
        assert local.journal.quarantine is not None
        assert local.journal.quarantine.path.read_bytes() == content
        assert local.journal.quarantine.lost == (ref.uid,)
