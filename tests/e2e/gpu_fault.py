"""Lets something happen to a GPU of a mock machine. ``driver`` has this text run where the machine is, as ``python3 -c``.

Its words: machine, the machine's folder, node, what happens (``report_xid``, ``lose``, ``reset``), the GPU's index, and its Xid.
"""

import pathlib
import sys

from drakit import machines
from drakit_gpu.health import signals
from drakit_gpu.mock import mock_gpus


def main(machine: str, folder: str, owner: str, call: str, index: str, *xid: str) -> None:
    gpus = mock_gpus.MockGpus(machines.Choice(name=machine, directory=pathlib.Path(folder), owner=owner))
    uuid = sorted(gpus.gpus(), key=lambda gpu: gpu.minor)[int(index)].uuid
    if call == "report_xid":
        gpus.report_xid(uuid, int(xid[0]), recovery=signals.RecoveryAction.RESET)
    else:
        getattr(gpus, call)(uuid)


if __name__ == "__main__":
    main(*sys.argv[1:])
