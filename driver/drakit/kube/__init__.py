"""The adapters of the API server: they read claims and write slices, statuses and Events, as plain JSON.

This package has the client, the codecs between resource.k8s.io/v1 JSON and the core's values, and the adapters of ports such as
``ports.ClaimSource`` and ``ports.SliceStore``. It decides nothing about what to prepare or publish.
"""
