"""A node with one NIC, its driver with journal, locks and CDI files as on a real node, and pods whose runtime calls the hook.

The NIC is a veth end in a namespace of its own, and a pod is a namespace with a process in it. What a container runtime does is done here: the
claim's CDI files are read, and each ``createRuntime`` hook is run as the OCI specification says, by the real client.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit.core import claim as claims
from drakit.core import names, ports, quantity, records
from drakit.node import engine, local_node
from drakit_nic import driver as nic_driver
from drakit_nic import kernel_port, port, reporting, tc_reconciler
from drakit_nic import options as nic_options
from drakit_nic.attach import sandboxes, service
from drakit_nic.shaping import kernel_shares
from fakes import claim_source, netns, nic_network, waits, watched_driver

NODE = "node-1"
NIC_MAC = "02:00:00:00:00:20"
BITS = quantity.Quantity.of
OPTIONS = nic_options.NicOptions(exclude=("*-wire",), rules=(nic_options.NicRule(match="nic0", speed=BITS("10G")),))


class Waiting:
    """A kubelet that has all the time in the world."""

    def is_waiting(self) -> bool:
        return True

    def seconds_left(self) -> None:
        return None


def claim(
    number: int,
    *,
    shares: int = 1,
    bandwidth: str = "1G",
    parameters: records.Record | None = None,
    source: claims.ConfigSource = claims.ConfigSource.CLAIM,
    driver: str = nic_driver.NAME,
) -> claims.Claim:
    """An allocated claim for shares of ``nic0``, with parameters of the claim or of its class."""
    ref = claims.ClaimRef(uid=names.ClaimUid(f"{netns.WORKER}-0000-4000-8000-{number:012}"), namespace="default", name=f"claim-{number}")
    results = tuple(
        claims.AllocationResult(
            request=f"net-{index}",
            driver=driver,
            pool=NODE,
            device="nic0",
            share_id=names.ShareId(f"{number:08}-0000-4000-8000-{index:012}"),
            consumed_capacity={"bandwidth": BITS(bandwidth)},
        )
        for index in range(shares)
    )
    if parameters is None:
        return claims.Claim(ref=ref, results=results)
    written = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", **parameters}
    config = claims.OpaqueConfig(driver=driver, source=source, parameters=written)
    return claims.Claim(ref=ref, results=results, configs=(config,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod:
    """A sandbox: a network namespace and a process in it."""

    space: netns.Namespace
    process: int
    sandbox: str
    uid: str = "0f0f0f0f-0000-4000-8000-000000000000"

    def state(self, container: str = "c1", **more: object) -> dict[str, object]:
        """The OCI state of a container of it, as a runtime of containerd's gives it to a createRuntime hook."""
        cri = "io.kubernetes.cri."
        annotations = {
            f"{cri}container-name": container,
            f"{cri}container-type": "container",
            f"{cri}sandbox-id": self.sandbox,
            f"{cri}sandbox-uid": self.uid,
        }
        result = {"ociVersion": "1.3.0", "id": f"{self.sandbox}-{container}", "status": "creating", "pid": self.process, "bundle": "/"}
        return {**result, "annotations": annotations, **more}


@dataclasses.dataclass(frozen=True)
class Said:
    """What a hook said: its exit status and what the pod's owner reads."""

    code: int
    stderr: str


class World:
    """The node, which outlives its driver: the NIC's namespace, the driver's folder and the CDI directory."""

    def __init__(
        self,
        node: netns.Namespace,
        folder: pathlib.Path,
        options: nic_options.NicOptions = OPTIONS,
        *,
        name: str = nic_driver.NAME,
        cdi: pathlib.Path | None = None,
    ) -> None:
        self.node, self.options, self.name = node, options, name
        self.home, self.cdi = folder / name, cdi or folder / "cdi"
        self.source = claim_source.FakeClaimSource()
        self.boot_id = "boot-1"
        self.candidates: nic_network.Candidates = kernel_shares.enforcements
        self.namespace: str | None = node.name
        """Where the driver works; None: in the namespace of the thread that starts it, as on a real node."""

    @contextlib.contextmanager
    def driver(
        self, *, step: Callable[[], None] = lambda: None, start: bool = True, meter: ports.Meter | None = None
    ) -> Iterator["Running"]:
        """One life of the driver: opened, recovered and started; ``step`` is called after everything it does to the kernel."""
        kernel = sandboxes.KernelSandboxes(self.namespace, after_effect=step)
        machine = kernel_port.KernelPort(
            self.namespace,
            driver=self.name,
            candidates=self.candidates,
            after_effect=step,
            uses_ipvlan=self.options.uses_ipvlan,
        )

        def build(intents: local_node.Intents) -> Any:
            attachment = service.Service(self.home, machine, kernel, node=NODE)
            return nic_driver.NicDriver(machine, node=NODE, name=self.name, options=self.options, intents=intents, attachment=attachment)

        spec = local_node.DriverSpec(driver_name=self.name, build=build, identity=engine.NodeIdentity(pool=NODE, boot_id=self.boot_id))
        with local_node.LocalNode.open(spec, local_node.Folders(home=self.home, cdi=self.cdi), self.source, meter) as local:
            local.offered.refresh()
            running = Running(self, local, machine)
            try:
                with watched_driver.watching(author_of(running), local.context) if start else contextlib.nullcontext():
                    yield running
            finally:
                machine.close()

    def edits(self, ref: claims.ClaimRef) -> list[dict[str, Any]]:
        """The container edits of a claim's devices, from its CDI files."""
        documents = [json.loads(file.read_text()) for file in sorted(self.cdi.glob(f"*{ref.uid}*.json"))]
        return [document["devices"][0]["containerEdits"] for document in documents]

    def hooks(self, ref: claims.ClaimRef) -> list[dict[str, Any]]:
        """The createRuntime hooks of a claim."""
        return [hook for edits in self.edits(ref) for hook in edits.get("hooks", ()) if hook["hookName"] == "createRuntime"]

    def call(self, ref: claims.ClaimRef, pod: Pod, container: str = "c1", *, seconds: int | None = None, **more: object) -> Said:
        """What the runtime does for a container that lists the claim: every hook, until one fails."""
        said = Said(0, "")
        for hook in self.hooks(ref):
            args = [*hook["args"][:2], str(seconds), *hook["args"][3:]] if seconds else hook["args"]
            said = run(hook["path"], args, json.dumps(pod.state(container, **more)).encode(), timeout=hook["timeout"])
            if said.code:
                break
        return said


class Running:
    """A driver that serves."""

    def __init__(self, world: World, local: local_node.LocalNode, machine: kernel_port.KernelPort) -> None:
        self.world, self.local, self.machine = world, local, machine

    def prepare(self, wanted: claims.Claim) -> claims.ClaimRef:
        """Prepare a claim as the kubelet does."""
        self.world.source.put(wanted)
        answer = self.local.engine.prepare([wanted.ref], Waiting())[wanted.ref.uid]
        assert answer.error == "", answer.error
        return wanted.ref

    def unprepare(self, ref: claims.ClaimRef) -> None:
        """Unprepare a claim as the kubelet does."""
        error = self.local.engine.unprepare([ref], Waiting())[ref.uid]
        assert error == "", error

    def members(self) -> list[port.Member]:
        return list(self.machine.members())


def author_of(driver: Running) -> nic_driver.NicDriver:
    """The NIC driver behind a driver that serves."""
    found = driver.local.author
    assert isinstance(found, nic_driver.NicDriver)
    return found


def look(driver: Running) -> dict[str, tuple[str, ...]]:
    """Run one check of a reconciler of its own; return what it restored."""
    author, local = author_of(driver), driver.local
    made = tc_reconciler.TcReconciler(
        driver.machine,
        local.context,
        survey=author.survey,
        uplink=author.uplink,
        intents=local.journal.intents,
        health=reporting.DeviceHealth(local.context),
    )
    return dict(made.reconcile())


def run(path: str, args: list[str], state: bytes, *, timeout: float = waits.SECONDS) -> Said:
    """Run a hook with its state, and with nothing else of this process's environment."""
    ran = subprocess.run(args, executable=path, input=state, capture_output=True, timeout=timeout, env={}, check=False)
    return Said(ran.returncode, ran.stderr.decode())


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A node with nothing prepared; its folder has a short path, as sockets need."""
    with netns.namespace() as node, tempfile.TemporaryDirectory(prefix="dk") as made:
        folder = pathlib.Path(made)
        node.make_nic("nic0", mac=NIC_MAC)
        yield World(node, folder)


@contextlib.contextmanager
def untouched_world() -> Iterator[World]:
    """A ``world`` whose node must in the end be as it was; the test is skipped where none can be made."""
    if netns.why_not():
        pytest.skip(netns.why_not())
    with world() as made:
        before = made.node.state()
        yield made
        must_become(made.node, before)


def must_become(node: netns.Namespace, before: dict[str, Any], seconds: float = 10) -> None:
    """Wait until a node is as it was: the kernel ends a dead pod's namespace, and the interfaces in it, some time after its last process."""
    deadline = time.monotonic() + seconds
    while (after := node.state()) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert after == before, {key: (before[key], after[key]) for key in before if before[key] != after[key]}


@contextlib.contextmanager
def pod(sandbox: str = "5a4d") -> Iterator[Pod]:
    """A sandbox of its own."""
    with netns.namespace() as space, inhabited(space) as process:
        yield Pod(space=space, process=process, sandbox=sandbox)


@contextlib.contextmanager
def inhabited(space: netns.Namespace) -> Iterator[int]:
    """A process that lives in a namespace."""
    made = subprocess.Popen(["ip", "netns", "exec", space.name, "sleep", "infinity"])
    try:
        deadline, own = time.monotonic() + waits.SECONDS, pathlib.Path(f"/proc/{made.pid}/ns/net")
        while own.stat().st_ino != pathlib.Path(space.path).stat().st_ino:
            assert time.monotonic() < deadline, "the process did not enter its namespace"
            time.sleep(0.005)
        yield made.pid
    finally:
        made.kill()
        made.wait()


def until(holds: Callable[[], bool], what: str, seconds: float = waits.SECONDS) -> None:
    """Wait until something holds."""
    assert waits.eventually(holds, seconds), what
