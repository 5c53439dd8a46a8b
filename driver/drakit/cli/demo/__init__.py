"""``drakit demo``: a node with pretend hardware on a local cluster, shown step by step, and checked at every one.

``command`` is the command line, ``story`` the order of the chapters, ``chapters`` the chapters themselves; ``world`` is what they act on (cluster,
driver, API), ``onlooker`` how they look at the node, and ``stage`` how they tell it.
"""
