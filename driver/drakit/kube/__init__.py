"""The API server: claims in, slices out, as plain JSON.

What belongs here: the client, the codecs between resource.k8s.io/v1 JSON and the core's values, and the adapters of ``ports.ClaimSource`` and
``ports.SliceStore``. What does not: any decision about what to prepare or publish.
"""
