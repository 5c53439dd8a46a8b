"""The shape of every kind as data: field names, types, list keys, limits and string formats.

Belongs here: what holds for one field alone. Rules between fields, and rules about change, belong to ``validation``.
"""
