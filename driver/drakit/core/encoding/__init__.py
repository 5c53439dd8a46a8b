"""Decoding of JSON into values, and encoding.

``wire`` decodes and encodes dataclasses by their annotations, and ``json_errors`` has the texts of errors. ``device_json`` has the JSON form of
devices, and ``opaque_parameters`` decodes a driver's configuration.
"""
