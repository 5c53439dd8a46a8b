"""``python -m hello_driver``: run the driver, or look at what it offers; ``--help`` lists the commands."""

import drakit
from hello_driver import driver, hardware, settings


def make(own: settings.Settings) -> driver.HelloDriver:
    """Return the driver for this node's hardware."""
    return driver.HelloDriver(hardware.Hardware(own.folder))


FAMILY = drakit.family(make, settings=settings.Settings, name="hello")


def main() -> None:
    """The command."""
    drakit.run(make, settings=settings.Settings)


if __name__ == "__main__":
    main()
