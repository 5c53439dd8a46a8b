"""JSON by schema: frozen dataclasses decoded from JSON and encoded to it, for what a driver keeps in records and files.

``Format`` has the rules, ``Field`` the name or type of one field where it differs, ``Converter`` the functions of a type of one's own.
"""

from drakit.core.encoding.wire import Converter, Field, Format

__all__ = ["Converter", "Field", "Format"]
