"""KEP-4815, partitionable devices: MIG partitions are made when a claim comes, and never of what another holds."""

import pytest

from drakit_cluster.objects.json_types import Object
from e2e import objects, workspace
from e2e.workspace import Workspace

pytestmark = pytest.mark.gates("DRAPartitionableDevices")

FIRST, SECOND = "0000:07:00.0", "0000:0f:00.0"


def on(address: str) -> str:
    return f'device.attributes["resource.kubernetes.io"].pciBusID == "{address}"'


def partitions(name: str, profile: str, address: str, count: int = 1) -> Object:
    cel = (f'device.attributes["{objects.GPU}"].profile == "{profile}"', on(address))
    return objects.claim(name, objects.request("gpu", objects.MIG, cel=cel, allocationMode="ExactCount", count=count))


def test_a_gpu_is_parted_as_often_as_its_layout_allows(space: Workspace) -> None:
    space.run(partitions("seven", "1g.5gb", FIRST, 7), objects.pod("p", claims=["seven"]))
    assert len(set(space.view("p").gpus().values())) == 7
    space.create(partitions("eighth", "1g.5gb", FIRST), objects.pod("q", claims=["eighth"]))
    space.pending("q")


def test_partitions_never_overlap(space: Workspace) -> None:
    space.run(partitions("half", "4g.20gb", FIRST), objects.pod("p", claims=["half"]))
    space.create(partitions("again", "4g.20gb", FIRST), objects.pod("q", claims=["again"]))
    space.pending("q")
    space.run(partitions("beside", "3g.20gb", FIRST), objects.pod("r", claims=["beside"]))


def test_a_whole_gpu_waits_for_the_end_of_every_partition(space: Workspace) -> None:
    space.run(
        partitions("one", "1g.5gb", FIRST),
        objects.pod("p", claims=["one"]),
        partitions("two", "1g.5gb", SECOND),
        objects.pod("q", claims=["two"]),
    )
    space.create(objects.claim("whole", objects.request("gpu", objects.GPU)), objects.pod("r", claims=["whole"]))
    space.pending("r")
    space.end("p")
    space.running("r")
    assert workspace.devices(space.claim("whole")) == ["gpu-0"]


def test_no_partition_is_given_of_a_gpu_that_is_in_use_whole(space: Workspace) -> None:
    whole = objects.request("gpu", objects.GPU, cel=(on(FIRST),))
    space.run(objects.claim("whole", whole), objects.pod("p", claims=["whole"]))
    space.create(partitions("part", "1g.5gb", FIRST), objects.pod("q", claims=["part"]))
    space.pending("q")
    space.end("p")
    space.running("q")


def test_partitions_of_one_claim_are_of_one_gpu_where_it_says_so(space: Workspace) -> None:
    requests = [objects.mig("large", "4g.20gb"), objects.mig("small", "1g.5gb"), objects.mig("other", "2g.10gb")]
    constraint: Object = {"matchAttribute": f"{objects.GPU}/parentUUID"}
    space.run(objects.claim("c", *requests, constraints=[constraint]), objects.pod("p", claims=["c"]))
    assert len({name.partition("-mig-")[0] for name in workspace.devices(space.claim("c"))}) == 1


def test_the_first_fit_leaves_most_others_possible(space: Workspace) -> None:
    """drakit lists a 3g.20gb at slice 4 first: at slice 0 it would leave room for fewer others."""
    space.run(objects.claim("c", objects.mig("gpu", "3g.20gb")), objects.pod("p", claims=["c"]))
    [name] = workspace.devices(space.claim("c"))
    assert name.endswith("-4")
