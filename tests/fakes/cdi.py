"""A CDI directory in memory: core.ports.CdiDirectory with the contract of the real one, refusals included."""

from collections.abc import Mapping

from drakit.cdi import spec
from drakit.core import edits, errors, names, ports


class MemoryCdi:
    """``files`` is what a runtime would see: file name to bytes. Empty it to play a reboot, which clears /var/run/cdi."""

    def __init__(self, driver: str) -> None:
        self._driver = spec.check_driver(driver)
        self.files: dict[str, bytes] = {}

    def write(self, name: edits.CdiName, content: edits.Edits) -> None:
        self.files[spec.file_name(name)] = self._encoded(name, content)

    def remove(self, claim_uid: names.ClaimUid) -> None:
        spec.check_uid(claim_uid, "claim.uid")
        for name in [name for name in self.files if self._uid_of(name) == claim_uid]:
            del self.files[name]

    def claims(self) -> frozenset[names.ClaimUid]:
        return frozenset(self._uid_of(name) for name in self.files)

    def of(self, claim_uid: names.ClaimUid) -> Mapping[edits.CdiName, edits.Edits | None]:
        spec.check_uid(claim_uid, "claim.uid")
        own = {file: content for file, content in sorted(self.files.items()) if self._uid_of(file) == claim_uid}
        named = [(spec.identity(content, self._driver), file, content) for file, content in own.items()]
        return {name: _believed(name, content) for name, file, content in named if name is not None and spec.file_name(name) == file}

    def _uid_of(self, name: str) -> names.ClaimUid:
        return names.ClaimUid(name.removeprefix(spec.file_prefix(self._driver))[:36])

    def _encoded(self, name: edits.CdiName, content: edits.Edits) -> bytes:
        if name.driver != self._driver:
            raise errors.CdiError(f"driver: {name.driver!r} is not {self._driver!r}, the owner of these files")
        return spec.encode(name, content)


def holds(cdi: ports.CdiDirectory, name: edits.CdiName, content: edits.Edits) -> bool:
    """Return whether the directory has this file, as ``write`` leaves it."""
    return cdi.of(name.claim_uid).get(name) == content


def _believed(name: edits.CdiName, content: bytes) -> edits.Edits | None:
    try:
        return spec.decode(name, content)
    except errors.CdiError:
        return None
