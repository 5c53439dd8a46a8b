"""JSON in and out of values.

``wire`` reads and writes dataclasses by their annotations, ``json_errors`` words errors, ``device_json`` has the API's
words for devices, and ``opaque_parameters`` decodes a driver's configuration.
"""
