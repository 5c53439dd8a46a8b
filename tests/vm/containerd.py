"""Containers of containerd, which systemd runs, confined by containerd's AppArmor profile, as those of a pod are by default."""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fakes import netns, runc, waits

PROFILE = "cri-containerd.apparmor.d"
SERVICE = "containerd.service"
FOLDERS = ("usr", "lib", "lib64")
STARTING_SECONDS = 300


def command(*words: str) -> str:
    """Run a program and return its output. Raises AssertionError with its errors."""
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=waits.SECONDS * 4)
    assert ran.returncode == 0, (words, ran.stderr)
    return ran.stdout


class Containerd(runc.Runc):
    """Runs containers by containerd's client ``ctr``; a container is confined by ``profile``."""

    _executed = 0

    @contextlib.contextmanager
    def running(
        self, space: netns.Namespace, *, sandbox: str, edits: Sequence[Mapping[str, Any]] = (), rights: Sequence[str] = ()
    ) -> Iterator[str]:
        """As of runc."""
        name, bundle = self._bundle(space, ["sleep", "infinity"], sandbox, edits)
        file = bundle / "config.json"
        config = json.loads(file.read_text())
        config["root"]["path"] = str(bundle / "rootfs")
        config["process"]["apparmorProfile"] = PROFILE
        file.write_text(json.dumps(config))
        runc.permit(file, rights)
        _run(name, file)
        try:
            yield name
        finally:
            command("ctr", "task", "delete", "--force", name)
            command("ctr", "container", "delete", name)

    def execute(self, name: str, *words: str) -> str:
        """As of runc."""
        self._executed += 1
        return command("ctr", "task", "exec", "--exec-id", f"exec-{self._executed}", name, *words)

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
    command("systemctl", "start", SERVICE)
    try:
        _until_ready()
        with tempfile.TemporaryDirectory(prefix="drk-ctr-", dir="/tmp") as folder:
            root = pathlib.Path(folder, "root")
            for name in FOLDERS:
                (root / name).mkdir(parents=True)
            # Only flags make ctr load the profile; a container with a configuration of its own must find it there.
            mounts = [f"--mount=type=bind,src=/{name},dst=/{name},options=rbind:ro" for name in FOLDERS]
            command("ctr", "run", "--rm", f"--apparmor-default-profile={PROFILE}", *mounts, "--rootfs", str(root), "first", "/usr/bin/true")
            yield Containerd(pathlib.Path(folder))
    finally:
        command("systemctl", "stop", SERVICE)


def _main_process() -> str:
    return command("systemctl", "show", "--property=MainPID", SERVICE)


def _until_ready() -> None:
    deadline = time.monotonic() + waits.SECONDS * 4
    while subprocess.run(["ctr", "version"], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, "containerd does not answer"
        time.sleep(0.5)
