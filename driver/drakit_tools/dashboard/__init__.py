"""``drakit dashboard``: a local web page of GPUs, NICs and claims, of this node or of a cluster.

``node_source`` and ``cluster_source`` read the state in ``model``, ``server`` serves it only to this user's browser, and ``page.html``, ``page.css``
and ``page.js`` draw it. The dashboard changes nothing on the node or in the cluster.
"""
