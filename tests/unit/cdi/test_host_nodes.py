"""A device node that a runtime would not find on the host is named, with the reason."""

import os
import pathlib

import pytest

from drakit.cdi import host_nodes
from drakit.core import edits


def of(**fields: object) -> edits.Edits:
    return edits.Edits(device_nodes=(edits.DeviceNode(path="/dev/null"), edits.DeviceNode(**{"path": "/dev/x"} | fields)))  # type: ignore[arg-type]


def test_existing_device_nodes_pass(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert host_nodes.problem(edits.Edits(env={"A": "b"})) == ""
    assert host_nodes.problem(of(host_path="/dev/zero")) == ""
    assert host_nodes.problem(of(host_path=str(tmp_path / "pipe"))) == ""


@pytest.mark.parametrize("fields", [{"type": "c", "major": 1, "minor": 3}, {"type": "p"}])
def test_a_node_with_numbers_in_the_edits_need_not_exist(fields: dict[str, object]) -> None:
    assert host_nodes.problem(of(**fields)) == ""


@pytest.mark.parametrize("fields", [{}, {"type": "c"}, {"major": 1, "minor": 3}, {"path": "/dev/null", "host_path": "/dev/x"}])
def test_a_missing_device_node_is_named(fields: dict[str, object]) -> None:
    assert (
        host_nodes.problem(of(**fields)) == "device node /dev/x: No such file or directory, so no container can start with it on this host"
    )


def test_a_file_that_is_no_device_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    assert host_nodes.problem(of(path=str(tmp_path / "file"))).endswith(
        "/file: is not a device, so no container can start with it on this host"
    )
