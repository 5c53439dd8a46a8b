"""``python -m everything_driver``: run the driver, or look at what it offers; ``--help`` lists the commands."""

import os
import pathlib

import drakit
from everything_driver import driver


def make() -> driver.EverythingDriver:
    """Return the driver for this node's made-up hardware."""
    folder = pathlib.Path(os.environ.get("EVERYTHING_FOLDER", "/var/lib/everything-driver"))
    return driver.EverythingDriver(folder, gpus=int(os.environ.get("EVERYTHING_GPUS", "2")))


def main() -> None:
    """The command."""
    drakit.run(make)


if __name__ == "__main__":
    main()
