"""Real containers, run by runc as a CRI runtime runs them: a sandbox's network namespace, and containers that join it, with the edits of CDI devices.

A container's root is a temporary folder with the host's programs in it, read-only. What containerd does between CDI and runc is done here: variables
and hooks of the CDI files go into the container's OCI configuration, and its annotations name the sandbox.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fakes import netns, waits

_PROGRAMS = ("bin", "lib", "lib64", "usr", "sbin")


@dataclasses.dataclass(frozen=True)
class Ran:
    """How a container ended: runc's exit status and what was written."""

    code: int
    stdout: str
    stderr: str


class Runc:
    """Runs containers; ``folder`` keeps their state. ``systemd``: in units of systemd, as the kubelet's systemd cgroup driver has it."""

    def __init__(self, folder: pathlib.Path, *, systemd: bool = False) -> None:
        self._folder, self._systemd = folder, systemd
        self._count = 0

    def run(self, space: netns.Namespace, words: Sequence[str], *, sandbox: str, edits: Sequence[Mapping[str, Any]] = ()) -> Ran:
        """Run a container in a sandbox's network namespace until it ends."""
        name, bundle = self._bundle(space, words, sandbox, edits)
        ran = subprocess.run(
            self.command("run", "--bundle", str(bundle), name), capture_output=True, text=True, timeout=waits.SECONDS, check=False
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    @contextlib.contextmanager
    def running(
        self, space: netns.Namespace, *, sandbox: str, edits: Sequence[Mapping[str, Any]] = (), rights: Sequence[str] = ()
    ) -> Iterator[str]:
        """A container that stays, its root with these capabilities beside runc's own (``CAP_NET_ADMIN``); its name. It is killed and deleted."""
        name, bundle = self._bundle(space, ["sleep", "infinity"], sandbox, edits)
        permit(bundle / "config.json", rights)
        # A detached container inherits the standard streams, so nobody may wait for their end.
        subprocess.run(
            self.command("run", "--detach", "--bundle", str(bundle), name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=waits.SECONDS,
            check=True,
        )
        try:
            yield name
        finally:
            subprocess.run(self.command("delete", "--force", name), capture_output=True, timeout=waits.SECONDS, check=True)

    def execute(self, name: str, *words: str) -> str:
        """What a program prints in a running container."""
        ran = subprocess.run(self.command("exec", name, *words), capture_output=True, text=True, timeout=waits.SECONDS, check=True)
        return ran.stdout

    def command(self, *words: str) -> list[str]:
        """The command line of a call of runc."""
        return ["runc", "--root", str(self._folder / "state"), *(["--systemd-cgroup"] if self._systemd else []), *words]

    def _bundle(
        self, space: netns.Namespace, words: Sequence[str], sandbox: str, edits: Sequence[Mapping[str, Any]]
    ) -> tuple[str, pathlib.Path]:
        self._count += 1
        name = f"drakit-{os.getpid()}-{self._count}"
        bundle = self._folder / name
        (bundle / "rootfs").mkdir(parents=True)
        subprocess.run(["runc", "spec", "--bundle", str(bundle)], capture_output=True, timeout=waits.SECONDS, check=True)
        file = bundle / "config.json"
        config = json.loads(file.read_text())
        file.write_text(json.dumps(_changed(config, space, words, sandbox, edits, f"system.slice:drakit:{name}" if self._systemd else "")))
        return name, bundle


def _changed(
    config: dict[str, Any], space: netns.Namespace, words: Sequence[str], sandbox: str, edits: Sequence[Mapping[str, Any]], cgroup: str
) -> dict[str, Any]:
    """runc's own example configuration, with what this container is."""
    config["process"].pop("rlimits", None)
    config["process"] |= {"terminal": False, "args": list(words)}
    config["process"]["env"] += [variable for one in edits for variable in one.get("env", ())]
    config["root"] = {"path": "rootfs", "readonly": False}
    for program in _PROGRAMS:
        if pathlib.Path("/", program).exists():
            bound = {"destination": f"/{program}", "type": "bind", "source": f"/{program}", "options": ["rbind", "ro"]}
            config["mounts"].append(bound)
    network = next(item for item in config["linux"]["namespaces"] if item["type"] == "network")
    network["path"] = space.path
    config["annotations"] = {"io.kubernetes.cri.sandbox-id": sandbox, "io.kubernetes.cri.container-type": "container"}
    if cgroup:
        config["linux"]["cgroupsPath"] = cgroup
    for node in (node for one in edits for node in one.get("deviceNodes", ())):
        number = {key: node[key] for key in ("type", "major", "minor")}
        config["linux"].setdefault("devices", []).append({"path": node["path"], "fileMode": 0o666, "uid": 0, "gid": 0, **number})
        config["linux"]["resources"]["devices"].append({"allow": True, "access": node.get("permissions", "rwm"), **number})
    config["hooks"] = {}
    for hook in (hook for one in edits for hook in one.get("hooks", ())):
        own = {key: value for key, value in hook.items() if key != "hookName"}
        config["hooks"].setdefault(hook["hookName"], []).append(own)
    return config


def permit(file: pathlib.Path, rights: Sequence[str]) -> None:
    """Give the root of a bundle's container these capabilities too."""
    config = json.loads(file.read_text())
    config["process"]["capabilities"] = {kind: [*held, *rights] for kind, held in config["process"]["capabilities"].items()}
    file.write_text(json.dumps(config))


@contextlib.contextmanager
def runtime(*, systemd: bool = False) -> Iterator[Runc]:
    """A runtime with a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="drk-runc-", dir="/tmp") as folder:
        yield Runc(pathlib.Path(folder), systemd=systemd)


@functools.cache
def why_not() -> str:
    """Why containers cannot be run here; empty when they can."""
    if shutil.which("runc") is None:
        return "runc is not installed"
    if netns.why_not():
        return netns.why_not()
    with runtime() as trial, netns.namespace() as space:
        ran = trial.run(space, ["true"], sandbox="trial")
    return f"runc cannot run a container here: {ran.stderr.strip()}" if ran.code else ""
