"""Containers that podman starts with ``--device`` get their interfaces: podman reads the CDI file itself, and runc runs the hook it names.

Podman looks for CDI files where every runtime does, so the driver of this test has a name of its own: it touches no files but its own there.
"""

import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

import pytest

from fakes import nic_attach, runc, waits

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(300)]

CDI = pathlib.Path("/var/run/cdi")
DRIVER = f"test-{os.getpid()}.drakit.dev"
PROGRAMS = ("bin", "lib", "lib64", "usr", "sbin")
ROOT = ("proc", "sys", "dev", "tmp", "etc", "run", *PROGRAMS)


class Podman:
    """Podman with runc, its storage in a folder of its own, and a root file system made of the host's programs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        for name in ROOT:
            (folder / "rootfs" / name).mkdir(parents=True)

    def run(self, *options: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """``podman run`` until the container ends, or has started where it is detached."""
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        bound = [word for name in PROGRAMS if pathlib.Path("/", name).exists() for word in ("-v", f"/{name}:/{name}:ro")]
        return self.call("run", *limits, *bound, *options, "--rootfs", str(self._folder / "rootfs"), *words)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        place = [
            "--runtime",
            "runc",
            "--cgroup-manager",
            "cgroupfs",
            "--root",
            str(self._folder / "root"),
            "--runroot",
            str(self._folder / "run"),
        ]
        return subprocess.run(["podman", *place, *words], capture_output=True, text=True, timeout=waits.SECONDS, check=False)


@contextlib.contextmanager
def podman() -> Iterator[Podman]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="drk-podman-", dir="/tmp"))
    made = Podman(folder)
    try:
        yield made
    finally:
        made.call("rm", "--all", "--force", "--time", "0")
        remove(folder)


def mounted_below(folder: pathlib.Path) -> list[str]:
    """What is mounted in a folder, the deepest first."""
    points = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)


def remove(folder: pathlib.Path) -> None:
    """Remove podman's folder, and before it what podman mounted there for itself, which stays after its last container.

    The clean-up that each container's monitor starts may still be at work there, mounting and writing: what fails is tried again.
    """
    deadline = time.monotonic() + waits.SECONDS
    while folder.exists():
        for point in mounted_below(folder):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True, timeout=waits.SECONDS)
        with contextlib.suppress(OSError):
            if not mounted_below(folder):
                shutil.rmtree(folder)
        assert time.monotonic() < deadline, f"{folder} cannot be removed; mounted: {mounted_below(folder)}"
        time.sleep(0.05)


@functools.cache
def why_not() -> str:
    """Why podman's containers cannot be run here; empty when they can."""
    if shutil.which("podman") is None:
        return "podman is not installed"
    if runc.why_not():
        return runc.why_not()
    with podman() as trial:
        ran = trial.run("--network", "none", "--rm", words=["true"])
    return f"podman cannot run a container here: {ran.stderr.strip()}" if ran.returncode else ""


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    if why_not():
        pytest.skip(why_not())
    made_here = not CDI.exists()
    try:
        with nic_attach.world() as whole:
            yield nic_attach.World(whole.node, whole.home.parent, name=DRIVER, cdi=CDI)
    finally:
        if made_here:
            with contextlib.suppress(OSError):  # Somebody else uses it by now.
                CDI.rmdir()


def test_podman_containers_share_one_interface_and_none_starts_without_the_driver(world: nic_attach.World) -> None:
    with podman() as runtime:
        with world.driver() as driver:
            ref = driver.prepare(nic_attach.claim(1, driver=DRIVER, parameters={"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}))
            (share,) = driver.machine.shares()
            device = ["--device", f"{DRIVER}/claim={ref.uid}-nic0-{share.id}"]
            first = runtime.run("-d", "--name", "first", "--network", "none", *device, words=["sleep", "infinity"])
            assert first.returncode == 0, first.stderr
            shown = runtime.call("exec", "first", "ip", "-o", "address", "show", "dev", "fast0")
            assert "inet 10.99.1.2/16" in shown.stdout
            second = runtime.run("--network", "container:first", *device, words=["ip", "-o", "link", "show", "fast0"])
            assert second.returncode == 0, second.stderr
            (member,) = driver.members()
            assert member.mac in second.stdout
        refused = runtime.run("--network", "none", *device, words=["echo", "started"])
        assert refused.returncode != 0
        assert "started" not in refused.stdout
        assert "the NIC driver on this node is not running" in refused.stderr
        runtime.call("rm", "--all", "--force", "--time", "0")
        with world.driver() as driver:
            driver.unprepare(ref)
            assert not driver.members()
