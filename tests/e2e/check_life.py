"""The life of an installation: crashes, restarts, an API server that is away, updates, roll-back, uninstall."""

import dataclasses
import time

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import driver as drivers
from e2e import node_work, objects, workspace
from e2e.api import Api
from e2e.driver import Driver
from e2e.session import Hooks
from e2e.workspace import Workspace

pytestmark = [pytest.mark.real, pytest.mark.gates("DRAPartitionableDevices", "DRAConsumableCapacity")]

GPU, NIC = drivers.DRIVERS
FAILED = "FailedPrepareDynamicResources"
_RETRY_SECONDS = 90
_SLICES_AWAY_SECONDS = 90
_LOAD_PODS = 4
_DRAINED = "e2e.drakit.dev/drained"


def both(name: str) -> tuple[Object, Object]:
    """A claim on devices of both drivers, and its pod."""
    return objects.claim(name, objects.mig("gpu", "1g.5gb"), objects.share("net", "1G")), objects.pod(f"p-{name}", claims=[name])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Before:
    """A pod that runs with its claim, and must not notice what follows."""

    space: Workspace
    uid: str
    claim: str

    @classmethod
    def of(cls, space: Workspace) -> "Before":
        """Start the pod."""
        space.run(*both("before"))
        return cls(
            space=space,
            uid=json_types.text(space.pod("p-before"), "metadata", "uid"),
            claim=json_types.text(space.claim("before"), "metadata", "uid"),
        )

    def unharmed(self) -> None:
        """The pod runs as it did."""
        pod = self.space.pod("p-before")
        [status] = json_types.objects(pod, "status", "containerStatuses")
        assert json_types.text(pod, "metadata", "uid") == self.uid
        assert workspace.is_running(pod)
        assert json_types.number(status, "restartCount") == 0

    def ended(self, driver: Driver) -> None:
        """Its end is as clean as it would have been: nothing of the claim is left, and its devices are free."""
        self.space.end("p-before")
        given_back(self.space, driver, "before")


def given_back(space: Workspace, driver: Driver, name: str) -> None:
    """Wait until a claim without a pod has no devices; nothing of it is left on the node."""
    space.api.wait("the claim's devices given back", lambda: not workspace.results(space.claim(name)))
    uid = json_types.text(space.claim(name), "metadata", "uid")
    for each in drivers.DRIVERS:
        assert uid not in driver.execute(each, "find", "/var/run/cdi", f"/var/lib/kubelet/plugins/{each}", check=False)


def after(space: Workspace, name: str = "after") -> None:
    """A new pod with a new claim runs, though perhaps after a retry of the kubelet."""
    space.create(*both(name))
    space.running(f"p-{name}", seconds=_RETRY_SECONDS)


@pytest.mark.parametrize("name", drivers.DRIVERS)
def test_a_killed_driver_comes_back_and_its_pods_do_not_notice(space: Workspace, driver: Driver, name: str) -> None:
    before = Before.of(space)
    slices = [json_types.text(one, "metadata", "uid") for one in driver.slices(name)]
    kill(space, driver, name)
    before.unharmed()
    assert [json_types.text(one, "metadata", "uid") for one in driver.slices(name)] == slices
    after(space)
    before.ended(driver)


@pytest.mark.parametrize("name", drivers.DRIVERS)
def test_a_driver_without_journal_and_cdi_files_restores_its_claims(space: Workspace, driver: Driver, name: str) -> None:
    before = Before.of(space)
    driver.execute(name, "find", f"/var/lib/kubelet/plugins/{name}", "-name", "journal.db*", "-delete")
    driver.execute(name, "find", "/var/run/cdi", "-name", f"{name.replace('.', '*')}*", "-delete", check=False)
    driver.execute(name, "find", "/var/run/cdi", "-name", f"*{before.claim}*", "-delete", check=False)
    kill(space, driver, name)
    before.unharmed()
    space.api.wait("the claim's CDI file", lambda: before.claim in driver.execute(name, "find", "/var/run/cdi", check=False))
    after(space)
    before.ended(driver)


def kill(space: Workspace, driver: Driver, name: str) -> None:
    """Kill a driver's process and wait until its container runs again."""
    [pod] = driver.pods(name)
    assert int(node_work.done(space, "kill", node_work.KILL, json_types.text(pod, "metadata", "uid"))) > 0

    def restarted() -> bool:
        found = json_types.objects(driver.pods(name)[0], "status", "containerStatuses")
        return bool(found) and json_types.number(found[0], "restartCount") > 0 and found[0].get("ready") is True

    space.api.wait("the driver's restart", restarted)


def test_a_pod_that_starts_while_the_driver_is_away_runs_when_it_is_back(space: Workspace, driver: Driver) -> None:
    [pod] = driver.pods(NIC)
    driver.api.delete("Pod", json_types.text(pod, "metadata", "name"), drivers.NAMESPACE, grace=1)
    after(space)


def test_a_drained_node_has_its_devices_free_and_offers_them_again(api: Api, space: Workspace, driver: Driver) -> None:
    claim, pod = both("drained")
    json_types.child(pod, "metadata")["labels"] = {_DRAINED: "true"}
    space.run(claim, pod)
    slices = {json_types.text(one, "metadata", "uid") for name in drivers.DRIVERS for one in driver.slices(name)}
    # Of the node's pods only those of this check are evicted: a test cluster may have one node with everything on it.
    api.kubectl("drain", space.node, f"--pod-selector={_DRAINED}", "--force", "--timeout=60s")
    try:
        api.wait_gone("Pod", "p-drained", space.namespace)
        given_back(space, driver, "drained")
        space.create(both("next")[0], objects.pod("p-next", claims=["next"], tolerations=[]))
        space.pending("p-next", "unschedulable")
        assert {json_types.text(one, "metadata", "uid") for name in drivers.DRIVERS for one in driver.slices(name)} == slices
    finally:
        api.kubectl("uncordon", space.node)
    space.running("p-next")


@pytest.mark.hook("restart-kubelet")
def test_a_restarted_kubelet_has_the_devices_again(space: Workspace, driver: Driver, hook: Hooks) -> None:
    before = Before.of(space)
    hook("restart-kubelet")
    driver.offers(*drivers.DRIVERS)
    before.unharmed()
    after(space)
    before.ended(driver)


@pytest.mark.hook("restart-runtime")
def test_a_restarted_runtime_still_injects_devices(space: Workspace, driver: Driver, hook: Hooks) -> None:
    before = Before.of(space)
    hook("restart-runtime")
    before.unharmed()
    after(space)
    before.ended(driver)


@pytest.mark.hook("stop-api", "start-api")
def test_an_api_server_that_was_away_finds_everything_as_it_was(space: Workspace, driver: Driver, hook: Hooks) -> None:
    before = Before.of(space)
    slices = {json_types.text(one, "metadata", "uid") for name in drivers.DRIVERS for one in driver.slices(name)}
    restarts = _restarts(driver)
    hook("stop-api")
    try:
        time.sleep(15)
    finally:
        hook("start-api")
    space.api.wait("the API server", space.api.version, seconds=120)
    before.unharmed()
    after(space)
    assert {json_types.text(one, "metadata", "uid") for name in drivers.DRIVERS for one in driver.slices(name)} == slices
    assert _restarts(driver) == restarts
    before.ended(driver)


def _restarts(driver: Driver) -> list[int]:
    statuses = [one for pod in driver.pods() for one in json_types.objects(pod, "status", "containerStatuses")]
    return [json_types.number(one, "restartCount") for one in statuses]


def test_a_rolling_update_refuses_nobody(api: Api, space: Workspace, driver: Driver) -> None:
    before = Before.of(space)
    pods = {json_types.text(pod, "metadata", "name") for pod in driver.pods()}
    for item in driver.daemonsets():
        api.kubectl("rollout", "restart", "-n", drivers.NAMESPACE, f"daemonset/{json_types.text(item, 'metadata', 'name')}")
    for number in range(_LOAD_PODS):
        space.run(*both(f"c{number}"))
        assert all(driver.devices(name) for name in drivers.DRIVERS)
        space.end(f"p-c{number}")
    driver.settled()
    messages = [json_types.text(one, "message") for one in api.list("Event", space.namespace) if one.get("reason") == FAILED]
    uids = [json_types.text(space.claim(f"c{number}"), "metadata", "name") for number in range(_LOAD_PODS)]
    assert [text for text in messages if any(f"/{uid}:" in text for uid in uids)] == []
    assert not pods & {json_types.text(pod, "metadata", "name") for pod in driver.pods()}
    before.unharmed()
    before.ended(driver)


def test_an_upgrade_and_its_roll_back_take_over_what_the_other_version_prepared(
    space: Workspace, driver: Driver, hook: Hooks, pytestconfig: pytest.Config
) -> None:
    image = pytestconfig.getoption("--upgrade-image")
    if not image:
        pytest.skip("no other image given: --upgrade-image")
    if pytestconfig.getoption("--hook-load-image"):
        hook("load-image", image)
    before = Before.of(space)
    driver.apply("mock", image=image)
    try:
        before.unharmed()
        after(space, "newer")
        before.ended(driver)
    finally:
        driver.apply("mock")
    assert workspace.is_running(space.pod("p-newer"))
    after(space, "older")
    space.end("p-newer")
    space.api.wait("the claim's devices given back", lambda: not workspace.results(space.claim("newer")))


@pytest.mark.last
def test_uninstalled_it_leaves_no_slice_no_cdi_file_and_no_socket(api: Api, space: Workspace, driver: Driver) -> None:
    space.clear()
    driver.delete("mock")
    api.wait("the end of the slices", lambda: not any(driver.slices(name) for name in drivers.DRIVERS), seconds=_SLICES_AWAY_SECONDS)
    assert api.find("Namespace", drivers.NAMESPACE) is None
    folders = (f"/var/lib/kubelet/plugins/{one}" for one in drivers.DRIVERS)
    left = node_work.files(space, "/var/run/cdi", "/var/lib/kubelet/plugins_registry", *folders)
    assert [path for path in left if "drakit.dev" in path and path.endswith((".sock", ".json"))] == []
