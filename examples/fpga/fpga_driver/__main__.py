"""``python -m fpga_driver``: run the driver, or look at what it offers; ``--help`` tells more."""

import os
import pathlib

import drakit
from fpga_driver import driver, hardware

FOLDER = "FPGA_FOLDER"


def make() -> driver.FpgaDriver:
    """The driver on this node's hardware."""
    return driver.FpgaDriver(hardware.Hardware(pathlib.Path(os.environ.get(FOLDER, "/var/lib/fpga-driver"))))


FAMILY = drakit.family(make, name="fpga")


def main() -> None:
    """The command."""
    drakit.run(make)


if __name__ == "__main__":
    main()
