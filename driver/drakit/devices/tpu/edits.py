"""What a container is told of its node's part of a slice, in the variables that TPU runtimes read, and the chips it gets.

    TPU_WORKER_ID              the node's place among the slice's nodes, from 0, row by row
    TPU_WORKER_HOSTNAMES       all nodes of the slice, in the order of their workers
    TPU_TOPOLOGY               chips of the slice, rows x columns
    TPU_ACCELERATOR_TYPE       generation and number of chips, for example v5e-16
    TPU_CHIPS_PER_HOST_BOUNDS  chips of each node in x, y and z (columns, rows, 1)
    TPU_HOST_BOUNDS            nodes of the slice in x, y and z

A node is in one slice at a time, so no two claims of a container say different things.
"""

from collections.abc import Sequence

from drakit.core import edits
from drakit.devices.tpu import port, topology


def of(
    one: topology.Placement, *, worker: int, names: Sequence[str], generation: str, host: topology.Size, chips: Sequence[port.Chip]
) -> edits.Edits:
    """The edits of one node's part; ``names`` are the slice's nodes in order."""
    nodes = one.shape.over(host)
    environment = {
        "TPU_WORKER_ID": str(worker),
        "TPU_WORKER_HOSTNAMES": ",".join(names),
        "TPU_TOPOLOGY": str(one.shape),
        "TPU_ACCELERATOR_TYPE": f"{generation}-{one.shape.area}",
        "TPU_CHIPS_PER_HOST_BOUNDS": f"{host.columns},{host.rows},1",
        "TPU_HOST_BOUNDS": f"{nodes.columns},{nodes.rows},1",
    }
    chip_nodes = (edits.DeviceNode(path=chip.path, type="c", major=chip.major, minor=chip.minor) for chip in chips)
    return edits.Edits(env=environment, device_nodes=tuple(chip_nodes))
