"""Device nodes are there with the numbers they must have, whoever forgot to make them; nothing else is touched."""

import os
import pathlib
import stat

import pytest

from drakit.core import edits, errors
from drakit.devices import machines
from drakit.devices.gpu import driver as gpu_driver
from drakit.devices.gpu import host
from fakes import gpu_node

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")]

NODE = edits.DeviceNode(path="/dev/nvidia-caps/nvidia-cap147", type="c", major=510, minor=147, file_mode=0o444)
NUMBER = os.makedev(510, 147)


def node_at(path: pathlib.Path) -> tuple[bool, int, int]:
    result = path.lstat()
    return stat.S_ISCHR(result.st_mode), result.st_rdev, stat.S_IMODE(result.st_mode)


def test_a_missing_node_is_made_with_its_folder_and_mode(tmp_path: pathlib.Path) -> None:
    host.ensure_device_nodes([NODE], tmp_path)
    host.ensure_device_nodes([NODE], tmp_path)
    assert node_at(tmp_path / "dev/nvidia-caps/nvidia-cap147") == (True, NUMBER, 0o444)
    assert [file.name for file in (tmp_path / "dev/nvidia-caps").iterdir()] == ["nvidia-cap147"]


def test_a_node_with_the_numbers_of_an_earlier_boot_is_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(511, 1))
    host.ensure_device_nodes([NODE], tmp_path)
    assert node_at(path)[1] == NUMBER


def test_a_node_that_is_right_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    os.mknod(path, 0o600 | stat.S_IFCHR, NUMBER)
    before = path.lstat()
    host.ensure_device_nodes([NODE], tmp_path)
    assert path.lstat() == before


def test_anything_else_in_its_place_is_an_error_and_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    path.write_text("an admin's")
    with pytest.raises(errors.HardwareError, match="is in the way: it is not a character device"):
        host.ensure_device_nodes([NODE], tmp_path)
    assert path.read_text() == "an admin's"


def test_a_prepared_partition_has_all_its_nodes_and_a_lost_one_comes_back(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine", resources=gpu_driver.HostResources(dev_root=tmp_path))
    prepared = node.prepare("gpu-1-mig-2g10gb-14-4")
    paths = [tmp_path / device_node.path.lstrip("/") for device_node in prepared.edits.device_nodes]
    numbers = [os.makedev(device_node.major or 0, device_node.minor or 0) for device_node in prepared.edits.device_nodes]
    assert [node_at(path)[1] for path in paths] == numbers
    paths[-1].unlink()
    assert node.driver.prepare(node.journal["a"].grant) == prepared
    assert [node_at(path)[1] for path in paths] == numbers
    assert machines.boot_id(node.choice.directory)
