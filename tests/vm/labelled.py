"""A program in the container of a NIC driver's pod: ``python -m vm.labelled FOLDER NIC ADDRESS``.

It prepares a function and a share of the NIC, writes the edits of their CDI files to ``FOLDER/edits``, and serves until SIGTERM. Then it unprepares
both, and ``FOLDER/done`` is there. Its log is ``FOLDER/log``.
"""

import json
import os
import pathlib
import signal
import sys

from vm import virtual_functions

CDI = pathlib.Path("/run/cdi")


def main() -> None:
    """Serve until a signal comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    folder, name, address = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    world = virtual_functions.node(folder, virtual_functions.ROOMY, cdi=CDI)
    with world.driver() as driver:
        refs = [driver.prepare(claim) for claim in virtual_functions.function_and_share(world, virtual_functions.Parent(name), address)]
        edits = [edit for ref in refs for edit in world.edits(ref)]
        (folder / "edits.new").write_text(json.dumps(edits))
        (folder / "edits.new").rename(folder / "edits")
        signal.sigwait({signal.SIGTERM})
        for ref in refs:
            driver.unprepare(ref)
    (folder / "done").touch()


if __name__ == "__main__":
    main()
