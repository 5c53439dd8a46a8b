"""The NUMA nodes near a device, from a folder like the kernel's."""

import pathlib
from collections.abc import Mapping

import pytest

from drakit import numa

TWO_SOCKETS = {0: "10 21", 1: "21 10"}
# Two sockets with two nodes each (sub-NUMA clustering), whose numbers have a gap.
CLUSTERED = {0: "10 12 21 21", 1: "12 10 21 21", 4: "21 21 10 12", 5: "21 21 12 10"}
# Node 2 has memory only.
WITH_MEMORY = {0: "10 21 14", 1: "21 10 24", 2: "14 24 10"}


def system(folder: pathlib.Path, distances: Mapping[int, str], sockets: Mapping[int, int]) -> pathlib.Path:
    """Write nodes with one CPU each, of the same number, on these sockets."""
    for node, row in distances.items():
        (folder / f"node/node{node}").mkdir(parents=True)
        (folder / f"node/node{node}/distance").write_text(f"{row}\n")
        (folder / f"node/node{node}/cpulist").write_text(f"{node}\n" if node in sockets else "\n")
    for node, socket in sockets.items():
        (folder / f"cpu/cpu{node}/topology").mkdir(parents=True)
        (folder / f"cpu/cpu{node}/topology/physical_package_id").write_text(f"{socket}\n")
    (folder / "node/online").write_text(",".join(map(str, distances)) + "\n")
    return folder


@pytest.mark.parametrize(
    "distances, sockets, node, near",
    [
        ({0: "10"}, {0: 0}, 0, (0,)),
        (TWO_SOCKETS, {0: 0, 1: 1}, 1, (1,)),
        (CLUSTERED, {0: 0, 1: 0, 4: 1, 5: 1}, 0, (0, 1)),
        (CLUSTERED, {0: 0, 1: 0, 4: 1, 5: 1}, 5, (5, 4)),
        (WITH_MEMORY, {0: 0, 1: 1}, 0, (0, 2)),
        (TWO_SOCKETS, {}, 0, (0, 1)),
        ({0: "10 21"}, {0: 0}, 0, (0,)),
    ],
    ids=["one node", "two sockets", "a divided socket", "own node first", "memory without CPUs", "unknown sockets", "table of other size"],
)
def test_nodes_of_one_socket_at_the_smallest_distance_are_near(
    tmp_path: pathlib.Path, distances: Mapping[int, str], sockets: Mapping[int, int], node: int, near: tuple[int, ...]
) -> None:
    kernel = system(tmp_path / "system", distances, sockets)
    device = tmp_path / "device"
    device.mkdir()
    (device / "numa_node").write_text(f"{node}\n")
    assert numa.of_device(device, kernel) == near


@pytest.mark.parametrize("written", ["-1\n", "", None])
def test_a_device_whose_node_is_unknown_is_near_none(tmp_path: pathlib.Path, written: str | None) -> None:
    if written is not None:
        (tmp_path / "numa_node").write_text(written)
    assert numa.of_device(tmp_path, tmp_path) == ()


def test_a_node_whose_neighbours_the_kernel_does_not_say_is_alone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "numa_node").write_text("3\n")
    assert numa.of_device(tmp_path, tmp_path) == (3,)


@pytest.mark.parametrize("nodes, published", [((), {}), ((3,), {numa.ATTRIBUTE: 3}), ((3, 2), {numa.ATTRIBUTE: (3, 2)})])
def test_the_attribute_is_a_list_only_for_several_nodes(nodes: tuple[int, ...], published: Mapping[str, object]) -> None:
    assert numa.attribute(nodes) == published
