"""``drakit demo``: a node with mock hardware on a local cluster, shown step by step, each step checked.

``command`` is the command line, ``story`` the order of the chapters, ``chapters`` the chapters. ``demo_cluster`` is what they act on (cluster,
driver, API), ``node_view`` reads the node's state, and ``stage`` prints.
"""
