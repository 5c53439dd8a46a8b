"""A GPU is locked before it is unbound from NVIDIA's driver, which waits for ever for programs that have it open, this one included."""

import pathlib

import pytest

from drakit import machines
from drakit_gpu import host, nvml, nvml_errors
from drakit_gpu.mock import mock_gpus
from fakes import nvml_library

ADDRESS = "0000:07:00.0"


class LockingHost(host.Host):
    """The kernel's lock of a GPU, which it refuses while a session of the library is open."""

    def __init__(self, root: pathlib.Path, library: nvml_library.NvmlLibrary) -> None:
        super().__init__(root)
        self._library = library

    def lock_for_unbinding(self, pci_bus_id: str, *, locked: bool) -> None:
        sessions = [call for call in self._library.calls if call in {"nvmlInitWithFlags", "nvmlShutdown"}]
        if locked and sessions[-1:] == ["nvmlInitWithFlags"]:
            raise nvml_errors.CallError(nvml_errors.CALLS["lock_for_unbinding"], nvml_errors.Code.IN_USE)


def test_the_session_has_ended_when_the_gpu_is_locked_and_the_next_call_begins_one(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path / "machine"))
    library = nvml_library.NvmlLibrary(hardware)
    gpus = nvml.NvmlGpus(library.load, system=LockingHost(nvml_library.host_root(tmp_path / "root", hardware), library))
    before = gpus.gpus()
    gpus.lock_for_unbinding(ADDRESS)
    assert library.calls[-1] == "nvmlShutdown"
    assert gpus.gpus() == before


def lock_file(root: pathlib.Path) -> pathlib.Path:
    file = root / "proc/driver/nvidia/gpus" / ADDRESS / "unbindLock"
    file.parent.mkdir(parents=True)
    return file


def test_a_free_gpu_is_locked_and_unlocked(tmp_path: pathlib.Path) -> None:
    file = lock_file(tmp_path)
    file.write_text("0\n")
    host.Host(tmp_path).lock_for_unbinding(ADDRESS, locked=True)
    assert file.read_text() == "1\n"
    host.Host(tmp_path).lock_for_unbinding(ADDRESS, locked=False)
    assert file.read_text() == "0\n"


def test_a_gpu_in_use_is_refused_with_the_command_for_persistence_mode(tmp_path: pathlib.Path) -> None:
    lock_file(tmp_path).symlink_to("/dev/null")  # It takes the write and does not keep it, as the kernel's file of a GPU in use.
    with pytest.raises(nvml_errors.CallError, match=rf"turn off persistence mode: nvidia-smi -i {ADDRESS} -pm 0") as refused:
        host.Host(tmp_path).lock_for_unbinding(ADDRESS, locked=True)
    assert refused.value.code is nvml_errors.Code.IN_USE


def test_a_driver_without_locks_is_unbound_without_one(tmp_path: pathlib.Path) -> None:
    host.Host(tmp_path).lock_for_unbinding(ADDRESS, locked=True)
