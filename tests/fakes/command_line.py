"""The command line as a person uses it: commands about a mock node of one's own, and claims in files."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import yaml

MACHINE = "dgx-a100-40gb-2gpu"
UID = "4cf8db2d-06c0-4d70-9a51-e59b25b2c16c"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended, and what it wrote."""

    status: int
    out: str
    err: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandLine:
    """Where commands are typed: each about node-1 of a mock machine, kept in a folder of the test's own."""

    run: Callable[..., Result]
    folder: pathlib.Path

    def on_node(self, command: str, *arguments: str) -> Result:
        """Run a command on the mock node."""
        return self.run(command, *arguments, "--mock", MACHINE, "--node", "node-1", "--folder", str(self.folder / "node"))

    def claim_file(self, *results: Mapping[str, object], name: str = "claim", uid: str = UID, config: Sequence[object] = ()) -> str:
        """Write a claim to which these were allocated; returns the file's path."""
        allocation = {"devices": {"results": [dict(result) for result in results], "config": list(config)}}
        return self.write(name, {"status": {"allocation": allocation}}, uid=uid)

    def write(self, name: str, rest: Mapping[str, object], *, uid: str = UID) -> str:
        """Write a claim with anything in it."""
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": {},
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.dump({**claim, **rest}, Dumper=yaml.CSafeDumper))
        return str(file)


def mig(device: str = "gpu-0-mig-3g20gb-9-0", **fields: object) -> dict[str, object]:
    """The allocation of a partition."""
    return {"request": "gpu", "driver": "gpu.drakit.dev", "pool": "node-1", "device": device} | fields


def share(bandwidth: str, **fields: object) -> dict[str, object]:
    """The allocation of a share of a NIC."""
    consumed = {"shareID": "5cf8db2d-06c0-4d70-9a51-e59b25b2c16c", "consumedCapacity": {"bandwidth": bandwidth}}
    return {"request": "net", "driver": "nic.drakit.dev", "pool": "node-1", "device": "pci-0000-0c-00-0"} | consumed | fields
