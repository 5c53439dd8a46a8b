"""Objects of the API server as dataclasses (``core.encoding.wire``): unknown fields are ignored, and null and empty text are no values."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Annotated, Any

from drakit.core import errors
from drakit.core.encoding import wire

UNREADABLE = (errors.DrakitError, ValueError, TypeError, ArithmeticError, RecursionError)
"""What decoding one object may raise. Whoever decodes a list catches it item by item, so that one object never hides the others."""


def _decode_time(value: object) -> datetime.datetime:
    text = wire.TEXT.decode(value)
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise errors.ConfigError(f"{text!r} is not a time") from error


def _encode_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


TIME = wire.Converter(_decode_time, _encode_time)
CONVERTERS: Mapping[Any, wire.Converter] = {object: wire.ANYTHING, Any: wire.ANYTHING, datetime.datetime: TIME}
FORMAT = wire.Format(ignore_unknown=True, empty_is_absent=True, converters=CONVERTERS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """An object of which nothing but its UID is used."""

    uid: Annotated[str, wire.Field(name="metadata.uid")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectList:
    """One page of a list; each item is decoded by itself. ``continue_`` is empty on the last page."""

    resource_version: Annotated[str, wire.Field(name="metadata.resourceVersion")] = ""
    continue_: Annotated[str, wire.Field(name="metadata.continue")] = ""
    items: tuple[object, ...] = ()


def metadata_text(found: object, key: str) -> str:
    """Return a text of an object's metadata; empty where there is none, of whatever kind the object is."""
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    text = metadata.get(key) if isinstance(metadata, Mapping) else None
    return text if isinstance(text, str) else ""


def name_of(found: object) -> str:
    """Return what an object is called, for a log: namespace and name as far as its metadata has them."""
    return "/".join(filter(None, (metadata_text(found, key) for key in ("namespace", "name")))) or "unknown"
