"""The shape of every kind as data: field names, types and list keys.

Belongs here: names, types, list keys and what a document must say, as decoding, merging and the OpenAPI need them. What values are
allowed belongs to ``validation``.
"""
