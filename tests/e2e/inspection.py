"""What a container sees: a program that runs in it and prints that as JSON, and the reading of what it printed."""

import dataclasses
import json
from collections.abc import Mapping

PROGRAM = r"""
import fcntl, json, os, pathlib, signal, socket, stat, struct, sys

def nodes():
    for folder, folders, names in os.walk("/dev"):
        if folder == "/dev":
            folders[:] = set(folders) - {"pts", "shm", "mqueue"}  # Not walked: a test run fills /dev/shm.
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            if stat.S_ISCHR(found.st_mode):
                yield os.path.join(folder, name), f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)} {found.st_mode & 0o777:o}"

def files():
    for place in sorted(pathlib.Path("/var/run/kubernetes.io").rglob("*.json")):
        yield str(place), place.read_text()

def address(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asking, 0x8915, struct.pack("256s", name.encode()))[20:24])
        except OSError:
            return ""

def links():
    for place in pathlib.Path("/sys/class/net").iterdir():
        if (place / "mtu").is_file():
            mac = (place / "address").read_text().strip()
            yield place.name, {"mtu": int((place / "mtu").read_text()), "mac": mac, "address": address(place.name)}

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
mounts = {line.split()[4]: line.split()[5] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}
print(json.dumps({"env": dict(os.environ), "devices": dict(nodes()), "mounts": mounts, "files": dict(files()), "links": dict(links())}), flush=True)
while True:
    signal.pause()
"""
COMMAND = ["python3", "-c", PROGRAM]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """A network interface in the container; ``address`` is its first IPv4 address."""

    mtu: int
    mac: str
    address: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContainerView:
    """What the program found. ``devices`` are character devices by path, as ``MAJOR:MINOR MODE``; ``files`` are of /var/run/kubernetes.io."""

    env: Mapping[str, str]
    devices: Mapping[str, str]
    mounts: Mapping[str, str]
    files: Mapping[str, str]
    links: Mapping[str, Link]

    @classmethod
    def of(cls, line: str) -> "ContainerView":
        """Return what the first line of a container's log says."""
        found = json.loads(line)
        return cls(
            env=found["env"],
            devices=found["devices"],
            mounts=found["mounts"],
            files=found["files"],
            links={name: Link(**link) for name, link in found["links"].items()},
        )

    def gpus(self) -> dict[str, str]:
        """Return the UUIDs of the GPUs and partitions that the container was given, by variable."""
        return {name: value for name, value in self.env.items() if name.startswith("GPU_DEVICE_")}

    def nics(self, fact: str) -> list[str]:
        """Return one fact of every network device that the container was given, sorted."""
        return sorted(value for name, value in self.env.items() if name.startswith("DRAKIT_NIC_") and name.endswith(f"_{fact}"))
