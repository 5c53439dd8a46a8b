"""Device nodes are there with the numbers they must have, whoever forgot to make them; nothing else is touched."""

import os
import pathlib
import stat
import subprocess
import sys

import pytest

from drakit import machines
from drakit.core import edits, errors
from drakit_gpu import device_nodes
from drakit_gpu import driver as gpu_driver
from fakes import gpu_node, log_lines

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")]

NODE = edits.DeviceNode(path="/dev/nvidia-caps/nvidia-cap147", type="c", major=510, minor=147, file_mode=0o444)
NUMBER = os.makedev(510, 147)
READ_ONLY = """
import pathlib, subprocess, sys
from drakit.core import edits
from drakit_gpu import device_nodes
root = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "--bind", str(root / "dev"), str(root / "dev")], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", str(root / "dev")], check=True)
device_nodes.ensure_device_nodes([edits.DeviceNode(path="/dev/nvidia-caps/nvidia-cap147", type="c", major=510, minor=147)], root)
"""


def node_at(path: pathlib.Path) -> tuple[bool, int, int]:
    result = path.lstat()
    return stat.S_ISCHR(result.st_mode), result.st_rdev, stat.S_IMODE(result.st_mode)


def test_a_missing_node_is_made_with_its_folder_and_mode(tmp_path: pathlib.Path) -> None:
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert node_at(tmp_path / "dev/nvidia-caps/nvidia-cap147") == (True, NUMBER, 0o444)
    assert [file.name for file in (tmp_path / "dev/nvidia-caps").iterdir()] == ["nvidia-cap147"]


def test_a_node_with_the_numbers_of_an_earlier_boot_is_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(511, 1))
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert node_at(path)[1] == NUMBER


def test_a_node_that_is_right_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    os.mknod(path, 0o600 | stat.S_IFCHR, NUMBER)
    before = path.lstat()
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert path.lstat() == before


def test_anything_else_in_its_place_is_an_error_and_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    path.write_text("an admin's")
    with pytest.raises(errors.HardwareError, match="is in the way: it is not a character device"):
        device_nodes.ensure_device_nodes([NODE], tmp_path)
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


def links(root: pathlib.Path) -> dict[str, str]:
    folder = root / "dev/char"
    return {link.name: str(link.readlink()) for link in folder.iterdir() if link.is_symlink()} if folder.is_dir() else {}


def test_every_node_gets_its_link_by_number_once(tmp_path: pathlib.Path) -> None:
    whole = edits.DeviceNode(path="/dev/nvidia0", type="c", major=195, minor=0)
    for _ in range(2):
        device_nodes.ensure_device_nodes([whole, NODE], tmp_path)
        assert links(tmp_path) == {"195:0": "../nvidia0", "510:147": "../nvidia-caps/nvidia-cap147"}
        assert all(device_nodes.has_link(node, tmp_path) for node in (whole, NODE))
    assert len(list((tmp_path / "dev/char").iterdir())) == 2
    assert (tmp_path / "dev/char/510:147").stat().st_rdev == NUMBER


def test_a_node_that_another_program_made_gets_its_link_too(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap147"
    path.parent.mkdir(parents=True)
    os.mknod(path, 0o600 | stat.S_IFCHR, NUMBER)
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert links(tmp_path) == {"510:147": "../nvidia-caps/nvidia-cap147"}


@pytest.mark.parametrize("target", ["/dev/nvidia-caps/nvidia-cap147", "../nvidia-caps/nvidia-cap147", "../alias"])
def test_a_link_that_leads_to_the_device_is_kept(tmp_path: pathlib.Path, target: str) -> None:
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    (tmp_path / "dev/alias").symlink_to("nvidia-caps/nvidia-cap147")
    link = tmp_path / "dev/char/510:147"
    link.unlink()
    link.symlink_to(target)
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert links(tmp_path) == {"510:147": target}


def test_a_link_to_nothing_or_to_another_device_is_replaced(tmp_path: pathlib.Path) -> None:
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    link, other = tmp_path / "dev/char/510:147", tmp_path / "dev/other"
    os.mknod(other, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    for target in ("../gone", "/dev/gone", "../other", "510:147"):
        link.unlink()
        link.symlink_to(target)
        assert not device_nodes.has_link(NODE, tmp_path)
        device_nodes.ensure_device_nodes([NODE], tmp_path)
        assert links(tmp_path) == {"510:147": "../nvidia-caps/nvidia-cap147"}


@pytest.mark.parametrize("kind", ["file", "folder", "node"])
def test_anything_but_a_link_is_kept(tmp_path: pathlib.Path, kind: str, logged: log_lines.LogLines) -> None:
    link = tmp_path / "dev/char/510:147"
    link.parent.mkdir(parents=True)
    if kind == "node":
        os.mknod(link, 0o600 | stat.S_IFCHR, NUMBER)
    else:
        link.mkdir() if kind == "folder" else link.write_text("an admin's")
    before = link.lstat()
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert link.lstat() == before
    assert ("device link not created" in logged.text) == (kind != "node"), "a node of that number serves as well as a link"
    assert node_at(tmp_path / "dev/nvidia-caps/nvidia-cap147")[1] == NUMBER


@pytest.mark.parametrize("target,left", [("../nvidia-uvm", {}), ("../another", {"509:0": "../another"})])
def test_the_link_of_an_earlier_number_is_removed_where_it_is_ours(tmp_path: pathlib.Path, target: str, left: dict[str, str]) -> None:
    earlier = edits.DeviceNode(path="/dev/nvidia-uvm", type="c", major=509, minor=0)
    device_nodes.ensure_device_nodes([earlier], tmp_path)
    link = tmp_path / "dev/char/509:0"
    link.unlink()
    link.symlink_to(target)
    device_nodes.ensure_device_nodes([edits.DeviceNode(path="/dev/nvidia-uvm", type="c", major=507, minor=0)], tmp_path)
    assert links(tmp_path) == {"507:0": "../nvidia-uvm", **left}


def test_a_read_only_dev_is_no_error(tmp_path: pathlib.Path) -> None:
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    (tmp_path / "dev/char/510:147").unlink()
    subprocess.run(["unshare", "--mount", sys.executable, "-c", READ_ONLY, str(tmp_path)], check=True)
    assert not links(tmp_path)
    device_nodes.ensure_device_nodes([NODE], tmp_path)
    assert links(tmp_path)
