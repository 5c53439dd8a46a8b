"""``drakit demo``: shows a node with mock hardware on a local cluster step by step, and checks each step.

``command`` is the command line, ``story`` runs the ``chapters`` in order, ``demo_cluster`` has the cluster, driver and API that they use, ``samples``
the manifests, ``node_view`` reads the node's state, and ``stage`` prints.
"""
