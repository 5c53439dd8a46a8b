"""The version of a driver's intents and records, and their upgrade where the journal is read (``advanced.RecordUpgrade``).

The journal keeps an intent or record in the form in which a release of the driver returned it, with the number of that form under ``KEY``. The
framework upgrades it at every read and never rewrites it. So a crash cannot cut an upgrade short, an upgrade that fails can be repaired by the next
release, and two processes of a rolling update read the same rows. The first form has no number.
"""

import types
from typing import Any, Literal

from drakit.core import advanced, errors, records
from drakit.core import driver as drivers

KEY = "drakit.dev/records-version"
FIRST = 1

Author = drivers.Driver[Any]


def check(author: Author) -> None:
    """Raise TypeError, which names the fix, for a version that is no number or that has no upgrade from the versions before."""
    version: object = of(author)
    kind = type(author).__name__
    if not isinstance(version, int) or version < FIRST:
        raise TypeError(f"{kind}.records_version is {version!r}; write a whole number from {FIRST}")
    if version > FIRST and not isinstance(author, advanced.RecordUpgrade):
        raise TypeError(f"{kind}.records_version is {version}, and {kind} upgrades no earlier version; inherit drakit.RecordUpgrade")


def of(author: Author) -> int:
    """Return the version of what the driver's verbs return. It is read without the protocol's check, which is slow."""
    version: int = getattr(author, "records_version", FIRST)
    return version


def stamped(author: Author, record: records.Record) -> records.Record:
    """Return an intent or record of the driver as the journal keeps it. An empty one has no version. Raises TypeError if it has the key itself."""
    if KEY in record:
        raise TypeError(f"an intent or record of {author.name} has the key {KEY!r}, which drakit reserves; choose another key")
    version = of(author)
    return record if version == FIRST or not record else types.MappingProxyType({**record, KEY: version})


def present(author: Author, stored: records.Record, kind: Literal["intent", "record"]) -> records.Record:
    """Return the driver's present form of a journaled intent or record.

    Raises JournalError for that of a newer release, and RuntimeError where the driver's upgrade fails.
    """
    version, current = stored.get(KEY, FIRST), of(author)
    if version == current == FIRST or not stored:
        return stored
    plain = types.MappingProxyType({key: value for key, value in stored.items() if key != KEY})
    if version == current:
        return plain
    if not isinstance(version, int) or not FIRST <= version < current:
        raise errors.JournalError(
            f"the journal's {kind} has version {version}, and this release of {author.name} reads versions up to {current}; "
            "install the release that wrote it, or a newer one"
        )
    return _upgraded(author, plain, version, kind)


def _upgraded(author: Author, plain: records.Record, version: int, kind: str) -> records.Record:
    try:
        upgraded = getattr(author, f"upgrade_{kind}")(plain, version)
    except Exception as error:
        raise RuntimeError(f"upgrade_{kind}() failed for version {version}: {type(error).__name__}: {error}") from error
    return drivers.frozen(f"upgrade_{kind}()", upgraded)
