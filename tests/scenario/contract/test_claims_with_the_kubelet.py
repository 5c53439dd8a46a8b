"""What the kubelet asks for claims, in which order, and what it may never see (contract 1.12, 1.13, 2.1 to 2.7, 10.11 to 10.24)."""

import shutil
import threading
from typing import ClassVar

import grpc
import pytest

from drakit._proto import dra_v1_pb2 as v1
from drakit._proto import dra_v1_pb2_grpc as v1_services
from drakit.core import driver as drivers
from drakit.core import errors
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.faults import Faults
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, CLASS, NAMESPACE, POD
from fakes import author, channels, node_on_cluster, waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER as OTHER

STRANGER = "11111111-2222-4333-8444-555555555555"


def faults(world: node_on_cluster.NodeOnCluster) -> Faults:
    return world.quick_cluster.cluster.node(objects.NODE).faults


def call(world: node_on_cluster.NodeOnCluster, *, prepare: bool, uids: dict[str, str]) -> dict[str, str]:
    """The driver's errors by UID, asked past the kubelet."""
    claims = [v1.Claim(namespace="default", uid=uid, name=name) for name, uid in uids.items()]
    with channels.insecure(f"unix:{world.served[0].home / 'dra.sock'}") as channel:
        stub = v1_services.DRAPluginStub(channel)
        if prepare:
            prepared = stub.NodePrepareResources(v1.NodePrepareResourcesRequest(claims=claims), timeout=waits.SECONDS)
            return {uid: entry.error for uid, entry in prepared.claims.items()}
        unprepared = stub.NodeUnprepareResources(v1.NodeUnprepareResourcesRequest(claims=claims), timeout=waits.SECONDS)
        return {uid: entry.error for uid, entry in unprepared.claims.items()}


def gone(world: node_on_cluster.NodeOnCluster, *pods: str) -> None:
    for pod in pods:
        world.quick_cluster.delete(pod)
        world.quick_cluster.gone(POD, pod)


def test_a_pod_gets_its_device_and_releases_it_at_its_end(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    world.run("p")
    [device] = world.quick_cluster.devices("p")
    assert world.made() == [device]
    assert world.env("p") == {f"FAKE_{device.upper().replace('-', '_')}": device}
    gone(world, "p")
    assert world.made() == []
    assert driver.node.local.cdi.claims() == frozenset()
    assert driver.node.local.journal.entries() == ()


def test_share_ids_reach_the_driver_in_prepare_and_unprepare(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.run("a", node_on_cluster.pipe())
    world.run("b", node_on_cluster.pipe())
    prepared = [
        world.quick_cluster.cluster.node(objects.NODE).kubelet.preparation.devices("default", name)[node_on_cluster.NAME] for name in "ab"
    ]
    ids = [device.share_id for devices in prepared for device in devices]
    assert sorted(ids, key=str) == world.made()
    assert len(set(ids)) == 2
    gone(world, "a", "b")
    assert world.made() == []


def test_a_failed_prepare_reaches_the_pod_word_for_word_and_is_retried(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.driver.failure = errors.RetryError("the chip is warming up", after=1)
    world.claim("p")
    world.quick_cluster.create(POD, objects.pod("p", claim="p"))
    world.quick_cluster.until(lambda: world.quick_cluster.events("FailedPrepareDynamicResources"), "an event")
    assert world.quick_cluster.events("FailedPrepareDynamicResources")[0].endswith(
        "NodePrepareResources failed for ResourceClaim default/p: the chip is warming up"
    )
    assert world.made() == []
    world.driver.failure = None
    world.quick_cluster.phase("p", "Running")


def test_a_bug_in_a_driver_fails_its_claim_and_nothing_else(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.run("good")
    world.driver.failure = ZeroDivisionError("oops")
    world.claim("bad")
    world.quick_cluster.create(POD, objects.pod("bad", claim="bad"))
    world.quick_cluster.until(lambda: world.quick_cluster.events("FailedPrepareDynamicResources"), "an event")
    assert (
        "internal error of driver fake.example.com: ZeroDivisionError: oops"
        in world.quick_cluster.events("FailedPrepareDynamicResources")[0]
    )
    gone(world, "good")


def test_one_bad_claim_of_a_batch_gets_an_error_of_its_own(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.run("good")
    world.claim("waiting")
    uids = {"good": world.quick_cluster.uid("good"), "waiting": world.quick_cluster.uid("waiting"), "missing": STRANGER}
    reported = call(world, prepare=True, uids=uids)
    assert reported[uids["good"]] == ""
    assert "not allocated" in reported[uids["waiting"]]
    assert "no longer exists" in reported[STRANGER]


def test_a_claim_that_was_replaced_by_one_of_its_name_is_refused(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.run("p")
    assert "another of its name" in call(world, prepare=True, uids={"p": STRANGER})[STRANGER]
    assert len(world.made()) == 1


def test_unprepare_of_an_unknown_claim_succeeds(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    assert call(world, prepare=False, uids={"nobody": STRANGER}) == {STRANGER: ""}


def test_the_claim_of_a_pod_that_never_started_is_released(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.driver.failure = errors.DeviceBusyError("held by somebody")
    world.claim("p")
    world.quick_cluster.create(POD, objects.pod("p", claim="p"))
    world.quick_cluster.until(lambda: world.quick_cluster.events("FailedPrepareDynamicResources"), "an event")
    gone(world, "p")
    assert world.served[0].node.local.journal.entries() == ()


def test_a_claim_of_two_pods_is_prepared_once_until_both_have_ended(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.run("a")
    world.quick_cluster.run(objects.pod("b", claim="a"))
    assert world.env("a") == world.env("b") != {}
    gone(world, "a")
    assert len(world.made()) == 1
    gone(world, "b")
    assert world.made() == []


def test_a_claim_that_no_container_uses_is_prepared_too(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.claim("p")
    world.quick_cluster.run(objects.pod("p", claim="p", containers=[objects.container("main")]))
    assert len(world.made()) == 1
    assert world.env("p") == {}


def test_each_container_gets_the_devices_of_its_requests_alone(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.claim("p", node_on_cluster.chip("one"), node_on_cluster.chip("two"))
    containers = [objects.container("first", objects.use("one")), objects.container("second", objects.use("two"))]
    world.quick_cluster.run(objects.pod("p", claim="p", containers=containers))
    envs = [set(world.quick_cluster.view("p", name).env) & {"FAKE_CHIP_0", "FAKE_CHIP_1"} for name in ("first", "second")]
    assert sorted(envs, key=str) in ([{"FAKE_CHIP_0"}, {"FAKE_CHIP_1"}], [{"FAKE_CHIP_1"}, {"FAKE_CHIP_0"}])


def test_a_subrequest_reaches_the_container_that_names_its_parent_request(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    choices: list[Json] = [{"name": "large", "deviceClassName": "absent"}, {"name": "small", "deviceClassName": node_on_cluster.CHIP}]
    expression = "device.attributes['fake.example.com'].kind == 'none'"
    world.quick_cluster.create(CLASS, {"metadata": {"name": "absent"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
    world.claim("p", {"name": "gpu", "firstAvailable": choices})
    world.quick_cluster.run(objects.pod("p", claim="p", containers=[objects.container("main", objects.use("gpu"))]))
    [result] = json_types.objects(world.quick_cluster.claim("p"), "status", "allocation", "devices", "results")
    assert result["request"] == "gpu/small"
    assert len(world.env("p")) == 1


def test_results_of_other_drivers_in_the_same_claim_are_left_alone(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    plugin = world.quick_cluster.plugin()
    world.quick_cluster.create(CLASS, objects.device_class("other", OTHER))
    world.quick_cluster.offer("gpu-0")
    world.run("p", node_on_cluster.chip("mine"), {"name": "theirs", "exactly": {"deviceClassName": "other"}})
    [entry] = world.served[0].node.local.journal.entries()
    assert [grant.request for grant in entry.grants] == ["mine"]
    gone(world, "p")
    assert (world.made(), plugin.count("unprepare")) == ([], 1)


def test_two_identical_calls_may_run_at_the_same_time(world: node_on_cluster.NodeOnCluster) -> None:
    faults(world).call_twice = True
    world.serve()
    world.run("p")
    assert len(world.made()) == 1
    gone(world, "p")
    assert world.made() == []


def test_unprepare_before_prepare_succeeds(world: node_on_cluster.NodeOnCluster) -> None:
    faults(world).unprepare_first = True
    world.serve()
    world.run("p")
    gone(world, "p")
    assert world.made() == []


class Slow(node_on_cluster.Driver):
    """Its first prepare waits until the test lets it go."""

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.entered, self.go = threading.Event(), threading.Event()

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        if not self.entered.is_set():
            self.entered.set()
            self.go.wait(waits.SECONDS)
        return super().prepare(grant)


def test_a_prepare_that_outlives_its_call_is_committed_and_answers_the_next_one(world: node_on_cluster.NodeOnCluster) -> None:
    slow = Slow(world.hardware)
    served_slow = world.serve(driver=slow)
    steps: list[str] = []
    world.hardware.step = steps.append
    world.claim("p")
    world.quick_cluster.create(POD, objects.pod("p", claim="p"))
    assert slow.entered.wait(waits.SECONDS)
    world.quick_cluster.until(
        lambda: any("DEADLINE_EXCEEDED" in text for text in world.quick_cluster.events("FailedPrepareDynamicResources")), "an event"
    )
    slow.go.set()
    world.quick_cluster.phase("p", "Running")
    assert [step.split()[:2] for step in steps] == [["before", "make"], ["after", "make"]]
    assert len(served_slow.node.local.journal.entries()) == len(world.made()) == 1


def test_a_connection_broken_during_a_call_loses_and_leaks_nothing(world: node_on_cluster.NodeOnCluster) -> None:
    slow = Slow(world.hardware)
    world.serve(driver=slow)
    faults(world).drop_calls = 1
    world.claim("p")
    world.quick_cluster.create(POD, objects.pod("p", claim="p"))
    world.quick_cluster.until(lambda: world.quick_cluster.events("FailedPrepareDynamicResources"), "an event")
    slow.go.set()
    world.quick_cluster.phase("p", "Running")
    assert len(world.made()) == 1
    gone(world, "p")
    assert world.made() == []


def test_a_stuck_device_blocks_neither_registration_nor_other_devices(world: node_on_cluster.NodeOnCluster) -> None:
    slow = Slow(world.hardware)
    driver = world.serve(driver=slow)
    world.claim("stuck")
    world.quick_cluster.create(POD, objects.pod("stuck", claim="stuck"))
    assert slow.entered.wait(waits.SECONDS)
    world.run("other", node_on_cluster.pipe())
    driver.node.registrar.socket.unlink()
    world.quick_cluster.until(lambda: driver.node.registrar.wait_registered(0), "registration beside a stuck call")
    slow.go.set()
    world.quick_cluster.phase("stuck", "Running")


def test_after_a_reboot_claims_are_prepared_again_before_pods_run(world: node_on_cluster.NodeOnCluster) -> None:
    first = world.serve()
    world.run("p")
    node = world.quick_cluster.cluster.node(objects.NODE)
    first.stop()
    node.stop_kubelet()
    node.runtime.remove(uid_of(world, "p"))
    shutil.rmtree(node.folder.cdi)
    node.folder.cdi.mkdir()
    world.hardware.made.clear()
    node.start_kubelet()
    world.serve(driver=node_on_cluster.Driver(world.hardware), boot_id="boot-2")
    world.quick_cluster.until(lambda: world.made() == world.quick_cluster.devices("p"), "the device, made again")
    world.quick_cluster.until(lambda: node.runtime.has_sandbox(uid_of(world, "p")), "the pod's new sandbox")
    gone(world, "p")
    assert world.made() == []


def uid_of(world: node_on_cluster.NodeOnCluster, pod: str) -> str:
    return json_types.text(world.quick_cluster.find(POD, pod) or {}, "metadata", "uid")


def test_a_lost_cdi_file_is_written_by_the_next_prepare(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    world.run("p")
    folder = world.quick_cluster.cluster.node(objects.NODE).folder.cdi
    written = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".json"}
    for name in written:
        (folder / name).unlink()
    uid = world.quick_cluster.uid("p")
    assert call(world, prepare=True, uids={"p": uid}) == {uid: ""}
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".json"} == written != {}
    assert driver.node.local.cdi.claims() == {uid}


def test_unprepare_releases_a_used_claim_and_prepare_recreates_it(world: node_on_cluster.NodeOnCluster) -> None:
    """Some kubelets ask it by mistake; a driver is not told which pods use a claim, so it cannot know better."""
    world.serve()
    world.run("p")
    uid, before = world.quick_cluster.uid("p"), world.made()
    assert before != []
    assert call(world, prepare=False, uids={"p": uid}) == {uid: ""}
    assert world.made() == []
    assert call(world, prepare=True, uids={"p": uid}) == {uid: ""}
    assert world.made() == before


def test_a_device_still_held_by_a_deleted_pod_goes_to_no_other_pod(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    node = world.quick_cluster.cluster.node(objects.NODE)
    world.run("p", node_on_cluster.chip("one"), node_on_cluster.chip("two"))
    node.stop_kubelet()
    world.quick_cluster.delete("p", force=True)
    world.quick_cluster.api.delete(CLAIM, "p", namespace="default")
    world.quick_cluster.gone(CLAIM, "p")
    world.claim("next")
    world.quick_cluster.create(POD, objects.pod("next", claim="next"))
    world.quick_cluster.until(lambda: world.quick_cluster.devices("next"), "an allocation")
    uid = world.quick_cluster.uid("next")
    assert "is still held by claim default/p" in call(world, prepare=True, uids={"next": uid})[uid]
    node.start_kubelet()
    world.quick_cluster.phase("next", "Running")
    assert world.made() == world.quick_cluster.devices("next")


def test_a_claim_deleted_by_force_is_unprepared_without_the_api_object(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    world.run("p")
    node = world.quick_cluster.cluster.node(objects.NODE)
    node.stop_kubelet()
    world.quick_cluster.delete("p", force=True)
    world.quick_cluster.api.delete(CLAIM, "p", namespace="default")
    world.quick_cluster.gone(CLAIM, "p")
    assert len(world.made()) == 1
    node.start_kubelet()
    world.quick_cluster.until(lambda: world.made() == [], "Unprepare")


def test_a_device_is_prepared_for_an_admin_beside_its_owner(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    label: Object = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    world.quick_cluster.api.patch(NAMESPACE, "default", label, kind=PatchKind.MERGE)
    world.run("owner", node_on_cluster.chip("one"), node_on_cluster.chip("two"))
    before = world.made()
    world.run("admin", node_on_cluster.chip("watched", adminAccess=True))
    assert world.quick_cluster.devices("admin")[0] in world.quick_cluster.devices("owner")
    gone(world, "admin")
    assert world.made() == before


def burn(response: v1.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
    for answer in response.claims.values():
        answer.error = "on fire"


def test_prepared_devices_stay_while_another_driver_of_the_claim_fails(world: node_on_cluster.NodeOnCluster) -> None:
    world.serve()
    other = world.quick_cluster.plugin()
    other.on_prepare = burn
    world.quick_cluster.create(CLASS, objects.device_class("other", OTHER))
    world.quick_cluster.offer("gpu-0")
    steps: list[str] = []
    world.hardware.step = steps.append
    world.claim("p", node_on_cluster.chip("mine"), {"name": "theirs", "exactly": {"deviceClassName": "other"}})
    world.quick_cluster.create(POD, objects.pod("p", claim="p"))
    world.quick_cluster.until(lambda: other.count("prepare") >= 3 and world.made(), "three attempts")
    assert not [step for step in steps if "unmake" in step]
    gone(world, "p")
    assert world.made() == []
    assert other.uids("unprepare") == [world.quick_cluster.uid("p")]


class Describing(node_on_cluster.Driver):
    """Tells containers what their devices are."""

    device_metadata: ClassVar[bool] = True


@pytest.fixture
def describing(world: node_on_cluster.NodeOnCluster) -> node_on_cluster.RunningNode:
    return world.serve(driver=Describing(world.hardware))


def test_containers_find_files_about_their_devices(world: node_on_cluster.NodeOnCluster, describing: node_on_cluster.RunningNode) -> None:
    world.run("p")
    [mount] = world.quick_cluster.view("p").edits.mounts
    assert mount.container_path == "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/p/gpu/fake.example.com-metadata.json"
    assert mount.host_path == str(describing.home / "device-metadata" / world.quick_cluster.uid("p") / "gpu" / "metadata.json")
    gone(world, "p")
    assert list((describing.home / "device-metadata").iterdir()) == []


def test_a_generated_claim_has_the_name_from_the_pod_spec_in_its_files(
    world: node_on_cluster.NodeOnCluster, describing: node_on_cluster.RunningNode
) -> None:
    world.quick_cluster.create(CLAIM_TEMPLATE, objects.template("t", node_on_cluster.chip()))
    world.quick_cluster.run(objects.pod("p", template="t"))
    [mount] = world.quick_cluster.view("p").edits.mounts
    assert (
        mount.container_path == "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/gpu/fake.example.com-metadata.json"
    )
    assert describing.node.local.metadata is not None
