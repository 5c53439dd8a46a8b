"""The claims of a GPU whose partitions use most of it are restored after the journal was lost, although the GPU's counters exclude them by then."""

import pathlib

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import inventory, lifecycle
from drakit.core.slices import resource_slice
from drakit.node import engine, local_node, restorer
from drakit_gpu import driver as gpu_driver
from drakit_gpu.mig import markers
from drakit_gpu.mock import mock_gpus
from fakes import claim_source, claim_statuses, crash_node, journal_samples


def claim(number: int, device: str) -> claims.Claim:
    result = claims.AllocationResult(request="r", driver=gpu_driver.NAME, pool=crash_node.POOL, device=device)
    return claims.Claim(ref=journal_samples.ref(number), results=(result,), is_reserved=True)


class Site:
    """A node that outlives its driver."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=folder / "machine", owner="node-a"))
        self.home, self.cdi, self._made = folder / "home", folder / "cdi", folder / "made"
        self.source = claim_source.FakeClaimSource()

    def open(self) -> local_node.LocalNode:
        resources = gpu_driver.HostResources(made=markers.MarkerStore(folder=self._made))
        spec = local_node.DriverSpec(
            driver_name=gpu_driver.NAME,
            build=lambda intents: gpu_driver.GpuDriver(self.hardware, intents=intents, resources=resources),
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=self.hardware.boot_id()),
        )
        return local_node.LocalNode.open(spec, local_node.Folders(home=self.home, cdi=self.cdi), self.source, checks_new=True)


def slices(offered: inventory.Inventory) -> list[resource_slice.Published]:
    pool = resource_slice.Pool(name=crash_node.POOL, generation=1, count=1)
    page = resource_slice.Page(devices=offered.devices, mixins=offered.mixins)
    spec = resource_slice.SliceSpec(driver=gpu_driver.NAME, node=crash_node.POOL, pool=pool, page=page)
    return [resource_slice.Published(name="s", uid="u", version="1", spec=spec)]


@pytest.mark.parametrize("parts", [("gpu-0-mig-4g20gb-5-0",), ("gpu-0-mig-3g20gb-9-0", "gpu-0-mig-3g20gb-9-4")], ids=["4g", "3g and 3g"])
@pytest.mark.parametrize("is_cdi_lost", [False, True], ids=["files", "no files"])
def test_claims_that_fill_a_gpu_are_restored_and_released(tmp_path: pathlib.Path, parts: tuple[str, ...], *, is_cdi_lost: bool) -> None:
    site, wanted = Site(tmp_path), [claim(number, device) for number, device in enumerate(parts)]
    listing = claim_statuses.FakeClaimList(*wanted)
    with site.open() as local:
        assert local.restorer.restore(claim_statuses.FakeClaimList()) == {}
        local.offered.refresh()
        published = resource_slice.published_devices(slices(local.offered.current.authored), crash_node.POOL)
        for one in wanted:
            site.source.put(one)
            assert local.engine.prepare([one.ref], crash_node.Waiting())[one.ref.uid].error == ""
    for file in (*site.home.glob("journal.db*"), *(site.cdi.glob("*.json") if is_cdi_lost else ())):
        file.unlink()
    with site.open() as local:
        tracked = frozenset(one.ref.uid for one in wanted)
        assert local.restorer.restore(listing, state=restorer.NodeState(tracked=tracked, published=published)) == {}
        assert {entry.state for entry in local.journal.entries()} == {lifecycle.State.PREPARED}
        for one in wanted:
            site.source.remove(one.ref)
            assert local.engine.unprepare([one.ref], crash_node.Waiting()) == {one.ref.uid: ""}
    assert not [instance for gpu in site.hardware.gpus() for instance in site.hardware.gpu_instances(gpu.uuid)]
