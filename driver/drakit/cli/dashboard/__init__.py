"""``drakit dashboard``: a local web page of GPUs, NICs and claims, of this node or of a cluster.

``model`` is what the page shows, ``node_source`` and ``cluster_source`` read it, ``server`` serves it to this user's browser only, and ``page.html``,
``page.css`` and ``page.js`` draw it. Nothing here changes anything on the node or in the cluster.
"""
