"""What the adapter makes of NVML's answers, through NVIDIA's own binding; what every port must do is in tests/contract/test_gpu_port.py."""

import pathlib
import sys

import pytest

from drakit import families, machines
from drakit.core import errors
from drakit_gpu import assembly, cdi, driver_root, host, nvml, nvml_errors, options, port, programs
from drakit_gpu import driver as gpu_driver
from drakit_gpu.mock import mock_gpus
from drakit_gpu.nvml import properties
from drakit_gpu.sharing.mps import processes
from fakes import gpu_node, installed_drivers, log_lines, nvml_library

GPU_IS_LOST, NOT_SUPPORTED, FUNCTION_NOT_FOUND, DRIVER_NOT_LOADED = 15, 3, 13, 9


@pytest.fixture
def hardware(tmp_path: pathlib.Path) -> mock_gpus.MockGpus:
    return mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path / "machine", owner="node-a"))


@pytest.fixture
def library(hardware: mock_gpus.MockGpus) -> nvml_library.NvmlLibrary:
    return nvml_library.NvmlLibrary(hardware)


@pytest.fixture
def system(hardware: mock_gpus.MockGpus, tmp_path: pathlib.Path) -> host.Host:
    return host.Host(nvml_library.host_root(tmp_path / "root", hardware))


@pytest.fixture
def gpus(library: nvml_library.NvmlLibrary, system: host.Host) -> nvml.NvmlGpus:
    return nvml.NvmlGpus(library.load, system=system)


def test_gpus_are_reported_as_the_mock_has_them(gpus: nvml.NvmlGpus, hardware: mock_gpus.MockGpus) -> None:
    assert gpus.gpus() == hardware.gpus()
    assert gpus.versions() == hardware.versions()
    assert gpus.boot_id() == hardware.boot_id()
    assert gpus.device_majors() == hardware.device_majors()


def test_majors_come_from_the_configured_folder_and_the_boot_id_from_the_machine(
    tmp_path: pathlib.Path, hardware: mock_gpus.MockGpus
) -> None:
    system = host.of_this_machine(nvml_library.host_root(tmp_path / "root", hardware))
    assert system.device_majors() == hardware.device_majors()
    assert system.boot_id() == pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    listing = tmp_path / "root/proc/devices"
    listing.write_text("Character devices:\n  1 mem\n")
    with pytest.raises(nvml_errors.CallError, match=f"nvidia is not in {listing}; load its kernel module"):
        system.device_majors()


def test_profiles_keep_the_enum_and_the_hardware_id_apart(gpus: nvml.NvmlGpus, hardware: mock_gpus.MockGpus) -> None:
    uuid = hardware.gpus()[0].uuid
    assert gpus.gpu_instance_profiles(uuid) == hardware.gpu_instance_profiles(uuid)
    assert {profile.enum: profile.id for profile in gpus.gpu_instance_profiles(uuid)} == {0: 19, 1: 14, 2: 9, 3: 5, 4: 0, 7: 20, 9: 15}


def test_sensors_are_nvmls_readings_in_base_units_and_absent_ones_are_none(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, hardware: mock_gpus.MockGpus
) -> None:
    first, second = (gpu.uuid for gpu in hardware.gpus())
    measured = port.Sensors(utilization=0.37, memory_used=12 << 30, temperature=61, power=212.5, power_limit=400.0)
    library.sensors[first] = measured
    library.sensors[second] = port.Sensors(temperature=30)
    hardware.set_mig_mode(first, enabled=False)
    hardware.reset(first)
    assert gpus.sensors(first) == measured
    assert gpus.sensors(second) == port.Sensors(memory_used=0, temperature=30)


def test_a_gpu_in_mig_mode_has_no_utilization(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, hardware: mock_gpus.MockGpus) -> None:
    uuid = hardware.gpus()[0].uuid
    library.sensors[uuid] = port.Sensors(utilization=0.37, power=100.0)
    mode = hardware.mig_mode(uuid)
    assert mode is not None
    assert mode.current
    assert (gpus.sensors(uuid).utilization, gpus.sensors(uuid).power) == (None, 100.0)


@pytest.mark.parametrize("name", ["dgx-h100", "mixed-16gpu"])
def test_the_driver_offers_the_same_through_nvml_as_through_the_mock(tmp_path: pathlib.Path, name: str) -> None:
    made = mock_gpus.MockGpus(machines.Choice(name=name, directory=tmp_path / "machine", owner="node-a"))
    through = nvml.NvmlGpus(nvml_library.NvmlLibrary(made).load, system=host.Host(nvml_library.host_root(tmp_path / "root", made)))
    assert gpu_driver.GpuDriver(through).discover() == gpu_driver.GpuDriver(made).discover()


def test_the_driver_makes_and_removes_a_mig_device_through_nvml(tmp_path: pathlib.Path) -> None:
    """A Hopper GPU whose mode is off: everything from the change of mode to the capabilities goes through NVIDIA's binding."""
    node = gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie")
    root = nvml_library.host_root(tmp_path / "root", node.hardware)
    through = nvml.NvmlGpus(nvml_library.NvmlLibrary(node.hardware).load, system=host.Host(root))
    node.driver = gpu_driver.GpuDriver(through, intents=node.intents)
    with pytest.raises(nvml_errors.CallError, match="/proc/driver/nvidia/capabilities: NOT_FOUND"):
        node.prepare("gpu-2-mig-2g20gb-14-4")
    nvml_library.show_capabilities(root, node.hardware)
    prepared = node.driver.prepare(node.journal["a"].grant)
    assert [prepared.record["uuid"]] == node.mig_devices()
    assert node.instances() == [(2, 14, 4)]
    assert prepared.edits.device_nodes[0].path == "/dev/nvidia2"
    assert sum("nvidia-cap" in device_node.path for device_node in prepared.edits.device_nodes) == 2
    node.unprepare()
    assert not node.instances()


@pytest.mark.parametrize("code", list(nvml_errors.Code))
def test_every_return_code_becomes_a_call_error_of_its_own(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, hardware: mock_gpus.MockGpus, code: nvml_errors.Code
) -> None:
    uuid = gpus.gpus()[0].uuid
    library.returns["nvmlDeviceCreateGpuInstanceWithPlacement"] = code.value
    with pytest.raises(nvml_errors.CallError) as caught:
        gpus.create_gpu_instance(uuid, 19, port.Placement(start=0, size=1))
    assert (caught.value.code, caught.value.call) == (code, "nvmlDeviceCreateGpuInstanceWithPlacement")
    assert not hardware.gpu_instances(uuid)


@pytest.mark.parametrize(
    "code,meaning", [(28, nvml_errors.Code.NOT_FOUND), (14, nvml_errors.Code.UNKNOWN), (4711, nvml_errors.Code.UNKNOWN)]
)
def test_an_unknown_return_code_is_in_the_error(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, code: int, meaning: nvml_errors.Code
) -> None:
    library.returns["nvmlDeviceGetHandleByUUID"] = code
    with pytest.raises(nvml_errors.CallError) as caught:
        gpus.mig_mode(port.GpuUuid("GPU-x"))
    assert caught.value.code is meaning


OPTIONAL = {
    "nvmlDeviceGetBrand": "brand",
    "nvmlDeviceGetArchitecture": "architecture",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetCudaComputeCapability": "compute_capability",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetModuleId": "module_id",
    "nvmlDeviceGetEccMode": "ecc",
    "nvmlDeviceGetAddressingMode": "addressing_mode",
}


@pytest.mark.parametrize("symbol,field", OPTIONAL.items())
@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
def test_what_a_gpu_does_not_support_is_none(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, symbol: str, field: str, code: int
) -> None:
    library.returns[symbol] = code
    read = gpus.gpus()
    assert [getattr(gpu, field) for gpu in read] == [None, None]
    assert all(gpu.product_name and not gpu.is_vgpu for gpu in read)


DETAILS = (
    *(symbol for symbol in OPTIONAL if symbol not in {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability"}),
    "nvmlSystemGetConfComputeState",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetNvLinkState",
)


@pytest.mark.parametrize("symbol", DETAILS)
def test_a_failing_detail_query_withdraws_no_gpu(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, hardware: mock_gpus.MockGpus, symbol: str
) -> None:
    for code in (nvml_errors.Code.UNKNOWN, nvml_errors.Code.INVALID_ARGUMENT, nvml_errors.Code.OPERATING_SYSTEM):
        library.returns[symbol] = code.value
        assert [gpu.uuid for gpu in gpus.gpus()] == [gpu.uuid for gpu in hardware.gpus()]
        assert gpus.versions().driver == hardware.versions().driver
    published = [device.attributes for device in gpu_driver.GpuDriver(gpus).discover().flat().devices]
    assert published
    assert all({"brand", "architecture"} <= attributes.keys() for attributes in published), "a selector that names them stays answerable"


def test_a_gpu_of_an_unknown_brand_and_generation_is_offered(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary) -> None:
    library.returns |= dict.fromkeys(("nvmlDeviceGetBrand", "nvmlDeviceGetArchitecture"), NOT_SUPPORTED)
    published = [device.attributes for device in gpu_driver.GpuDriver(gpus).discover().flat().devices]
    assert {(attributes["brand"], attributes["architecture"]) for attributes in published} == {("Unknown", "Unknown")}


@pytest.mark.parametrize("code", [nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.RESET_REQUIRED])
def test_a_gone_gpu_is_distinguished_from_a_missing_detail(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, code: nvml_errors.Code
) -> None:
    library.returns["nvmlDeviceGetSerial"] = code.value
    assert gpus.gpus() == ()


def test_a_gpu_without_mig_has_no_mode_and_no_instances(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary) -> None:
    uuid = gpus.gpus()[0].uuid
    library.returns |= dict.fromkeys(("nvmlDeviceGetMigMode", "nvmlDeviceGetGpuInstanceProfileInfoV"), NOT_SUPPORTED)
    assert gpus.mig_mode(uuid) is None
    assert not gpus.gpu_instance_profiles(uuid)
    assert not gpus.gpu_instances(uuid)


def test_an_older_library_reports_the_same_profiles(hardware: mock_gpus.MockGpus, system: host.Host) -> None:
    missing = frozenset({"nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfoV"})
    older = nvml.NvmlGpus(nvml_library.NvmlLibrary(hardware, missing=missing).load, system=system)
    uuid = hardware.gpus()[0].uuid
    assert older.gpu_instance_profiles(uuid) == hardware.gpu_instance_profiles(uuid)
    made = older.create_gpu_instance(uuid, 9, port.Placement(start=4, size=4))
    assert older.compute_instance_profiles(uuid, made) == hardware.compute_instance_profiles(uuid, made)


def test_a_gpu_that_does_not_answer_is_left_out_and_logged(
    gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, logged: log_lines.LogLines
) -> None:
    library.returns["nvmlDeviceGetName"] = GPU_IS_LOST
    assert not gpus.gpus()
    errors_of = {record["index"]: record["error"] for record in logged.lines}
    assert errors_of[1].startswith("nvmlDeviceGetHandleByIndex: GPU_IS_LOST")


def test_handles_are_cached_and_fetched_again_once_nvml_rejects_them(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary) -> None:
    uuid = gpus.gpus()[0].uuid
    library.calls.clear()
    for _ in range(3):
        assert gpus.mig_mode(uuid)
    assert library.calls.count("nvmlDeviceGetHandleByUUID") == 0
    library.handles_end()
    assert gpus.mig_mode(uuid)
    assert library.calls.count("nvmlDeviceGetHandleByUUID") == 1


def test_reading_one_gpu_queries_no_other(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary, logged: log_lines.LogLines) -> None:
    first, second = gpus.gpus()
    library.calls.clear()
    assert gpus.gpu(second.uuid) == second
    assert library.calls == ["nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"]
    assert gpus.gpu(port.GpuUuid("GPU-unknown")) is None
    assert not logged.text
    library.returns["nvmlDeviceGetName"] = GPU_IS_LOST
    assert gpus.gpu(first.uuid) is None
    (line,) = logged.lines
    assert (line["event"], line["gpu"]) == ("GPU does not answer", first.uuid)
    assert line["error"].startswith("nvmlDeviceGetHandleByIndex: GPU_IS_LOST")


def test_a_lost_session_is_replaced(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary) -> None:
    uuid = gpus.gpus()[0].uuid
    library.calls.clear()
    library.returns["nvmlDeviceGetMigMode"] = DRIVER_NOT_LOADED
    with pytest.raises(nvml_errors.CallError, match="DRIVER_NOT_LOADED"):
        gpus.mig_mode(uuid)
    assert library.calls.count("nvmlInitWithFlags") == 1
    del library.returns["nvmlDeviceGetMigMode"]
    assert gpus.mig_mode(uuid)
    gpus.close()
    assert library.calls[-1] == "nvmlShutdown"


def test_a_mode_that_is_only_pending_is_an_error_with_the_activation_status(gpus: nvml.NvmlGpus, hardware: mock_gpus.MockGpus) -> None:
    uuid = gpus.gpus()[0].uuid
    hardware.attach(uuid, 4711)
    with pytest.raises(nvml_errors.CallError, match=r"nvmlDeviceSetMigMode: IN_USE .*pending"):
        gpus.set_mig_mode(uuid, enabled=False)
    assert gpus.mig_mode(uuid) == port.MigMode(current=True, pending=False)
    hardware.detach(uuid, 4711)
    hardware.reset(uuid)
    assert gpus.mig_mode(uuid) == port.MigMode(current=False, pending=False)


def test_processes_are_listed_by_gpu_and_by_instance(gpus: nvml.NvmlGpus, hardware: mock_gpus.MockGpus) -> None:
    uuid = gpus.gpus()[0].uuid
    first, second = (gpus.create_gpu_instance(uuid, 19, port.Placement(start=start, size=1)).id for start in (6, 5))
    for pid, instance in ((30, first), (10, first), (20, second)):
        hardware.attach(uuid, pid, instance)
    assert gpus.running_processes(uuid) == (10, 20, 30)
    assert gpus.running_processes(uuid, first) == (10, 30)


@pytest.mark.parametrize(
    "code,message",
    [(9, "DRIVER_NOT_LOADED .*kernel driver"), (18, "reboot"), (4, "root")],
)
def test_no_working_nvml_is_an_error_that_says_what_to_do(library: nvml_library.NvmlLibrary, code: int, message: str) -> None:
    library.returns["nvmlInitWithFlags"] = code
    with pytest.raises(errors.HardwareError, match=message):
        nvml.NvmlGpus(library.load).gpus()


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("not a library")
    site = families.Site(node="node-1", driver_name="gpu.drakit.dev", home=tmp_path / "home", pods=installed_drivers.no_pods)
    driver = assembly.assemble(options.GpuOptions(library=path), site)
    with pytest.raises(errors.RetryError, match=f"LIBRARY_NOT_FOUND .cannot load {path}: .*gpu.library"):
        driver.discover()


def test_a_module_that_is_not_loaded_is_named(hardware: mock_gpus.MockGpus, tmp_path: pathlib.Path) -> None:
    root = nvml_library.host_root(tmp_path / "root", hardware)
    (root / "proc/devices").write_text("195 nvidia\n510 nvidia-caps\n")
    with pytest.raises(nvml_errors.CallError, match=f"nvidia-uvm is not in {root}/proc/devices; load its kernel module"):
        host.Host(root).device_majors()
    assert not host.Host(root).has_driver()


def test_a_kernel_driver_without_capabilities_serves_whole_gpus_and_refuses_mig(
    hardware: mock_gpus.MockGpus, tmp_path: pathlib.Path
) -> None:
    root = nvml_library.host_root(tmp_path / "root", hardware)
    (root / "proc/devices").write_text("195 nvidia-frontend\n505 nvidia-uvm\n")
    majors = host.Host(root).device_majors()
    gpu = hardware.gpus()[0]
    assert [node.major for node in cdi.of_gpu("gpu", "gpu-0", gpu, majors).device_nodes] == [195, 195, 195, 505, 505]
    with pytest.raises(nvml_errors.CallError, match="nvidia-caps is not in /proc/devices; MIG devices need it"):
        cdi.of_mig("gpu", "gpu-0", gpu, "MIG-1", majors, port.CapabilityMinors(gpu_instance=3, compute_instance=4))


@pytest.mark.parametrize("nodes", [(1,), (0, 2, 65)])
def test_nvml_names_the_numa_nodes_that_sysfs_does_not_know(
    tmp_path: pathlib.Path, hardware: mock_gpus.MockGpus, nodes: tuple[int, ...]
) -> None:
    library, root = nvml_library.NvmlLibrary(hardware), nvml_library.host_root(tmp_path / "root", hardware)
    first, second = hardware.gpus()[:2]
    library.memory_nodes = dict.fromkeys((first.uuid, second.uuid), nodes)
    (root / "sys/bus/pci/devices" / first.pci_bus_id / "numa_node").write_text("-1\n")
    read = {gpu.uuid: gpu.numa_nodes for gpu in nvml.NvmlGpus(library.load, system=host.Host(root)).gpus()}
    assert (read[first.uuid], read[second.uuid]) == (nodes, second.numa_nodes)


def test_a_machine_without_sysfs_has_no_pcie_root_and_no_numa_node(tmp_path: pathlib.Path) -> None:
    assert (host.Host(tmp_path).pcie_root("0000:07:00.0"), host.Host(tmp_path).numa_nodes("0000:07:00.0")) == (None, ())


@pytest.mark.parametrize(
    "of_nvml,written", [("00000000:07:00.0", "0000:07:00.0"), ("0001AB00:C1:00.0", "0001ab00:c1:00.0"), ("0000:0F:00.0", "0000:0f:00.0")]
)
def test_pci_addresses_are_written_as_sysfs_does(of_nvml: str, written: str) -> None:
    assert properties.pci_bus_id(of_nvml) == written


def test_unknown_brands_and_architectures_are_left_out_never_an_error() -> None:
    assert (
        properties.BRANDS.get(4711),
        properties.ARCHITECTURES.get(0xFFFFFFFF),
        properties.BRANDS.get(14),
        properties.ARCHITECTURES.get(9),
    ) == (
        None,
        None,
        "Nvidia",
        "Hopper",
    )


def test_cuda_versions_are_major_and_minor() -> None:
    assert (properties.cuda_version(13000), properties.cuda_version(12080)) == ("13.0", "12.8")


def test_an_older_library_reports_the_fabric_by_older_calls(tmp_path: pathlib.Path) -> None:
    made = mock_gpus.MockGpus(machines.Choice(name="dgx-h100", directory=tmp_path / "machine", owner="node-a"))
    system = host.Host(nvml_library.host_root(tmp_path / "root", made))
    older = nvml_library.NvmlLibrary(made, missing=frozenset({"nvmlDeviceGetGpuFabricInfoV"}))
    assert nvml.NvmlGpus(older.load, system=system).gpus() == made.gpus()
    none = nvml_library.NvmlLibrary(made, missing=frozenset({"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"}))
    assert {gpu.fabric for gpu in nvml.NvmlGpus(none.load, system=system).gpus()} == {None}


def test_unsupported_links_and_modes_are_omitted(gpus: nvml.NvmlGpus, library: nvml_library.NvmlLibrary) -> None:
    library.returns |= dict.fromkeys(
        ("nvmlDeviceGetNvLinkState", "nvmlSystemGetConfComputeState", "nvmlDeviceGetComputeMode"), NOT_SUPPORTED
    )
    assert {gpu.nvlinks for gpu in gpus.gpus()} == {port.NvLinks()}
    assert gpus.versions().cc_mode is None
    assert gpus.compute_mode(gpus.gpus()[0].uuid) is None


@pytest.mark.parametrize(
    "state,status,word",
    [(0, 0, None), (1, 0, "not-started"), (2, 0, "in-progress"), (2, 999, "in-progress"), (3, 0, "completed"), (3, 1, "failed")],
)
def test_a_fabric_has_a_name_only_once_it_is_joined(state: int, status: int, word: str | None) -> None:
    fabric = properties.fabric_state(state, status, bytes(range(16)), 7)
    assert (fabric and fabric.state) == word
    assert (fabric is not None and fabric.clique == 7) == (word == "completed")


def test_a_time_slice_is_set_by_nvidia_smi_of_the_driver_root(tmp_path: pathlib.Path) -> None:
    made = mock_gpus.MockGpus(machines.Choice(name="server-h100-pcie", directory=tmp_path / "machine", owner="node-a"))
    root = nvml_library.smi_root(tmp_path / "driver", made)
    with_mig, without = (made.gpus()[index].uuid for index in (0, 1))
    tools = nvml.NvidiaSmi(root)
    for interval in port.TimeSlice:
        tools.set_time_slice(without, interval)
    assert (root.path / "slices").read_text().split() == [part for number in "0123" for part in (without, number)]
    with pytest.raises(nvml_errors.CallError, match=r"NOT_SUPPORTED .*not supported for GPU"):
        tools.set_time_slice(with_mig, port.TimeSlice.LONG)
    with pytest.raises(nvml_errors.CallError, match=r"NOT_SUPPORTED .*no nvidia-smi below"):
        nvml.NvidiaSmi(driver_root.DriverRoot(path=tmp_path)).set_time_slice(without, port.TimeSlice.LONG)


def test_a_program_that_does_not_end_is_killed_with_what_it_started(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "slow"
    program.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    program.chmod(0o755)
    with pytest.raises(programs.ProgramError, match=r"slow: did not end within 0\.2 s"):
        programs.run_program(program, seconds=0.2, env={"DRAKIT_TEST": str(tmp_path)})
    assert not list(processes.with_environment(f"DRAKIT_TEST={tmp_path}"))


@pytest.mark.parametrize(
    "health,fault",
    [
        (0x000, ""),
        (0x1AA, ""),
        (0x1A9, ""),  # degraded bandwidth
        (0x1A6, ""),  # a route is being recovered
        (0x19A, "route-unhealthy"),
        (0x2AA, "incorrect-system-guid"),
        (0x4AA, "no-partition"),
        (0x8AA, "gpu-state-invalid"),
        (0xFAA, "incorrect-configuration"),
    ],
)
def test_a_fabric_that_cannot_be_used_is_not_completed(health: int, fault: str) -> None:
    fabric = properties.fabric_state(3, 0, bytes(range(16)), 7, health)
    assert fabric is not None
    assert (fabric.fault, fabric.state) == (fault, "failed" if fault else "completed")
    assert properties.fabric_state(2, 0, bytes(range(16)), 7, health) == port.Fabric(state="in-progress")
