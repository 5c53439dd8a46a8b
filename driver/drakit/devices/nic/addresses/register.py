"""Who was noted to have which address, in memory, so that nobody reads every claim's notes to find the holder of one.

The notes of grants are the truth and this is a guide to them: it may name places where an address no longer is, and never lacks one where it is. So
what it names is looked up before it counts, and an address that it does not name is free. It is learnt from the notes once, and again only after
another process has given addresses out (in a rolling update there are two): a file in the driver's folder says who did so last. All calls but
``forget`` are made under the lock of addresses; ``forget`` is safe at any time.
"""

import dataclasses
import os
import pathlib
import secrets
import threading
from collections.abc import Iterable

from drakit.core import errors, names

FILE = "addresses.by"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoteLocation:
    """Where an address is noted: a grant, by what it is found by, and the key of the note."""

    claim: names.ClaimUid
    device: str
    share_id: names.ShareId | None
    key: str


class AddressIndex:
    """Addresses without prefix, and the places where they were noted. ``home`` is the driver's durable folder."""

    def __init__(self, home: pathlib.Path) -> None:
        self._file = home / FILE
        self._name = secrets.token_hex(16)
        self._guard = threading.Lock()
        self._places: dict[str, frozenset[NoteLocation]] = {}

    def is_current(self) -> bool:
        """Whether no other process has given addresses out since ``learn``."""
        try:
            return self._file.read_text("ascii") == self._name
        except (OSError, ValueError):
            return False

    def learn(self, found: Iterable[tuple[str, NoteLocation]]) -> None:
        """Take what was read from all notes in place of what was known. Raises HardwareError where that cannot be said to other processes."""
        places = list(found)
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(self._name)
        except OSError as error:
            raise errors.HardwareError("addresses", f"{self._file} cannot be written: {error}") from error
        with self._guard:
            self._places = {}
        for host, place in places:
            self.add(host, place)

    def add(self, host: str, place: NoteLocation) -> None:
        """An address was noted there."""
        with self._guard:
            self._places[host] = self._places.get(host, frozenset()) | {place}

    def forget(self, host: str, place: NoteLocation) -> None:
        """An address is noted there no more."""
        with self._guard:
            # Readers take no lock: an address that stays noted somewhere must not be missing for a moment.
            left = self._places.get(host, frozenset()) - {place}
            if left:
                self._places[host] = left
            else:
                self._places.pop(host, None)

    def places(self, host: str) -> frozenset[NoteLocation]:
        """Where an address may be noted."""
        return self._places.get(host, frozenset())

    def __contains__(self, host: object) -> bool:
        """Whether an address may be noted anywhere."""
        return host in self._places
