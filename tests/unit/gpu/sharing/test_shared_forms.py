"""The shared form of a device: what a share takes, how the two forms are kept apart, and that slices stay within the API's limits."""

import functools
import json
import pathlib
from collections.abc import Callable

import pytest

from drakit import machines
from drakit.core import capacity as capacities
from drakit.core import device, errors, inventory, quantity
from drakit.core.slices import feature_gates, paging, resource_slice
from drakit.kube import slice_codec
from drakit_gpu import driver as gpu_driver
from drakit_gpu import port, share_policy
from drakit_gpu.inventory import discovery
from drakit_gpu.mock import mock_gpus

ALL = share_policy.SharePolicy(memory=True, number=8, partitions=True)
MACHINES = tuple(name for name in machines.names() if "gpus" in machines.load(name).families)


def discover(directory: pathlib.Path, machine: str, terms: share_policy.SharePolicy = ALL) -> inventory.Inventory:
    hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=directory))
    choices = discovery.DiscoveryOptions(whole_beside_partitions=hardware.whole_beside_partitions, terms=terms)
    return gpu_driver.GpuDriver(hardware, options=choices).discover()


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], inventory.Inventory]:
    """The devices of a machine, discovered once."""
    return functools.cache(lambda machine: discover(tmp_path_factory.mktemp(machine), machine))


def taken(capacity: capacities.Capacity, asked: str | None = None) -> str:
    return str(capacity.consumed_by(None if asked is None else quantity.Quantity.parse(asked)))


def test_with_a_memory_step_a_share_without_request_gets_all_memory() -> None:
    (memory,) = share_policy.SharePolicy(memory=True).capacity(quantity.Quantity.binary((40 << 30) + 1)).values()
    assert str(memory.value) == "40Gi"
    assert (taken(memory), taken(memory, "1"), taken(memory, "5Gi")) == ("40Gi", "1Mi", "5Gi")


def test_a_number_alone_divides_no_memory() -> None:
    capacities = share_policy.SharePolicy(number=4).capacity(quantity.Quantity.parse("40Gi"))
    assert (taken(capacities["memory"]), taken(capacities["memory"], "5Gi"), taken(capacities["shares"])) == ("0", "5Gi", "1")
    assert capacities["shares"].consumed_by(quantity.Quantity.of(5)) is None


def test_with_number_and_memory_every_share_gets_the_same() -> None:
    capacities = share_policy.SharePolicy(memory=True, number=3).capacity(quantity.Quantity.parse("40Gi"))
    assert taken(capacities["memory"]) == "13653Mi"


@pytest.mark.parametrize("number,partitions,key", [(-1, False, "gpu.shares"), (1001, False, "gpu.shares"), (0, True, "gpu.share_mig")])
def test_invalid_sharing_settings_are_refused(number: int, key: str, *, partitions: bool) -> None:
    with pytest.raises(errors.SettingsError, match=key):
        share_policy.SharePolicy(number=number, partitions=partitions)


@pytest.mark.parametrize("machine", MACHINES)
def test_both_forms_draw_the_same_counters_and_one_lock(offer: Callable[[str], inventory.Inventory], machine: str) -> None:
    devices = offer(machine).flat().by_name()
    shared = {name for name in devices if name.endswith("-shared")}
    assert {f"{name}-shared" for name in devices if name not in shared} == shared
    for name in shared:
        exclusive = devices[name.removesuffix("-shared")]
        assert devices[name].consumes == exclusive.consumes != ()
        assert devices[name].lock_names == exclusive.lock_names
        assert devices[name].allow_multiple_allocations
        assert set(devices[name].capacity) == {"memory", "shares"}
        assert devices[name].attributes["type"] == f"shared-{exclusive.attributes['type']}"
        differ = {key for key, value in exclusive.attributes.items() if devices[name].attributes.get(key) != value}
        assert differ == {"type"}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("form", [resource_slice.Form.FLAT, resource_slice.Form.MIXINS])
def test_every_machine_fits_the_apis_limits_with_all_that_can_be_offered(
    offer: Callable[[str], inventory.Inventory], machine: str, form: resource_slice.Form
) -> None:
    offered = offer(machine)
    for offered_device in offered.flat().devices:
        assert len(offered_device.attributes) + len(offered_device.capacity) <= device.ATTRIBUTES_AND_CAPACITY_MAX
        assert len(offered_device.attributes) <= device.ATTRIBUTE_VALUES_MAX
    assert paging.paginate(offered, form=form, layout=resource_slice.Layout.APART)


def test_where_counters_are_dropped_the_exclusive_whole_is_left(tmp_path: pathlib.Path) -> None:
    left = feature_gates.without_counters(discover(tmp_path, "mixed-16gpu"))
    assert "gpu-15" in {device.name for device in left.devices}
    assert not any(device.name.endswith("-shared") for device in left.devices)


def test_an_admins_mig_device_has_two_forms_kept_apart_by_a_set_of_its_own(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path))
    gpu = hardware.gpus()[0].uuid
    made = hardware.create_gpu_instance(gpu, 14, port.Placement(start=0, size=2))
    hardware.create_compute_instance(gpu, made.id, 1)
    devices = discover(tmp_path, "dgx-a100-40gb-2gpu").flat().by_name()
    name = "gpu-0-mig-2g10gb-14-0"
    forms = devices[name], devices[f"{name}-shared"]
    assert {form.consumes[0].counter_set for form in forms} == {f"{name}-counter-set"}
    assert forms[0].attributes["uuid"] == forms[1].attributes["uuid"]


def test_without_sharing_settings_no_device_has_a_second_form(tmp_path: pathlib.Path) -> None:
    assert not any(device.allow_multiple_allocations for device in discover(tmp_path, "mixed-16gpu", share_policy.NOT_SHARED).devices)


@pytest.mark.parametrize(
    "machine",
    [
        "dgx-a100-40gb-2gpu",
        "server-a30",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("dgx-h100", "server-rtx-pro-6000", "mixed-16gpu")),
    ],
)
def test_publications_of_one_driver_and_of_the_next_are_the_same_to_the_byte(tmp_path: pathlib.Path, machine: str) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=tmp_path))
    seen = set()
    for _ in range(5):
        author = gpu_driver.GpuDriver(hardware, options=discovery.DiscoveryOptions(terms=ALL))
        for _ in range(2):
            pages = paging.paginate(author.discover().flat(), form=resource_slice.Form.FLAT, layout=resource_slice.Layout.APART)
            seen.add(json.dumps([slice_codec.encode(spec(page, len(pages))) for page in pages]))
    assert len(seen) == 1


def spec(page: resource_slice.Page, count: int) -> resource_slice.SliceSpec:
    pool = resource_slice.Pool(name="node-a", generation=1, count=count)
    return resource_slice.SliceSpec(driver=gpu_driver.NAME, node="node-a", pool=pool, page=page)
