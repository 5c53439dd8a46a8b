"""The markers of MIG instances: a small file for each slot whose instance drakit creates or created. ``instances`` says when it is written."""

import contextlib
import dataclasses
import json
import os
import pathlib

from drakit_gpu import identity, nvml_errors, port

_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marker:
    """The marker of a slot in one boot. Without a ``file`` nothing is written, and every instance matches."""

    boot: str = ""
    file: pathlib.Path | None = None

    def announce(self) -> None:
        """Record that an instance will be created in the slot, unless the marker names one already. Raises CallError."""
        if self.file is not None and self._read().get("boot") != self.boot:
            self._write(self.file, None)

    def write(self, instance: port.GpuInstance) -> None:
        """Record that this instance was created in the slot. Raises CallError where that cannot be written."""
        if self.file is not None and not self.is_of(instance.id):
            self._write(self.file, instance.id)

    def _write(self, file: pathlib.Path, instance_id: int | None) -> None:
        new = _successor(file)
        try:
            file.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(self._content(instance_id), stream)
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            detail = f"its marker cannot be written to {file}: {error.strerror}"
            raise nvml_errors.CallError(nvml_errors.CALLS["create_gpu_instance"], nvml_errors.Code.UNKNOWN, detail) from error

    def matches(self, instance: port.GpuInstance) -> bool:
        """Return whether the marker names this instance; a truncated file names none."""
        return self.file is None or self.is_of(instance.id)

    def is_of(self, instance_id: int | None) -> bool:
        """Return whether a marker file names the instance of this id; None: one that was about to be created."""
        return self.file is not None and self._read() == self._content(instance_id)

    def remove(self) -> None:
        """Delete the marker, unless it is of another boot."""
        if self.file is not None and self._read().get("boot", self.boot) == self.boot:
            self.file.unlink(missing_ok=True)
            _successor(self.file).unlink(missing_ok=True)

    def _read(self) -> dict[str, object]:
        """Return the content; empty where there is none, or it is truncated."""
        try:
            content = json.loads(self.file.read_text("utf-8")) if self.file is not None else None
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _content(self, instance_id: int | None) -> dict[str, object]:
        return {"boot": self.boot, "gi": instance_id}


def _successor(file: pathlib.Path) -> pathlib.Path:
    """Return the file that is written first and then takes the place of a marker."""
    return file.with_name(f".{file.name}.new")


NO_MARKER = Marker()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkerStore:
    """The markers in a folder, which the first marker creates. Without a folder no markers are written."""

    folder: pathlib.Path | None = None

    def of(self, wanted: identity.Identity) -> Marker:
        """Return the marker of a partition, or NO_MARKER for one that was planned without markers."""
        slot = wanted.slot
        if self.folder is None or slot is None or not wanted.marked:
            return NO_MARKER
        return self.of_slot(slot, wanted.boot)

    def of_slot(self, slot: identity.Slot, boot: str) -> Marker:
        """Return the marker of a slot in a boot, or NO_MARKER without a folder."""
        if self.folder is None:
            return NO_MARKER
        return Marker(boot=boot, file=self.folder / f"{slot.gpu}-{slot.profile_id}-{slot.placement.start}")
