"""Fault injection for mock hardware, from outside the process that runs into the faults.

A fault acts at a call, before its effect or between the effect and the answer. The call then hangs until it is released or the process is killed, the
process is killed with SIGKILL, or the call fails. Faults are kept in the machine's directory and consumed under a lock before they act, so a
restarted process does not run into the fault that killed its predecessor.
"""

import contextlib
import dataclasses
import enum
import functools
import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator, Sequence

import drakit
from drakit import machines, tables, wire
from drakit_gpu import nvml_errors

_FILE = "gpu-faults.json"
_LOCK = "gpu-faults.lock"
_STALLS = "gpu-stalled"
_POLL_SECONDS = 0.01
_DIRECTORY_MODE = 0o700


class Moment(enum.Enum):
    """When a fault acts: before the call has its effect, or after it and before the answer."""

    BEFORE = "before"
    AFTER = "after"


class Action(enum.Enum):
    """The effect of a fault."""

    HANG = "hang"
    DIE = "die"
    FAIL = "fail"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault at a method of the port; it skips ``skip`` calls, then acts ``times`` times. ``code`` is the error of a failing call."""

    call: str
    moment: Moment
    action: Action
    code: nvml_errors.Code = nvml_errors.Code.UNKNOWN
    skip: int = 0
    times: int = 1

    def __post_init__(self) -> None:
        if self.call not in nvml_errors.CALLS:
            raise drakit.SettingsError(f"no call {self.call!r}; known are {', '.join(nvml_errors.CALLS)}", key="fault.call")
        for field, least in (("skip", 0), ("times", 1)):
            if getattr(self, field) < least:
                raise drakit.SettingsError(f"{getattr(self, field)} is below {least}", key=f"fault.{field}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stall:
    """A process that hangs at a call."""

    pid: int
    call: str
    moment: Moment


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Content:
    """The content of the file."""

    faults: tuple[Fault, ...]


def _code(name: object) -> nvml_errors.Code:
    if isinstance(name, str) and name in nvml_errors.Code.__members__:
        return nvml_errors.Code[name]
    raise drakit.ConfigError(f"{name!r} is no return code of NVML")


_FORMAT = wire.Format(converters={nvml_errors.Code: wire.Converter(_code, lambda code: code.name)})


class Faults:
    """The faults of the machine in a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._file = directory / _FILE
        self._mirror = machines.Mirror(self._file)

    def arm(self, *faults: Fault) -> None:
        """Add faults to the pending ones."""
        with self._locked():
            self._write([*self._read(), *faults])

    def disarm(self) -> None:
        """Remove all faults and release hanging calls."""
        with self._locked():
            self._write([])
        self.release()

    def stalled(self) -> tuple[Stall, ...]:
        """Return the living processes that hang."""
        with contextlib.suppress(FileNotFoundError):
            stalls = map(_read_stall, sorted((self._directory / _STALLS).iterdir()))
            return tuple(stall for stall in stalls if stall is not None and _is_alive(stall.pid))
        return ()

    def release(self) -> None:
        """Release all hanging calls."""
        with contextlib.suppress(FileNotFoundError):
            for file in (self._directory / _STALLS).iterdir():
                file.unlink(missing_ok=True)

    def trigger(self, call: str, moment: Moment) -> None:
        """Run the first pending fault of this call and moment. Raises CallError if the fault makes the call fail."""
        if not any((fault.call, fault.moment) == (call, moment) for fault in self._read()):
            return
        fault = self._use(call, moment)
        if fault is None:
            return
        if fault.action is Action.FAIL:
            raise nvml_errors.CallError(nvml_errors.CALLS[call], fault.code, f"injected {moment.value} the effect")
        if fault.action is Action.DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        self._hang(call, moment)

    def _use(self, call: str, moment: Moment) -> Fault | None:
        """Return the fault that acts now, or None, and update its counts."""
        with self._locked():
            pending = self._read()
            for index, fault in enumerate(pending):
                if (fault.call, fault.moment) != (call, moment):
                    continue
                left = []
                if fault.skip:
                    left = [dataclasses.replace(fault, skip=fault.skip - 1)]
                elif fault.times > 1:
                    left = [dataclasses.replace(fault, times=fault.times - 1)]
                self._write([*pending[:index], *left, *pending[index + 1 :]])
                return None if fault.skip else fault
        return None

    def _hang(self, call: str, moment: Moment) -> None:
        folder = self._directory / _STALLS
        folder.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        stall_file = folder / f"{os.getpid()}-{time.monotonic_ns()}.json"
        stall_file.write_text(json.dumps(_FORMAT.encode(Stall(pid=os.getpid(), call=call, moment=moment))), "utf-8")
        while stall_file.exists():
            time.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        with machines.locked(self._directory, _LOCK):
            yield

    def _read(self) -> tuple[Fault, ...]:
        """Return the pending faults. Raises SettingsError for a file that somebody wrote wrongly."""
        try:
            text = self._mirror.text()
        except UnicodeDecodeError as error:
            raise drakit.SettingsError(str(error), key=str(self._file)) from error
        return () if text is None else _decode(text, str(self._file))

    def _write(self, faults: Sequence[Fault]) -> None:
        if not faults:
            self._file.unlink(missing_ok=True)
            return
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(_FORMAT.encode(_Content(faults=tuple(faults))), indent=1), "utf-8")
        beside.replace(self._file)


@functools.lru_cache(maxsize=16)
def _decode(text: str, origin: str) -> tuple[Fault, ...]:
    """Return the faults of a file's text. People write it, so it may be YAML."""
    try:
        top = tables.from_yaml(text, origin)
        faults = _FORMAT.decode(_Content, {"faults": top.anything("faults")}).faults
        top.close()
    except drakit.ConfigError as error:
        raise drakit.SettingsError(str(error), key=origin) from error
    return faults


def _read_stall(file: pathlib.Path) -> Stall | None:
    """Return a stall from its file; None if another process is writing or releasing it."""
    try:
        return _FORMAT.decode_or_none(Stall, json.loads(machines.read_bytes(file)))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
