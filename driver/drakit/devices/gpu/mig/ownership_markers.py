"""Markers of the GPU instances that this driver created, so that after a crash an admin's instance in the same place is not mistaken for one.

A marker is a small file for a slot, written after the GPU instance is created and before its compute instance is. So an instance that a crashed
prepare may have left, and that has compute instances but no marker, belongs to somebody else. Markers are not synced to disk: they outlive the
process and need not outlive the boot, because no instance does.
"""

import dataclasses
import json
import os
import pathlib

from drakit.devices.gpu import identity, port

_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marker:
    """The marker of a slot in one boot. Without a ``file`` nothing is written, and every instance matches."""

    boot: str = ""
    file: pathlib.Path | None = None

    def write(self, instance: port.GpuInstance) -> None:
        """Record that this instance was created in the slot; raises CallError where that cannot be written."""
        if self.file is None:
            return
        try:
            self.file.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(self._content(instance), stream)
        except OSError as error:
            detail = f"created, but its marker cannot be written to {self.file}: {error.strerror}"
            raise port.CallError(port.CALLS["create_gpu_instance"], port.Code.UNKNOWN, detail) from error

    def matches(self, instance: port.GpuInstance) -> bool:
        """Return whether the marker names this instance; a truncated file names none."""
        if self.file is None:
            return True
        try:
            return bool(json.loads(self.file.read_text("utf-8")) == self._content(instance))
        except (OSError, ValueError):
            return False

    def remove(self) -> None:
        """Delete the marker."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def _content(self, instance: port.GpuInstance) -> dict[str, object]:
        return {"boot": self.boot, "gi": instance.id}


NO_MARKER = Marker()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkerStore:
    """The markers in a folder, which is created with the first; None: no markers are written."""

    folder: pathlib.Path | None = None

    def of(self, wanted: identity.Identity) -> Marker:
        """Return the marker of a partition, or NO_MARKER for one that was planned without markers."""
        slot = wanted.slot
        if self.folder is None or slot is None or not wanted.marked:
            return NO_MARKER
        return Marker(boot=wanted.boot, file=self.folder / f"{slot.gpu}-{slot.profile_id}-{slot.placement.start}")
