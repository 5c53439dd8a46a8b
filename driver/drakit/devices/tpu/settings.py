"""The admin's settings of the TPU family."""

import dataclasses

from drakit.core import node_selection


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuSettings:
    """``nodes`` name the nodes of the pool row by row (empty: as the machine's file says); ``label`` is the node label that holds such a name."""

    nodes: tuple[str, ...] = ()
    label: str = node_selection.HOSTNAME
