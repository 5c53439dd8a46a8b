"""``python -m hello_driver``: run the driver, or look at what it offers; ``--help`` lists the commands."""

import os
import pathlib

import drakit
from hello_driver import driver, hardware

FOLDER = "HELLO_FOLDER"


def make() -> driver.HelloDriver:
    """Return the driver for this node's hardware."""
    return driver.HelloDriver(hardware.Hardware(pathlib.Path(os.environ.get(FOLDER, "/var/lib/hello-driver"))))


def main() -> None:
    """The command."""
    drakit.run(make)


if __name__ == "__main__":
    main()
