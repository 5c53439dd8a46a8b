"""systemd reloads its units, or restarts the driver's service, while containers have claims."""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator

import pytest

import drakit
from drakit.cdi import spec
from drakit.core import edits, names
from drakit_gpu import device_nodes
from fakes import netns, nic_attach, runc
from vm import virtual_functions

FUSE, LINK = pathlib.Path("/dev/fuse"), pathlib.Path("/dev/char/10:229")
NODE = drakit.DeviceNode(path=str(FUSE), type="c", major=10, minor=229, permissions="rw")
OPEN = ("sh", "-c", "exec 3<>/dev/fuse && echo opened || echo refused")


def systemctl(*words: str) -> str:
    return subprocess.run(["systemctl", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def unlinked() -> Iterator[None]:
    """The node has no link in /dev/char, as those that NVIDIA's programs create."""
    subprocess.run(["modprobe", "fuse"], check=True)
    subprocess.run(["udevadm", "settle"], check=True)
    target = LINK.readlink()
    LINK.unlink()
    yield
    LINK.unlink(missing_ok=True)
    LINK.symlink_to(target)


def answers() -> tuple[str, str]:
    """What a container with the device says before and after systemd reloads its units."""
    name = edits.CdiName(driver="gpu.drakit.dev", claim_uid=names.ClaimUid(str(uuid.uuid4())), device="gpu-0")
    written = json.loads(spec.encode(name, edits.Edits(device_nodes=(NODE,))))["devices"][0]["containerEdits"]
    with contextlib.ExitStack() as stack:
        runtime, space = stack.enter_context(runc.runtime(systemd=True)), stack.enter_context(netns.namespace())
        container = stack.enter_context(runtime.running(space, sandbox="5a4d", edits=[written]))
        before = runtime.execute(container, *OPEN)
        systemctl("daemon-reload")
        return before.strip(), runtime.execute(container, *OPEN).strip()


@pytest.mark.usefixtures("unlinked")
def test_a_linked_device_stays_open_to_its_container_after_daemon_reload() -> None:
    device_nodes.ensure_device_nodes([NODE], pathlib.Path("/"))
    assert answers() == ("opened", "opened")


@pytest.mark.usefixtures("unlinked")
def test_this_runc_keeps_a_device_without_a_link_too() -> None:
    assert not device_nodes.has_link(NODE, pathlib.Path("/"))
    assert answers() == ("opened", "opened")


UNIT = "drakit-under-test.service"
SERVING_SECONDS = 300
"""An emulated processor takes a minute or more to start the driver."""


@contextlib.contextmanager
def service(folder: pathlib.Path) -> Iterator[None]:
    """The driver as a service of systemd, in a slice of its own."""
    command = [
        "systemd-run",
        "--collect",
        f"--unit={UNIT}",
        "--slice=drakit.slice",
        f"--setenv=PYTHONPATH={pathlib.Path(__file__).parents[1]}",
    ]
    subprocess.run([*command, sys.executable, "-m", "vm.serving", str(folder)], check=True, capture_output=True)
    try:
        serving(folder)
        yield
    finally:
        systemctl("stop", UNIT)


def serving(folder: pathlib.Path) -> None:
    """Wait until the service serves."""
    nic_attach.until((folder / "serving").exists, "the driver's service does not serve", seconds=SERVING_SECONDS)
    (folder / "serving").unlink()


def test_a_reload_and_a_restart_of_the_drivers_service_change_no_running_claim() -> None:
    with tempfile.TemporaryDirectory(prefix="dk") as made, virtual_functions.parent(1) as parent, nic_attach.pod() as pod:
        folder = pathlib.Path(made)
        world = virtual_functions.node(folder, virtual_functions.ROOMY)
        function = parent.interfaces()[0]
        whole = virtual_functions.claim(virtual_functions.device_of(world, function), {"interfaceName": "fast0"})
        device = virtual_functions.device_of(world, parent.name).removesuffix("-whole")
        share = nic_attach.claim(2, bandwidth="50M", parameters={"interfaceName": "shared0"})
        share = virtual_functions.of_device(share, device)
        with world.driver(start=False) as driver:
            refs = [driver.prepare(whole), driver.prepare(share)]
        with service(folder):
            for ref in refs:
                virtual_functions.attach(world, ref, pod)

            def everything() -> object:
                return (pod.space.state(), virtual_functions.shaping(), parent.functions(), [world.edits(ref) for ref in refs])

            before, shaped = everything(), virtual_functions.shaping()
            systemctl("daemon-reload")
            assert virtual_functions.shaping() ^ shaped == set()
            assert everything() == before
            process = systemctl("show", "--property=MainPID", UNIT)
            systemctl("restart", UNIT)
            serving(folder)
            assert systemctl("show", "--property=MainPID", UNIT) != process
            assert everything() == before
            for ref in refs:
                virtual_functions.attach(world, ref, pod, "c2")
            assert everything() == before
        with world.driver(start=False) as driver:
            for ref in refs:
                driver.unprepare(ref)
