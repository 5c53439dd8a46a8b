"""What a node with GPUs offers: the mixin form means exactly the flat one, is much smaller, and never changes by itself."""

import json
import pathlib

import pytest

from drakit import machines
from drakit.core import capacity as capacities
from drakit.core import device, inventory, quantity
from drakit_gpu import driver as gpu_driver
from drakit_gpu import port
from drakit_gpu.inventory import discovery, gpu_devices
from drakit_gpu.mig import partitioning
from drakit_gpu.mock import mock_gpus
from fakes import gpu_node

MIB = 1 << 20
# Machines whose GPUs are all offered whole and as partitions counted by engines.
FULL = ["dgx-a100-40gb", "dgx-a100-40gb-2gpu", "dgx-h100", "server-h100-pcie", "hgx-b200", "hgx-h200"]


def discover(directory: pathlib.Path, machine: str) -> inventory.Inventory:
    return author_of(mock_gpus.MockGpus(machines.Choice(name=machine, directory=directory))).discover()


def author_of(hardware: mock_gpus.MockGpus) -> gpu_driver.GpuDriver:
    return gpu_driver.GpuDriver(hardware, options=discovery.DiscoveryOptions(whole_beside_partitions=hardware.whole_beside_partitions))


def dump(offered: inventory.Inventory) -> str:
    """An inventory as JSON close to a slice's, for sizes; nothing is written that is empty."""
    document: dict[str, list[dict[str, object]]] = {
        "devices": [
            {
                "name": device.name,
                "includes": list(device.includes),
                "attributes": {name: str(value) for name, value in device.attributes.items()},
                "capacity": {name: str(value.value) for name, value in device.capacity.items()},
                "consumes": [
                    {"set": part.counter_set, "includes": list(part.includes), "counters": amounts(part.counters)}
                    for part in device.consumes
                ],
            }
            for device in offered.devices
        ],
        "counterSets": [
            {"name": counter_set.name, "includes": list(counter_set.includes), "counters": amounts(counter_set.counters)}
            for counter_set in offered.counter_sets
        ],
        "deviceMixins": [
            {
                "name": mixin.name,
                "attributes": {name: str(value) for name, value in mixin.attributes.items()},
                "capacity": {name: str(value.value) for name, value in mixin.capacity.items()},
            }
            for mixin in offered.mixins.device
        ],
        "counterSetMixins": [{"name": mixin.name, "counters": amounts(mixin.counters)} for mixin in offered.mixins.counter_set],
        "consumptionMixins": [{"name": mixin.name, "counters": amounts(mixin.counters)} for mixin in offered.mixins.consumption],
    }
    parts = [f'"{key}": [\n' + ",\n".join(json.dumps(prune(row)) for row in part) + "\n]" for key, part in document.items() if part]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def amounts(held: partitioning.Counters) -> dict[str, str]:
    return {name: str(amount) for name, amount in held.items()}


def prune(value: object) -> object:
    if isinstance(value, dict):
        return {key: prune(member) for key, member in value.items() if member not in ([], {})}
    return [prune(member) for member in value] if isinstance(value, list) else value


def directly_flat(hardware: port.GpuPort) -> inventory.Inventory:
    """The same inventory written out by hand, without mixins."""
    versions = hardware.versions()
    system: dict[str, device.AttributeValue] = {
        "driverVersion": version(versions.driver),
        "cudaDriverVersion": version(versions.cuda),
        **without_unknown(ccMode=versions.cc_mode),
    }
    devices: list[device.Device] = []
    sets: list[device.CounterSet] = []
    for gpu in hardware.gpus():
        assert gpu.compute_capability is not None
        common: dict[str, device.AttributeValue] = {
            **system,
            "productName": gpu.product_name,
            "brand": str(gpu.brand),
            "architecture": str(gpu.architecture),
            "cudaComputeCapability": version("{}.{}".format(*gpu.compute_capability)),
            "resource.kubernetes.io/pciBusID": gpu.pci_bus_id,
            "resource.kubernetes.io/pcieRoot": str(gpu.pcie_root),
            "resource.kubernetes.io/numaNode": gpu.numa_nodes[0],
            **without_unknown(serial=gpu.serial, gpuModuleID=gpu.module_id, eccEnabled=gpu.ecc, addressingMode=gpu.addressing_mode),
        }
        partitions = partitioning.partitions(
            (profile, hardware.possible_placements(gpu.uuid, profile.id)) for profile in hardware.gpu_instance_profiles(gpu.uuid)
        )
        name = f"gpu-{gpu.minor}-counter-set"
        whole = next(partition.profile for partition in partitions if partition.placement.size == 8)
        has = {**engines(whole), **{f"memory-slice-{index}": quantity.ONE for index in range(8)}}
        sets.append(device.CounterSet(name=name, counters=has))
        for partition in partitions:
            start, profile = partition.placement.start, partition.profile
            label = profile.name.replace(".", "").replace("+", "-")
            own: dict[str, device.AttributeValue] = {"type": "mig", "parentUUID": gpu.uuid, "profile": profile.name}
            own |= {"profileID": profile.id, "placementStart": start, "placementSize": partition.placement.size}
            taken = {**engines(profile), **{f"memory-slice-{start + index}": quantity.ONE for index in range(partition.placement.size)}}
            devices.append(flat_device(f"gpu-{gpu.minor}-mig-{label}-{profile.id}-{start}", {**common, **own}, profile, name, taken))
        joined = [other for other in hardware.gpus() if other is not gpu and (gpu.nvlinks.switched or other.pci_bus_id in gpu.nvlinks.gpus)]
        linked = without_unknown(
            nvlinkPeers=",".join(str(other.minor) for other in joined) or None,
            nvlinkPeerMinors=tuple(other.minor for other in joined) or None,
            nvlinkClique=min([gpu, *joined], key=lambda partition: partition.minor).uuid if joined else None,
            fabricState="completed" if gpu.fabric else None,
            migMode="on-demand" if gpu.compute_capability >= (9, 0) else "on",
        )
        devices.append(flat_device(f"gpu-{gpu.minor}", {**common, **linked, "type": "gpu", "uuid": gpu.uuid}, whole, name, has))
    return inventory.Inventory(devices=tuple(devices), counter_sets=tuple(sets))


def flat_device(
    name: str, result: dict[str, device.AttributeValue], size: port.GpuInstanceProfile, counter_set: str, taken: partitioning.Counters
) -> device.Device:
    capacity = {
        "multiprocessors": capacities.Capacity.of(size.multiprocessors),
        "copyEngines": capacities.Capacity.of(size.copy_engines),
        "decoders": capacities.Capacity.of(size.decoders),
        "encoders": capacities.Capacity.of(size.encoders),
        "jpegEngines": capacities.Capacity.of(size.jpeg_engines),
        "ofaEngines": capacities.Capacity.of(size.ofa_engines),
        "memory": capacities.Capacity.of(quantity.Quantity.binary(size.memory_mib * MIB)),
    }
    consumes = (device.CounterConsumption(counter_set=counter_set, counters=taken),)
    return device.Device(name=name, attributes=result, capacity=capacity, consumes=consumes)


def engines(size: port.GpuInstanceProfile) -> dict[str, quantity.Quantity]:
    return {
        "multiprocessors": quantity.Quantity.of(size.multiprocessors),
        "copy-engines": quantity.Quantity.of(size.copy_engines),
        "decoders": quantity.Quantity.of(size.decoders),
        "encoders": quantity.Quantity.of(size.encoders),
        "jpeg-engines": quantity.Quantity.of(size.jpeg_engines),
        "ofa-engines": quantity.Quantity.of(size.ofa_engines),
        "memory": quantity.Quantity.binary(size.memory_mib * MIB),
    }


def without_unknown(**values: device.AttributeValue | None) -> dict[str, device.AttributeValue]:
    return {name: value for name, value in values.items() if value is not None}


def version(text: str) -> device.Version:
    parsed = device.Version.lenient(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize("machine", FULL)
def test_the_mixin_form_flattens_to_the_inventory_written_out_by_hand(tmp_path: pathlib.Path, machine: str) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=tmp_path))
    assert author_of(hardware).discover().flat() == directly_flat(hardware)


@pytest.mark.parametrize("machine", FULL)
def test_the_mixin_form_is_less_than_half_the_size(tmp_path: pathlib.Path, machine: str) -> None:
    offered = discover(tmp_path, machine)
    assert len(dump(offered)) * 2 < len(dump(offered.flat()))


def test_an_a100_is_offered_as_25_partitions_and_whole_last(tmp_path: pathlib.Path) -> None:
    names = [device.name for device in discover(tmp_path, "dgx-a100-40gb-2gpu").devices]
    assert len(names) == 52
    assert names[25] == "gpu-0"
    assert names[51] == "gpu-1"
    assert all(name.startswith("gpu-0-mig-") for name in names[:25])


def test_memory_is_written_as_nvidia_and_the_kep_write_it(tmp_path: pathlib.Path) -> None:
    devices = discover(tmp_path, "dgx-a100-40gb-2gpu").flat().by_name()
    assert str(devices["gpu-0"].capacity["memory"].value) == "40192Mi"
    assert str(devices["gpu-0-mig-1g5gb-19-0"].capacity["memory"].value) == "4864Mi"


def test_partitions_of_one_gpu_share_its_lock(tmp_path: pathlib.Path) -> None:
    devices = discover(tmp_path, "dgx-a100-40gb-2gpu").flat().devices
    assert {device.lock_names for device in devices if device.name.startswith("gpu-1")} == {("gpu-1-counter-set",)}


def test_a_gpu_with_mig_off_is_offered_whole_and_without_counters(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path))
    hardware.set_mig_mode(hardware.gpus()[0].uuid, enabled=False)
    offered = author_of(hardware).discover().flat()
    devices = offered.by_name()
    assert [counter_set.name for counter_set in offered.counter_sets] == ["gpu-1-counter-set"]
    assert [name for name in devices if name.startswith("gpu-0")] == ["gpu-0"]
    assert not devices["gpu-0"].consumes
    assert {name: str(amount.value) for name, amount in devices["gpu-0"].capacity.items()} == {"memory": "40Gi"}


def test_two_products_of_one_name_get_mixins_of_their_own() -> None:
    """A product name too long for a label, and a GPU of the same name with other memory."""
    gpus = [
        port.Gpu(
            uuid=port.GpuUuid(f"GPU-{minor}"),
            minor=minor,
            product_name="NVIDIA (R) " + "x" * 90,
            pci_bus_id=f"0000:0{minor}:00.0",
            memory=memory,
        )
        for minor, memory in enumerate((MIB, 2 * MIB, MIB))
    ]
    offered = gpu_devices.build_inventory(
        port.Versions(driver="unknown", cuda="13.0"), [gpu_devices.GpuView(gpu=gpu) for gpu in gpus]
    ).flat()
    assert [str(device.capacity["memory"].value) for device in offered.devices] == ["1Mi", "2Mi", "1Mi"]
    assert all(len(str(device.attributes["productName"])) == 64 for device in offered.devices)
    assert all("driverVersion" not in device.attributes for device in offered.devices)


def test_a_machine_without_gpus_offers_nothing() -> None:
    assert gpu_devices.build_inventory(port.Versions(driver="1", cuda="1"), []) == inventory.Inventory()


def test_partitions_that_claims_hold_stay_offered(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path)
    before = node.driver.discover()
    node.prepare("gpu-0-mig-3g20gb-9-4")
    assert node.driver.discover() == before


def test_the_inventory_is_rebuilt_only_when_a_gpu_changed(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path))
    driver = author_of(hardware)
    first = driver.discover()
    assert driver.discover() is first
    hardware.create_gpu_instance(hardware.gpus()[0].uuid, 19, port.Placement(start=6, size=1))
    without = driver.discover()
    assert without != first
    assert without == author_of(hardware).discover()
