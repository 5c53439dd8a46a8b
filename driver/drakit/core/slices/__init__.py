"""ResourceSlices of one pool as values and decisions: pages, the changes that publish them, and what feature gates drop.

``resource_slice`` has the values, ``paging`` cuts an inventory into pages, ``reconcile`` compares pages with what is published, ``mixin_factoring``
finds mixins for repeated facts, ``node_selection`` says on which nodes devices are, ``leader_election`` decides who of several
writes a pool, and ``feature_gates`` names the gate that dropped a field and reduces an inventory accordingly.
"""
