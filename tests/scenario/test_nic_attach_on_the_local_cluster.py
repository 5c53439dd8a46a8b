"""Pods of the local cluster get NIC shares: scheduler, kubelet and runtime, with a network namespace for each pod and the hooks really run.

The order is that of a real kubelet and containerd: hooks for every container that lists the claim, sandbox and namespace gone before Unprepare, no
Prepare for a sandbox that is made anew, one Prepare for two pods of one claim, and pods on the host's network.
"""

import contextlib
import json
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from drakit import machines, testing
from drakit.core import context as contexts
from drakit.kube import claims, client, events, slices, status
from drakit.kube import claims as api_claims
from drakit.node import background, engine, local_node, timing
from drakit.node import node as nodes
from drakit_cluster.cluster import LocalCluster
from drakit_cluster.objects import errors as api_errors
from drakit_cluster.objects import resources
from drakit_cluster.runtime import Mode
from drakit_nic import driver as nic_driver
from drakit_nic import kernel_port
from drakit_nic.attach import attacher, collector, sandboxes, service
from fakes import installed_drivers, netns, nic_attach, waits
from unit.cluster_kubelet import quick_cluster as quick

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

NODE = nic_attach.NODE
CLASS = "nic"
Object = dict[str, Any]


class NicCluster:
    """A local cluster of one node with the NIC driver, which ``author`` makes."""

    cluster: LocalCluster

    def author(self, home: pathlib.Path, intents: local_node.Intents) -> Any:
        raise NotImplementedError

    @contextlib.contextmanager
    def driver(self) -> Iterator[contexts.DriverContext]:
        """The driver, from its start until it has stopped; its way to the node and the API server."""
        folder = self.cluster.node(NODE).folder
        home = folder.plugins / nic_driver.NAME

        def build(intents: local_node.Intents) -> Any:
            return self.author(home, intents)

        spec = local_node.DriverSpec(driver_name=nic_driver.NAME, build=build, identity=engine.NodeIdentity(pool=NODE, boot_id="boot-1"))
        with contextlib.ExitStack() as stack:
            api = client.connect(self.cluster.driver_kubeconfig(NODE), seconds=waits.SECONDS)
            stack.callback(api.close)
            node = nodes.Node(spec, local_node.Folders(home=home, cdi=folder.cdi), _outside(api, folder.registry), node_name=NODE)
            stack.callback(node.stop)
            node.start()
            self.until(lambda: self.cluster.api.list(resources.SLICE).items, "a slice")
            yield node.local.context

    def until(self, probe: Any, what: str) -> Any:
        return self.cluster.wait_for(probe, timeout=waits.SECONDS, what=what)

    def apply(self, *objects: Object) -> None:
        for item in objects:
            kind = next(one for one in resources.ALL if (one.api_version, one.kind) == (item["apiVersion"], item["kind"]))
            self.cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")

    def run(self, pod: Object) -> None:
        """Create a pod and wait until it runs."""
        self.apply(pod)
        name = pod["metadata"]["name"]
        self.until(lambda: self.phase(name) == "Running", f"pod {name} to run")

    def is_ready(self, name: str) -> bool:
        """Return whether all containers of a pod run; with restartPolicy Always its phase is Running while a container is started again."""
        pod: Any = self.cluster.api.get(resources.POD, name, namespace="default")
        statuses = pod.get("status", {}).get("containerStatuses", [])
        return bool(statuses) and all(status.get("ready") is True for status in statuses)

    def phase(self, name: str) -> str:
        found: Any = self.cluster.api.get(resources.POD, name, namespace="default")
        return str(found.get("status", {}).get("phase", ""))

    def links(self, name: str, container: str = "main") -> dict[str, Object]:
        """What the processes of a pod see of the network, but for lo."""
        process = self.cluster.node(NODE).runtime.view("default", name, container).process_id
        # Until its program runs, the process is on its way into the pod's namespace.
        self.until(lambda: pathlib.Path(f"/proc/{process}/comm").read_text() == "sleep\n", "the container's program")
        words = ["nsenter", f"--net=/proc/{process}/ns/net", "ip", "-j", "-d", "address"]
        shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=waits.SECONDS).stdout
        return {link["ifname"]: link for link in json.loads(shown) if link["ifname"] != "lo"}

    def delete(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        self.cluster.api.delete(resources.POD, name, namespace="default")
        self.until(lambda: self.is_gone(name), f"the end of pod {name}")

    def is_gone(self, name: str) -> bool:
        try:
            self.cluster.api.get(resources.POD, name, namespace="default")
        except api_errors.NotFoundError:
            return True
        return False

    def event_message(self, reason: str, containing: str) -> str:
        """The message of the first event with this reason and text."""

        def found() -> str:
            happened = [
                str(item.get("message", "")) for item in self.cluster.api.list(resources.EVENT).items if item.get("reason") == reason
            ]
            return next((message for message in happened if containing in message), "")

        return str(self.until(found, f"an event {reason} that says {containing!r}"))


class KernelNicCluster(NicCluster):
    """One whose NIC is real, and whose pods have namespaces."""

    def __init__(self, space: netns.Namespace, folder: pathlib.Path) -> None:
        self.space = space
        self.cluster = LocalCluster(folder, nodes=(NODE,), timing=quick.QUICK, mode=Mode.ISOLATED)
        self.machine = kernel_port.KernelPort(space.name)

    def author(self, home: pathlib.Path, intents: local_node.Intents) -> Any:
        attachment = service.Service(home, self.machine, sandboxes.KernelSandboxes(self.space.name), node=NODE)
        return nic_driver.NicDriver(self.machine, node=NODE, options=nic_attach.OPTIONS, intents=intents, attachment=attachment)


class MockNicCluster(NicCluster):
    """One whose NICs are those of a mock machine, with the settings that everybody gets."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = LocalCluster(folder / "cluster", nodes=(NODE,), timing=quick.QUICK)
        self.machine = machines.Choice(name="dgx-a100-40gb-2gpu", directory=folder / "mock")

    def author(self, home: pathlib.Path, intents: local_node.Intents) -> Any:
        del home
        return installed_drivers.build("nic", node=NODE, machine=self.machine, intents=intents)


def _outside(api: Any, registry: pathlib.Path) -> nodes.NodeDependencies:
    ticking = timing.SystemClock()
    statuses = status.ApiStatuses(api, status.Writer(driver=nic_driver.NAME, node=NODE, pool=NODE), ticking)
    return nodes.NodeDependencies(
        claim_source=api_claims.ApiClaims(api, seen=statuses.seen),
        slice_store=slices.ApiSlices(api, driver=nic_driver.NAME, node=NODE, clock=ticking),
        registry=registry,
        clock=ticking,
        api=background.ApiPorts(
            statuses=statuses,
            events=events.ApiEvents(api, component=nic_driver.NAME, host=NODE),
            claim_list=api_claims.ApiClaimList(api),
            bindings=claims.ApiBindings(api, driver=nic_driver.NAME, pool=NODE, clock=ticking),
        ),
    )


@pytest.fixture
def nic_cluster() -> Iterator[KernelNicCluster]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as space, tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        space.make_nic("nic0", mac=nic_attach.NIC_MAC)
        made = KernelNicCluster(space, pathlib.Path(folder))
        with made.cluster:
            made.apply(testing.device_class(CLASS, driver=nic_driver.NAME))
            yield made
        made.machine.close()


def claim(name: str, interface: str = "fast0") -> Object:
    written = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "interfaceName": interface}
    return testing.claim(name, device_class=CLASS, capacity={"bandwidth": "1G"}, parameters=written, driver=nic_driver.NAME)


def pod(name: str, *claims: str, **spec: object) -> Object:
    made = testing.pod(name, claims=claims, command=["sleep", "infinity"])
    made["spec"] |= spec
    return made


def test_containers_of_a_pod_see_one_interface_and_nothing_remains_after_the_pod(nic_cluster: KernelNicCluster) -> None:
    before = nic_cluster.space.state()
    with nic_cluster.driver():
        whole = pod("p", "c")
        (main,) = whole["spec"]["containers"]
        whole["spec"]["initContainers"] = [dict(main, name="init", command=["true"])]
        whole["spec"]["containers"] = [main, dict(main, name="second"), dict(main, name="without", resources={})]
        nic_cluster.apply(claim("c"))
        nic_cluster.run(whole)
        seen = [nic_cluster.links("p", container) for container in ("main", "second", "without")]
        assert set(seen[0]) == {"fast0"}
        assert seen[0] == seen[1] == seen[2], "the namespace is the pod's, also for a container without the claim"
        (member,) = nic_cluster.machine.members()
        assert member.mac == seen[0]["fast0"]["address"]
        nic_cluster.delete("p")
        nic_cluster.until(lambda: not nic_cluster.machine.shares(), "Unprepare")
        assert nic_cluster.space.state() == before


def test_a_sandbox_that_dies_is_made_anew_and_attached_again(nic_cluster: KernelNicCluster) -> None:
    with nic_cluster.driver():
        nic_cluster.apply(claim("c"))
        nic_cluster.run(pod("p", "c", restartPolicy="Always"))
        first = nic_cluster.links("p")["fast0"]
        runtime = nic_cluster.cluster.node(NODE).runtime
        runtime.kill_sandbox(runtime.view("default", "p").pod.uid)

        def is_back() -> bool:
            with contextlib.suppress(KeyError, FileNotFoundError, ProcessLookupError, subprocess.CalledProcessError):
                return bool(nic_cluster.links("p").get("fast0", first)["address"] != first["address"])
            return False

        nic_cluster.until(is_back, "the new sandbox")
        nic_cluster.delete("p")


def test_two_pods_of_one_claim_have_an_interface_each_in_one_share(nic_cluster: KernelNicCluster) -> None:
    with nic_cluster.driver():
        nic_cluster.apply(claim("c"))
        for name in ("one", "two"):
            nic_cluster.run(pod(name, "c"))
        addresses = {nic_cluster.links(name)["fast0"]["address"] for name in ("one", "two")}
        assert {member.mac for member in nic_cluster.machine.members()} == addresses
        assert len(addresses) == 2
        assert len(nic_cluster.machine.shares()) == 1
        nic_cluster.delete("one")
        assert len(nic_cluster.machine.shares()) == 1
        nic_cluster.delete("two")
        nic_cluster.until(lambda: not nic_cluster.machine.shares(), "Unprepare after the second")


def test_a_pod_on_the_host_s_network_is_refused_a_share(nic_cluster: KernelNicCluster) -> None:
    with nic_cluster.driver():
        nic_cluster.apply(claim("c"), pod("p", "c", hostNetwork=True))
        assert "hostNetwork" in nic_cluster.event_message("Failed", "createRuntime hook")
        assert not nic_cluster.machine.members()
        nic_cluster.delete("p")


def test_a_container_starts_only_once_the_driver_is_running_again(nic_cluster: KernelNicCluster) -> None:
    with nic_cluster.driver():
        nic_cluster.apply(claim("c"))
        nic_cluster.run(pod("first", "c"))
    nic_cluster.apply(pod("second", "c", restartPolicy="Always"))
    # Prepared already for the first pod, so the kubelet asks nobody; what fails is the hook, or, where it does ask, the Prepare.
    nic_cluster.until(
        lambda: any(
            "not running" in str(item.get("message", "")) or "not registered" in str(item.get("message", ""))
            for item in nic_cluster.cluster.api.list(resources.EVENT).items
        ),
        "the reason",
    )
    assert not nic_cluster.is_ready("second")
    with nic_cluster.driver():
        nic_cluster.until(lambda: nic_cluster.is_ready("second"), "the second pod")
        assert set(nic_cluster.links("second")) == {"fast0"}
        for name in ("first", "second"):
            nic_cluster.delete(name)


def test_a_claim_that_no_container_lists_is_reported_to_its_pod_by_an_event(nic_cluster: KernelNicCluster) -> None:
    """The pod runs and has no interface; after a while, which passes here by a clock of the test's, an Event on the pod says why."""
    with nic_cluster.driver() as context:
        idle = pod("p", "c")
        idle["spec"]["containers"][0]["resources"] = {}
        nic_cluster.apply(claim("c"))
        nic_cluster.run(idle)
        assert nic_cluster.links("p") == {}
        kernel, now = sandboxes.KernelSandboxes(nic_cluster.space.name), [0.0]
        attaching = attacher.Attacher(nic_cluster.machine, kernel, context, node=NODE)
        minds = collector.AttachmentCollector(nic_cluster.machine, kernel, context, attaching, intents=tuple, monotonic=lambda: now[0])
        for now[0] in (0.0, collector.GRACE):
            minds.collect()
        assert "list the claim in the resources.claims" in nic_cluster.event_message("ShareNotAttached", "no container has attached")
        event: Any
        (event,) = [item for item in nic_cluster.cluster.api.list(resources.EVENT).items if item.get("reason") == "ShareNotAttached"]
        assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Warning", "Pod", "p")
        nic_cluster.delete("p")


def reported(nic_cluster: NicCluster, name: str) -> Object:
    """What a claim's status says of its only device, once that is ready."""

    def ready() -> Object | None:
        found: Any = nic_cluster.cluster.api.get(resources.CLAIM, name, namespace="default")
        for device in found.get("status", {}).get("devices", ()):
            conditions = {item["type"]: item["status"] for item in device.get("conditions", ())}
            if conditions.get("Ready") == "True":
                assert device["shareID"] == found["status"]["allocation"]["devices"]["results"][0]["shareID"]
                return dict(device)
        return None

    return dict(nic_cluster.until(ready, "a device that is ready"))


def test_a_share_in_use_is_ready_in_its_claim_with_what_the_pod_has(nic_cluster: KernelNicCluster) -> None:
    with nic_cluster.driver():
        nic_cluster.apply(claim("c"))
        nic_cluster.run(pod("p", "c"))
        device, seen = reported(nic_cluster, "c"), nic_cluster.links("p")["fast0"]
        assert device["networkData"] == {"interfaceName": "fast0", "hardwareAddress": seen["address"]}
        assert device["data"]["egress"]["rate"] == 10**9
        mounts = nic_cluster.cluster.node(NODE).runtime.view("default", "p", "main").edits.mounts
        (file,) = [mount for mount in mounts if mount.container_path.endswith("/nic.drakit.dev-metadata.json")]

        def shown() -> Object | None:
            facts, _ = json.JSONDecoder().raw_decode(pathlib.Path(file.host_path).read_text())
            return dict(facts["requests"][0]["devices"][0].get("networkData", {})) or None

        assert nic_cluster.until(shown, "the container's file has its network") == device["networkData"]
        nic_cluster.delete("p")


def test_a_share_of_a_mock_nic_is_ready_in_its_claim_with_what_its_pod_gets() -> None:
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        local_cluster = MockNicCluster(pathlib.Path(folder))
        with local_cluster.cluster:
            local_cluster.apply(testing.device_class(CLASS, driver=nic_driver.NAME))
            asked = claim("c")
            asked["spec"]["devices"]["config"][0]["opaque"]["parameters"]["addresses"] = ["10.99.1.3/16"]
            with local_cluster.driver():
                local_cluster.apply(asked)
                local_cluster.run(pod("p", "c"))
                device = reported(local_cluster, "c")
                network = device["networkData"]
                assert (network["interfaceName"], network["ips"]) == ("fast0", ["10.99.1.3/16"])
                environment = local_cluster.cluster.node(NODE).runtime.view("default", "p", "main").env
                assert [value for name, value in environment.items() if name.endswith("_MAC")] == [network["hardwareAddress"]]
                assert int(network["hardwareAddress"][:2], 16) & 3 == 2, "a local address of one interface"
                assert device["data"]["egress"]["rate"] == 10**9
                local_cluster.delete("p")
