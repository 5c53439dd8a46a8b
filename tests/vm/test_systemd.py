"""systemd reloads its units while containers have devices of claims."""

import contextlib
import json
import pathlib
import subprocess
import uuid
from collections.abc import Iterator

import pytest

import drakit
from drakit.cdi import spec
from drakit.core import edits, names
from drakit_gpu import device_nodes
from fakes import netns, runc

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
