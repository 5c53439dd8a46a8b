"""Containers of containerd, which systemd runs, confined as those of a pod are: by containerd's AppArmor profile, or by a label of SELinux."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fakes import netns, runc, waits

PROFILE = "cri-containerd.apparmor.d"
POD_LABEL = "system_u:system_r:container_t:s0:c1,c2"
"""The label of a pod without privileges: the type of containers, and categories of its own."""
_FILE_LABEL = "system_u:object_r:container_file_t:s0"
SERVICE = "containerd.service"
FOLDERS = ("usr", "lib", "lib64")
STARTING_SECONDS = 300
_ROOTS = pathlib.Path("/var/lib/containerd")
_ENTRY = "/entry"
_TESTS = pathlib.Path(__file__).parents[1]


def command(*words: str) -> str:
    """Run a program and return its output. Raises AssertionError with its errors."""
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=waits.SECONDS * 4)
    assert ran.returncode == 0, (words, ran.stderr)
    return ran.stdout


class Containerd(runc.Runc):
    """Runs containers by containerd's client ``ctr``. ``confinement`` is what confines a pod's process: a field of its OCI configuration."""

    def __init__(self, folder: pathlib.Path, confinement: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._confinement = confinement
        self._executed = 0

    @contextlib.contextmanager
    def running(
        self, space: netns.Namespace, *, sandbox: str, edits: Sequence[Mapping[str, Any]] = (), rights: Sequence[str] = ()
    ) -> Iterator[str]:
        """As of runc."""
        name, bundle = self._bundle(space, [*self._entry(), "sleep", "infinity"], sandbox, edits)
        file = bundle / "config.json"
        config = json.loads(file.read_text())
        config["process"].update(self._confinement)
        file.write_text(json.dumps(config))
        runc.permit(file, rights)
        with self._started(name, bundle):
            yield name

    @contextlib.contextmanager
    def on_the_host_s_network(self, words: Sequence[str], *, folders: Sequence[str], label: str, rights: Sequence[str]) -> Iterator[str]:
        """A container with a label, these folders of the host and these capabilities alone, as a driver's pod has them."""
        name, bundle = self._bundle(netns.Namespace("none"), [*self._entry(), *words], "driver", [])
        file = bundle / "config.json"
        config = json.loads(file.read_text())
        config["linux"]["namespaces"] = [each for each in config["linux"]["namespaces"] if each["type"] != "network"]
        config["process"]["selinuxLabel"] = label
        config["process"]["env"] = [f"PATH={os.environ['PATH']}", f"PYTHONPATH={_TESTS}"]
        config["process"]["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted"), rights)
        config["mounts"] += [{"destination": each, "type": "bind", "source": each, "options": ["rbind", "rw"]} for each in folders]
        file.write_text(json.dumps(config))
        with self._started(name, bundle):
            yield name

    def execute(self, name: str, *words: str) -> str:
        """As of runc."""
        self._executed += 1
        return command("ctr", "task", "exec", "--exec-id", f"exec-{self._executed}", name, *self._entry(), *words)

    def process(self, name: str) -> int:
        """The process of a container."""
        for line in command("ctr", "task", "list").splitlines():
            match line.split():
                case [listed, process, "RUNNING"] if listed == name:
                    return int(process)
        raise AssertionError(f"container {name} does not run")

    def restart(self) -> None:
        """Let systemd restart containerd, and wait until it answers. Its containers go on."""
        before = _main_process()
        command("systemctl", "restart", SERVICE)
        assert _main_process() != before
        _until_ready()

    def _entry(self) -> tuple[str, ...]:
        return (_ENTRY,) if "selinuxLabel" in self._confinement else ()

    @contextlib.contextmanager
    def _started(self, name: str, bundle: pathlib.Path) -> Iterator[None]:
        file = bundle / "config.json"
        config = json.loads(file.read_text())
        config["root"]["path"] = str(bundle / "rootfs")
        if self._entry():
            config["linux"]["mountLabel"] = _FILE_LABEL
            # A container starts with a file of its image only, which the host's programs are not. This one runs them.
            shutil.copy("/usr/bin/env", f"{bundle / 'rootfs'}{_ENTRY}")
            command("chcon", "-R", _FILE_LABEL, str(bundle / "rootfs"))
        file.write_text(json.dumps(config))
        _run(name, file)
        try:
            yield
        finally:
            command("ctr", "task", "delete", "--force", name)
            command("ctr", "container", "delete", name)


def _run(name: str, config: pathlib.Path) -> None:
    """Start a container, and again where the driver does not answer its hook in time, as it may in an emulated machine."""
    deadline = time.monotonic() + STARTING_SECONDS
    words = ["ctr", "run", "--detach", "--null-io", "--config", str(config), name]
    while (ran := subprocess.run(words, capture_output=True, text=True, check=False)).returncode:
        assert "in time" in ran.stderr, ran.stderr
        assert time.monotonic() < deadline, "the driver answers no hook in time"
        subprocess.run(["ctr", "container", "delete", name], capture_output=True, check=False)


@contextlib.contextmanager
def started() -> Iterator[Containerd]:
    """containerd as a service that runs, with its AppArmor profile in the kernel."""
    with _serving() as folder:
        root = folder / "root"
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
        # Only flags make ctr load the profile; a container with a configuration of its own must find it there.
        mounts = [f"--mount=type=bind,src=/{name},dst=/{name},options=rbind:ro" for name in FOLDERS]
        command("ctr", "run", "--rm", f"--apparmor-default-profile={PROFILE}", *mounts, "--rootfs", str(root), "first", "/usr/bin/true")
        yield Containerd(folder, {"apparmorProfile": PROFILE})


@contextlib.contextmanager
def labelled() -> Iterator[Containerd]:
    """containerd as a service that runs, whose pods have a label of SELinux."""
    with _serving() as folder:
        # A container's root is in a mount of its own, as with containerd's images. runc may not change the mount of the host's root.
        command("mount", "-t", "tmpfs", "-o", f"mode=755,rootcontext={_FILE_LABEL}", "tmpfs", str(folder))
        try:
            yield Containerd(folder, {"selinuxLabel": POD_LABEL})
        finally:
            command("umount", str(folder))


@contextlib.contextmanager
def _serving() -> Iterator[pathlib.Path]:
    command("systemctl", "start", SERVICE)
    try:
        _until_ready()
        with tempfile.TemporaryDirectory(prefix="drk-ctr-", dir=_ROOTS) as folder:
            yield pathlib.Path(folder)
    finally:
        command("systemctl", "stop", SERVICE)


def _main_process() -> str:
    return command("systemctl", "show", "--property=MainPID", SERVICE)


def _until_ready() -> None:
    deadline = time.monotonic() + waits.SECONDS * 4
    while subprocess.run(["ctr", "version"], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, "containerd does not answer"
        time.sleep(0.5)
