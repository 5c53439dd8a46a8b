"""``python -m cpu_driver``: run the driver, or look at what it offers; ``--help`` tells more."""

import os
import pathlib

import drakit
from cpu_driver import driver, topology

ROOT, RESERVED = "CPU_ROOT", "CPU_RESERVED"


def make() -> driver.CpuDriver:
    """The driver on this node's cores but those reserved for the system."""
    root = pathlib.Path(os.environ.get(ROOT, str(topology.SYSTEM)))
    return driver.CpuDriver(topology.Topology(root, reserved=topology.parse(os.environ.get(RESERVED, ""))))


FAMILY = drakit.family(make, name="cpu")


def main() -> None:
    """The command."""
    drakit.run(make)


if __name__ == "__main__":
    main()
