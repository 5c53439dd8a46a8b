"""The pages of an inventory that an API server stores correctly: without the fields that it drops."""

import dataclasses
from collections.abc import Mapping

from drakit.core import inventory
from drakit.core.slices import feature_gates, mixin_factoring, paging, resource_slice
from drakit.node.publishing import feature_probe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """The known capabilities of the API server: whether it stores or drops the fields of each feature gate.

    Fields of a gate that is not in ``stores`` count as stored.
    """

    stores: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    layout: resource_slice.Layout = resource_slice.Layout.APART

    def drops(self, gate: str) -> bool:
        """Return whether the fields of this feature gate are known to be dropped."""
        return self.stores.get(gate) is False

    def with_answer(
        self, *, stored: frozenset[str] = frozenset(), dropped: frozenset[str], layout: resource_slice.Layout | None = None
    ) -> "Server":
        """Return the server with the answer about these feature gates added."""
        answers = {**dict.fromkeys(stored, True), **dict.fromkeys(dropped & GATES, False)}
        return Server(stores={**self.stores, **answers}, layout=layout or self.layout)


GATES = frozenset({feature_gates.NODE_RESOURCES_FIELD}).union(*feature_probe.GATES.values())
_REDUCTIONS = (
    ("DRADeviceTaints", feature_gates.without_taints),
    ("DRAListTypeAttributes", feature_gates.without_lists),
    (feature_gates.NODE_RESOURCES, feature_gates.without_node_resources),
    (feature_gates.NODE_RESOURCES_FIELD, feature_gates.with_node_resource_mappings),
    (feature_gates.NODE_OPERATIONS, feature_gates.without_skipped_operations),
    (feature_gates.PARTITION_TYPE, feature_gates.without_partition_type),
    (feature_gates.GROUPS, feature_gates.without_groups),
    (feature_gates.FRACTIONS, feature_gates.without_fractions),
    ("DRAPartitionableDevices", feature_gates.without_counters),
    ("DRAConsumableCapacity", feature_gates.without_sharing),
)
OFF_BY_DEFAULT = frozenset(
    {
        "DRAListTypeAttributes",
        feature_gates.GROUPS,
        feature_gates.PARTITION_TYPE,
        feature_gates.NODE_OPERATIONS,
        feature_gates.NODE_RESOURCES,
    }
)
"""The gates that are off by default in Kubernetes 1.37."""
DEFAULT_SERVER = Server(stores=dict.fromkeys(OFF_BY_DEFAULT, False))
"""An API server of Kubernetes 1.37 with its default gates, which also stores mixins."""


def pages(offered: inventory.Inventory, server: Server, form: resource_slice.Form) -> tuple[resource_slice.Page, ...]:
    """Return the pages of the inventory that this server stores correctly; the mixins of a flat inventory are factored out."""
    reduced = reduce_for(server, offered)
    if form is resource_slice.Form.MIXINS and reduced.is_flat:
        reduced = mixin_factoring.factor(reduced)
    return paging.paginate(reduced, form=form, layout=server.layout)


def reduce_for(server: Server, offered: inventory.Inventory) -> inventory.Inventory:
    """Return the part of an inventory that this server stores correctly."""
    used = feature_gates.used_by(offered)
    for gate, reduce in _REDUCTIONS:
        if server.drops(gate) and (gate in used or gate == feature_gates.NODE_RESOURCES_FIELD):
            offered = reduce(offered)
    return offered
