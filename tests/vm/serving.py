"""A program that serves the NIC driver of ``virtual_functions.node`` until SIGTERM, with its state in a folder: ``python -m vm.serving FOLDER``."""

import pathlib
import signal
import sys

from vm import virtual_functions


def main() -> None:
    """Serve until a signal comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with virtual_functions.node(pathlib.Path(sys.argv[1]), virtual_functions.ROOMY).driver():
        (pathlib.Path(sys.argv[1]) / "serving").touch()
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main()
