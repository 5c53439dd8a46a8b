"""Many GPUs, many claims, and an engine on a real journal, real locks and a real CDI directory.

By default there are eight GPUs and a hundred claims. Each has one of two shares of a 1g partition, so every GPU makes seven and serves twelve or
thirteen claims.
"""

import contextlib
import dataclasses
import pathlib
import uuid
from collections.abc import Callable, Iterator, Sequence

from drakit import machines
from drakit.cdi import directory as cdi
from drakit.core import claim as core_claims
from drakit.core import driver as drivers
from drakit.core import names, quantity
from drakit.journal import journal, locks
from drakit.node import engine, inventory_cache
from drakit_gpu import driver as gpu_driver
from drakit_gpu import port, share_policy
from drakit_gpu.inventory import discovery
from drakit_gpu.mock import mock_gpus
from fakes import claim_source, crash_node

GPUS, CLAIMS, PARTITIONS = 8, 100, 7
STEPS = ("set_mig_mode", "create_gpu_instance", "create_compute_instance", "destroy_compute_instance", "destroy_gpu_instance")
_BOARD = '{{model: h100-sxm5-80gb, pciBusID: "0000:{0:02x}:00.0", migMode: true}}'
_FILE = """
name: node
description: GPUs whose steps take time
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  latencyMs: {{{latencies}}}
  boards: [{boards}]
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimedNode:
    """The node and its claims."""

    engine: engine.Engine
    hardware: mock_gpus.MockGpus
    claims: tuple[core_claims.ClaimRef, ...]
    source: claim_source.FakeClaimSource
    journal: journal.Journal

    def prepare(self, claim: core_claims.ClaimRef) -> core_claims.Outcome:
        """Return what the kubelet is answered; raises AssertionError for an error."""
        reported: core_claims.Outcome = self.engine.prepare([claim], crash_node.Waiting())[claim.uid]
        assert not reported.error, reported.error
        return reported

    def unprepare(self, claim: core_claims.ClaimRef) -> None:
        """Raises AssertionError for an error."""
        error = self.engine.unprepare([claim], crash_node.Waiting())[claim.uid]
        assert not error, error

    def instances(self) -> dict[int, int]:
        """How many there are on each GPU."""
        return {gpu.minor: len(self.hardware.gpu_instances(gpu.uuid)) for gpu in self.hardware.gpus()}


@contextlib.contextmanager
def claimed_node(
    folder: pathlib.Path,
    *,
    milliseconds: int,
    around: Callable[[port.GpuPort], port.GpuPort] = lambda gpus: gpus,
    gpus: int = GPUS,
    wanted: Sequence[core_claims.Claim] | None = None,
    family: type[gpu_driver.GpuDriver] = gpu_driver.GpuDriver,
) -> Iterator[ClaimedNode]:
    """A node whose hardware steps take so long; ``around`` may put something between driver and hardware."""
    file = folder / "node.yaml"
    boards = ", ".join(_BOARD.format(number + 7) for number in range(gpus))
    latencies = ", ".join(f"{step}: {milliseconds}" for step in STEPS)
    file.write_text(_FILE.format(boards=boards, latencies=latencies if milliseconds else ""))
    hardware = mock_gpus.MockGpus(machines.Choice(name=str(file), directory=folder / "machine", owner=crash_node.POOL))
    wanted = [_share(number) for number in range(CLAIMS)] if wanted is None else wanted
    source = claim_source.FakeClaimSource(*wanted)
    with journal.Journal.open(folder / "data", driver=gpu_driver.NAME, boot_id=hardware.boot_id()) as memory:
        driver = family(
            around(hardware),
            intents=memory.intents,
            options=discovery.DiscoveryOptions(terms=share_policy.SharePolicy(number=2, partitions=True)),
        )
        offered = inventory_cache.InventoryCache(driver)
        offered.refresh()
        served = engine.Engine(
            driver,
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=hardware.boot_id()),
            offered=offered,
            claim_source=source,
            journal=memory,
            cdi=cdi.Directory(folder / "cdi", driver=gpu_driver.NAME),
            device_locks=locks.FileLocks(folder / "data"),
            locks_of_claims=locks.FileLocks(folder / "data", "claims", disposable=True),
        )
        drivers.open_driver(driver, served.resolver.planned)
        yield ClaimedNode(engine=served, hardware=hardware, claims=tuple(claim.ref for claim in wanted), source=source, journal=memory)


def partition_claim(number: int, gpus: int) -> core_claims.Claim:
    """A claim on a 1g partition; claims with numbers below seven times ``gpus`` are on different ones."""
    device = f"gpu-{number % gpus}-mig-1g10gb-19-{number // gpus % PARTITIONS}"
    result = core_claims.AllocationResult(request="gpu", driver=gpu_driver.NAME, pool=crash_node.POOL, device=device)
    ref = core_claims.ClaimRef(uid=names.ClaimUid(str(uuid.UUID(int=number + 1))), namespace="default", name=f"claim-{number}")
    return core_claims.Claim(ref=ref, results=(result,))


def _share(number: int) -> core_claims.Claim:
    whole = partition_claim(number, GPUS)
    result = dataclasses.replace(
        whole.results[0],
        device=f"{whole.results[0].device}-shared",
        share_id=names.ShareId(str(uuid.UUID(int=number + 1001))),
        consumed_capacity={"shares": quantity.ONE},
    )
    return dataclasses.replace(whole, results=(result,))
