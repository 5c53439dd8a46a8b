"""The API server: claims are read, slices and statuses written, as plain JSON.

What belongs here: the client, the codecs between resource.k8s.io/v1 JSON and the core's values, and the adapters of ``ports.ClaimSource`` and
``ports.SliceStore``. What does not: any decision about what to prepare or publish.
"""
