"""``python -m everything_driver``: run the driver, or look at what it offers; ``--help`` lists the commands. DEVICE_PROFILE chooses the devices."""

import os
import sys

import drakit
from everything_driver import cpu, gpu, net, settings

PROFILE = "DEVICE_PROFILE"


def main() -> None:
    """The command. The profile is no setting of drakit's, because the driver's name and its settings depend on it."""
    match os.environ.get(PROFILE, "gpu"):
        case "gpu":
            drakit.run(gpu.GpuDriver, settings=gpu.Settings)
        case "net":
            drakit.run(net.NetDriver, settings=settings.Settings)
        case "cpu":
            drakit.run(cpu.CpuDriver, settings=cpu.Settings)
        case unknown:
            sys.exit(f"{PROFILE}: {unknown!r} is no profile; choose gpu, net or cpu")


if __name__ == "__main__":
    main()
