"""A driver that starts with an unfinished claim whose device another process has locked, as a driver that hangs in a hardware call."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import pytest

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import names
from drakit.node import engine, local_node, node, timing
from fakes import author, channels, claim_source, crash_node, slice_store, waits

POOL, LOCKED, FREE = "node-1", "chip-0", "chip-1"
UNFINISHED, OTHER = (names.ClaimUid(f"00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))
CALL_SECONDS = 4.0
HOLDER = """
import pathlib, sys
from drakit.journal import locks
with locks.FileLocks(pathlib.Path(sys.argv[1])).hold([sys.argv[2]], lambda: True):
    print("held", flush=True)
    sys.stdin.read()
"""


class Site:
    """A driver's folders with a claim that a process left half unprepared, and a new process that may start on them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folders = local_node.Folders(home=folder / "d", cdi=folder / "c")
        self.hardware, self.claims = author.Hardware(), claim_source.FakeClaimSource()
        self.spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name,
            build=lambda _: author.FakeDriver(self.hardware),
            identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1"),
        )
        for uid, device in ((UNFINISHED, LOCKED), (OTHER, FREE)):
            result = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=POOL, device=device)
            ref = claims.ClaimRef(uid=uid, namespace="default", name=f"claim-{device}")
            self.claims.put(claims.Claim(ref=ref, results=(result,)))
        with local_node.LocalNode.open(self.spec, self.folders, self.claims) as local:
            local.offered.refresh()
            ref = claims.ClaimRef(uid=UNFINISHED, namespace="default", name=f"claim-{LOCKED}")
            assert local.engine.prepare([ref], crash_node.Waiting())[UNFINISHED].error == ""
            local.journal.begin_unprepare(UNFINISHED)
        self.registry = folder / "r"
        self.registry.mkdir()
        self.node: node.Node | None = None

    def start(self) -> node.Node:
        """Open and start the node, as a new process does."""
        dependencies = node.NodeDependencies(
            claim_source=self.claims,
            slice_store=slice_store.FakeSliceStore(),
            registry=self.registry,
            clock=timing.SystemClock(),
            rescan_seconds=0.05,
        )
        self.node = node.Node(self.spec, self.folders, dependencies, node_name=POOL)
        self.node.start()
        return self.node

    def prepare(self, uid: names.ClaimUid, device: str) -> str:
        """Prepare a claim as the kubelet does; return its error."""
        request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=uid, name=f"claim-{device}")])
        with channels.insecure(f"unix:{self.folders.home / 'dra.sock'}") as channel:
            return str(services.DRAPluginStub(channel).NodePrepareResources(request, timeout=CALL_SECONDS).claims[uid].error)


@contextlib.contextmanager
def held(home: pathlib.Path, device: str) -> Iterator[subprocess.Popen[str]]:
    """A second process that holds the lock of a device until its standard input ends."""
    command = [sys.executable, "-c", HOLDER, os.fspath(home), device]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        made = Site(pathlib.Path(folder))
        yield made
        assert made.node is not None
        made.node.stop()


def test_a_start_waits_for_the_lock_and_recovers_the_claim_once_it_is_released(site: Site) -> None:
    with held(site.folders.home, LOCKED) as holder:
        starting = threading.Thread(target=site.start)
        starting.start()
        starting.join(0.5)
        assert starting.is_alive()
        holder.kill()
        starting.join(waits.SECONDS)
    assert site.node is not None
    assert site.node.unrecovered() == 0
    assert site.hardware.made == {}


@pytest.mark.long
def test_a_start_serves_without_the_locked_claim_and_names_the_lock(site: Site) -> None:
    with held(site.folders.home, LOCKED):
        started = site.start()
        assert started.unrecovered() == 1
        assert site.prepare(OTHER, FREE) == ""
        assert f"{LOCKED} is locked by another process, which did not release it in time" in site.prepare(UNFINISHED, LOCKED)
    assert waits.eventually(lambda: started.unrecovered() == 0)
    assert site.prepare(UNFINISHED, LOCKED) == ""
