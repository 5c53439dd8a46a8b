"""Peers and cliques of NVLink, from what each GPU says of its own links."""

import dataclasses

import pytest

from drakit_gpu import port
from drakit_gpu.inventory import attributes

FABRIC = port.Fabric(state="completed", cluster="8f3d7c1e-0000-0000-0000-000000000001", clique=7)


def gpu(minor: int, *wired: int, switched: bool = False, fabric: port.Fabric | None = None) -> port.Gpu:
    links = port.NvLinks(gpus=tuple(address(other) for other in wired), switched=switched)
    return port.Gpu(
        uuid=port.GpuUuid(f"GPU-{minor}"), minor=minor, product_name="x", pci_bus_id=address(minor), nvlinks=links, fabric=fabric
    )


def address(minor: int) -> str:
    return f"0000:0{minor}:00.0"


def links_of(gpus: list[port.Gpu]) -> list[dict[str, object]]:
    peers = attributes.nvlink_peers(gpus)
    return [dict(attributes.links(gpu, peers[gpu.uuid], attributes.nvlink_clique(gpu, peers))) for gpu in gpus]


def test_bridged_pairs_are_cliques_of_two() -> None:
    assert links_of([gpu(0, 1), gpu(1, 0), gpu(2, 3), gpu(3)]) == [
        {"nvlinkPeers": "1", "nvlinkPeerMinors": (1,), "nvlinkClique": "GPU-0"},
        {"nvlinkPeers": "0", "nvlinkPeerMinors": (0,), "nvlinkClique": "GPU-0"},
        {"nvlinkPeers": "3", "nvlinkPeerMinors": (3,), "nvlinkClique": "GPU-2"},
        {"nvlinkPeers": "2", "nvlinkPeerMinors": (2,), "nvlinkClique": "GPU-2"},
    ]


def test_a_chain_is_one_clique_though_its_ends_are_not_linked() -> None:
    assert links_of([gpu(0, 1), gpu(1, 0, 2), gpu(2, 1)]) == [
        {"nvlinkPeers": "1", "nvlinkPeerMinors": (1,), "nvlinkClique": "GPU-0"},
        {"nvlinkPeers": "0,2", "nvlinkPeerMinors": (0, 2), "nvlinkClique": "GPU-0"},
        {"nvlinkPeers": "1", "nvlinkPeerMinors": (1,), "nvlinkClique": "GPU-0"},
    ]


def test_gpus_on_switches_reach_each_other() -> None:
    assert links_of([gpu(0, switched=True), gpu(1), gpu(2, switched=True)]) == [
        {"nvlinkPeers": "2", "nvlinkPeerMinors": (2,), "nvlinkClique": "GPU-0"},
        {},
        {"nvlinkPeers": "0", "nvlinkPeerMinors": (0,), "nvlinkClique": "GPU-0"},
    ]


def test_the_fabrics_own_name_of_a_clique_is_used_where_it_spans_nodes() -> None:
    one_node = dataclasses.replace(FABRIC, cluster="00000000-0000-0000-0000-000000000000")
    assert links_of([gpu(0, switched=True, fabric=FABRIC)]) == [{"nvlinkClique": f"{FABRIC.cluster}.7", "fabricState": "completed"}]
    assert links_of([gpu(0, switched=True, fabric=one_node)]) == [{"fabricState": "completed"}]


def test_a_gpu_in_the_middle_of_registering_is_in_no_clique_yet() -> None:
    assert links_of([gpu(0, fabric=port.Fabric(state="in-progress"))]) == [{"fabricState": "in-progress"}]


@pytest.mark.parametrize("peers, is_listed", [(16, True), (17, False)])
def test_a_list_of_peers_stays_below_the_limit_of_values_of_a_device(peers: int, *, is_listed: bool) -> None:
    first, *others = [gpu(minor, switched=True) for minor in range(peers + 1)]
    links = attributes.links(first, others, None)
    assert links.get("nvlinkPeerMinors") == (tuple(range(1, peers + 1)) if is_listed else None)
    assert str(links["nvlinkPeers"]).startswith("1,2,3")
