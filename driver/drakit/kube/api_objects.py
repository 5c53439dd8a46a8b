"""Decode objects of the API server as dataclasses (``core.encoding.wire``). Unknown fields are ignored; null and empty text count as absent."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Annotated, Any

from drakit.core import errors
from drakit.core.encoding import wire

UNREADABLE = (errors.DrakitError, ValueError, TypeError, ArithmeticError, RecursionError)
"""The errors that decoding one object may raise. Callers that decode a list catch them for each item, so that one object never hides the others."""


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
    """The UID of an object."""

    uid: Annotated[str, wire.Field(name="metadata.uid")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectList:
    """One page of a list, with undecoded items. ``continue_`` is empty on the last page."""

    resource_version: Annotated[str, wire.Field(name="metadata.resourceVersion")] = ""
    continue_: Annotated[str, wire.Field(name="metadata.continue")] = ""
    items: tuple[object, ...] = ()


def metadata_text(resource: object, key: str) -> str:
    """Return a text of an object's metadata, an empty string where it is absent or the object is malformed."""
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    text = metadata.get(key) if isinstance(metadata, Mapping) else None
    return text if isinstance(text, str) else ""


def name_of(resource: object) -> str:
    """Return the namespace and name of an object for a log line, as far as its metadata has them."""
    return "/".join(filter(None, (metadata_text(resource, key) for key in ("namespace", "name")))) or "unknown"
