"""Every error drakit raises on purpose, sorted by who must act.

    DrakitError
    |-- ConfigError            the user: a claim, class or request must be changed
    |   `-- QuantityError      a quantity that Kubernetes would not parse
    |-- InventoryError         the driver's author: discover() returned what the API server would refuse
    |-- ClaimError             the kubelet retries: the claim is gone, not allocated, replaced, or names what this node lacks
    |-- DeviceGoneError        the operator: the hardware is no longer there
    |-- DeviceBusyError        the kubelet retries: someone else still holds the device
    |-- RetryError             the kubelet retries: not now, with a hint when
    |-- CallerGoneError        nobody: the kubelet stopped waiting; the next call goes on with what is finished
    |-- JournalError           the operator: the driver's memory cannot be read or written
    |-- CdiError               the operator: the CDI directory cannot be read or written
    |-- HardwareError          the operator: a hardware call failed; carries the call's name
    |-- ApiError               the kubelet retries: the API server refused or did not answer; carries the HTTP status
    `-- SettingsError          the operator: a setting is unknown or malformed

Messages are shown verbatim in pod events, so they are short and name the field and the fix.
"""

import enum


class DrakitError(Exception):
    """Base of all errors raised on purpose; anything else is a bug."""


class ConfigError(DrakitError):
    """What a user wrote cannot be accepted; retrying will not help until it is changed.

    ``field`` is the path of the offending value, for example ``parameters.sharing.strategy``; empty when the whole is meant.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.reason = message

    def with_prefix(self, prefix: str) -> "ConfigError":
        """Return the same error with ``prefix`` before its field."""
        return type(self)(self.reason, field=join_path(prefix, self.field))


class QuantityError(ConfigError, ValueError):
    """Text that is not a Kubernetes Quantity."""


class InventoryError(DrakitError, ValueError):
    """A device, counter set, mixin or policy that breaks a rule of the resource.k8s.io API; ``field`` says which."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.reason = message

    def with_prefix(self, prefix: str) -> "InventoryError":
        """Return the same error with ``prefix`` before its field."""
        return type(self)(self.reason, field=join_path(prefix, self.field))


class ClaimFault(enum.Enum):
    """Why a claim cannot be prepared here."""

    NOT_FOUND = "not-found"
    NOT_ALLOCATED = "not-allocated"
    REPLACED = "replaced"
    FOREIGN = "foreign"
    UNKNOWN_DEVICE = "unknown-device"
    MALFORMED = "malformed"


class ClaimError(DrakitError):
    """A claim that cannot be prepared as it is."""

    def __init__(self, fault: ClaimFault, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.fault = fault
        self.field = field


class DeviceGoneError(DrakitError):
    """The hardware behind a device is no longer there."""


class DeviceBusyError(DrakitError):
    """Another claim, or someone outside drakit, still holds the device."""


class RetryError(DrakitError):
    """Not now; ``after`` is a hint in seconds."""

    def __init__(self, message: str, *, after: float) -> None:
        super().__init__(message)
        self.after = after


class CallerGoneError(DrakitError):
    """The kubelet stopped waiting. What was finished until then is kept for its next call."""


class JournalError(DrakitError):
    """The journal cannot be read or written."""


class CdiError(DrakitError):
    """The CDI directory cannot be read or written."""


class HardwareError(DrakitError):
    """A call to the hardware failed; ``call`` names it, for example ``nvmlDeviceCreateGpuInstanceWithPlacement``."""

    def __init__(self, call: str, message: str) -> None:
        super().__init__(f"{call}: {message}")
        self.call = call


class ApiError(DrakitError):
    """The API server refused a request or did not answer it; ``status`` is the HTTP status, 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class SettingsError(DrakitError):
    """A setting that is unknown or malformed; ``key`` names it as the user wrote it."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key


def join_path(prefix: str, field: str) -> str:
    """Join two parts of a field path: ``a`` and ``b`` give ``a.b``, ``a`` and ``[0]`` give ``a[0]``."""
    if not prefix or not field:
        return prefix or field
    return f"{prefix}{field}" if field.startswith("[") else f"{prefix}.{field}"
