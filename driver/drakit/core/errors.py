"""The errors that drakit raises on purpose, by who must act.

    DrakitError
    |-- ConfigError            the user: a claim, class or request must be changed
    |   `-- QuantityError      a text that is not a Kubernetes quantity
    |-- InventoryError         the driver's author: the API server would reject what discover() returned
    |-- ClaimError             the kubelet retries: the claim is deleted, not allocated, replaced, or names a device that this node lacks
    |-- DeviceGoneError        the operator: the hardware is gone
    |-- DeviceBusyError        the kubelet retries: another claim or program still holds the device
    |-- RetryError             the kubelet retries, after a number of seconds
    |-- ReleaseDeferredError   nobody: the hardware cannot be reached now; drakit releases the claim later, and its pod may end
    |-- CallerGoneError        nobody: the kubelet stopped waiting; the next call continues after the finished devices
    |   `-- LockedError        the operator, where it recurs: another call holds the lock of the claim or of a device
    |-- JournalError           the operator: the journal cannot be read or written
    |-- CdiError               the operator: the CDI directory cannot be read or written
    |-- HardwareError          the operator: a hardware call failed; ``call`` is its name
    |-- ApiError               the kubelet retries: the API server rejected the request or did not answer; ``status`` is the HTTP status
    `-- SettingsError          the operator: a setting is unknown or malformed

Messages are shown verbatim in pod events, so they are short and name the field and the fix.
"""

import enum
from typing import TypeVar

from drakit import texts

Invalid = TypeVar("Invalid", "ConfigError", "InventoryError")


class DrakitError(Exception):
    """Base of all errors that drakit raises on purpose. Any other error is a bug. The message may quote values from outside, so it is cut."""

    def __init__(self, message: str = "") -> None:
        super().__init__(texts.cut(message))


class ConfigError(DrakitError):
    """Invalid input of a user. Retries fail until the user changes it.

    ``field`` is the path of the invalid value, empty if the whole is invalid. A driver names the field of its configuration as users write it, in
    ``__post_init__`` and in every verb alike: ``maxDegrees``. The framework adds where the configuration is: ``parameters.maxDegrees``.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = texts.cut(field)
        self.reason = texts.cut(message)

    def with_prefix(self, prefix: str) -> "ConfigError":
        """Return the same error with ``prefix`` before its field."""
        return restated(self, self.reason, field=join_path(prefix, self.field))


class QuantityError(ConfigError, ValueError):
    """A text that is not a Kubernetes Quantity."""


class InventoryError(DrakitError, ValueError):
    """A device, counter set, mixin or policy that breaks a rule of the resource.k8s.io API. ``field`` is its path."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = texts.cut(field)
        self.reason = texts.cut(message)

    def with_prefix(self, prefix: str) -> "InventoryError":
        """Return the same error with ``prefix`` before its field."""
        return restated(self, self.reason, field=join_path(prefix, self.field))


class ClaimFault(enum.Enum):
    """The reason why a claim cannot be prepared on this node."""

    NOT_FOUND = "not-found"
    NOT_ALLOCATED = "not-allocated"
    REPLACED = "replaced"
    FOREIGN = "foreign"
    UNKNOWN_DEVICE = "unknown-device"
    MALFORMED = "malformed"


class ClaimError(DrakitError):
    """A claim that cannot be prepared in its present form."""

    def __init__(self, fault: ClaimFault, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.fault = fault
        self.field = texts.cut(field)


class DeviceGoneError(DrakitError):
    """The hardware behind a device is gone."""


class DeviceBusyError(DrakitError):
    """Another claim, or another program, still holds the device."""


class RetryError(DrakitError):
    """A temporary failure. ``after`` is the suggested pause in seconds."""

    def __init__(self, message: str, *, after: float) -> None:
        super().__init__(message)
        self.after = after


class ReleaseDeferredError(DrakitError):
    """A claim whose hardware cannot be reached now. Its pod may end; the journal keeps the claim until a later ``unprepare`` succeeds.

    ``unprepare`` raises it only where no pod can use the hardware meanwhile.
    """


class CallerGoneError(DrakitError):
    """The kubelet stopped waiting. Its next call continues after the finished devices."""


class LockedError(CallerGoneError):
    """A wait that ended because another call still held the lock named ``lock``: a claim's UID, or a lock name of a device."""

    def __init__(self, message: str, *, lock: str) -> None:
        super().__init__(message)
        self.lock = lock


class JournalError(DrakitError):
    """The journal cannot be read or written."""


class CdiError(DrakitError):
    """The CDI directory cannot be read or written."""


class HardwareError(DrakitError):
    """A failed call to the hardware. ``call`` is its name, for example ``nvmlDeviceCreateGpuInstanceWithPlacement``."""

    def __init__(self, call: str, message: str) -> None:
        super().__init__(f"{call}: {message}")
        self.call = call


class ApiError(DrakitError):
    """A request that the API server rejected or did not answer. ``status`` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class SettingsError(DrakitError):
    """An unknown or malformed setting. ``key`` is its name as the user wrote it."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key


def restated(error: Invalid, message: str, *, field: str) -> Invalid:
    """Return the same error with another message and field. It calls no constructor: that of an author's subclass may take other arguments."""
    restated = type(error).__new__(type(error))
    restated.__dict__.update(error.__dict__)
    restated.args = (texts.cut(f"{field}: {message}" if field else message),)
    restated.field, restated.reason = texts.cut(field), texts.cut(message)
    return restated


def join_path(prefix: str, field: str) -> str:
    """Join two parts of a field path: ``a`` and ``b`` give ``a.b``, ``a`` and ``[0]`` give ``a[0]``."""
    if not prefix or not field:
        return prefix or field
    return f"{prefix}{field}" if field.startswith("[") else f"{prefix}.{field}"
