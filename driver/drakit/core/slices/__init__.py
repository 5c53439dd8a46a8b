"""The values and decisions of a pool's ResourceSlices: pages, the changes that publish them, and the fields that feature gates drop.

``resource_slice`` has the values. ``paging`` splits an inventory into pages, ``reconcile`` compares pages with published slices, and
``mixin_factoring`` moves repeated facts into mixins. ``node_selection`` has the nodes of devices, and ``leader_election`` decides which process
writes a pool. ``feature_gates`` finds the gate that dropped a field, and reduces an inventory accordingly.
"""
