"""The shape of every kind as data: field names, types and list keys.

This package has names, types, list keys and required fields, for decoding, merging and the OpenAPI. Rules about allowed values belong to
``validation``.
"""
