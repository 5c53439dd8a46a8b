"""The changes of a prepared device to a container, in CDI's terms (Container Device Interface, containerEdits).

Each class checks its types on construction and raises TypeError, which names the field and the fix. ``drakit.cdi.spec`` finds values of the right
type that a runtime would reject.
"""

import dataclasses
import enum
import types
from collections.abc import Iterable, Mapping

from drakit.core import names, records


class HookName(enum.Enum):
    """The OCI hook points of CDI."""

    PRESTART = "prestart"
    CREATE_RUNTIME = "createRuntime"
    CREATE_CONTAINER = "createContainer"
    START_CONTAINER = "startContainer"
    POSTSTART = "poststart"
    POSTSTOP = "poststop"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceNode:
    """A device node in the container. Type and numbers default to those of the host's node."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""

    def __post_init__(self) -> None:
        # A container gets dozens of nodes and mounts of a GPU, so the usual case is a single test.
        if not (type(self.path) is type(self.host_path) is type(self.type) is type(self.permissions) is str):
            _check_texts(self, "path", "host_path", "type", "permissions")
        if not {type(self.major), type(self.minor), type(self.file_mode)} <= _NUMBERS:
            _check_numbers(self, "major", "minor", "file_mode")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mount:
    """A bind mount. ``type`` needs CDI 0.4.0."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")
    type: str = ""

    def __post_init__(self) -> None:
        if not (type(self.host_path) is type(self.container_path) is type(self.type) is str):
            _check_texts(self, "host_path", "container_path", "type")
        if type(self.options) is not tuple or {*map(type, self.options)} - {str}:
            object.__setattr__(self, "options", _texts("Mount.options", self.options))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hook:
    """A program that the runtime calls. ``timeout`` is in seconds; without it a hanging hook blocks the container for minutes."""

    name: HookName
    path: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, HookName):
            raise TypeError(f"Hook.name is {type(self.name).__name__}; give one of drakit.HookName")
        _check_texts(self, "path")
        _check_numbers(self, "timeout")
        object.__setattr__(self, "args", _texts("Hook.args", self.args))
        object.__setattr__(self, "env", _variables("Hook.env", self.env))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetDevice:
    """A host interface that moves into the container (CDI 1.1.0)."""

    host_interface_name: str
    name: str

    def __post_init__(self) -> None:
        _check_texts(self, "host_interface_name", "name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edits:
    """All changes of one device to a container.

    Runtimes merge the edits of all devices of a container. Of equal variables, equal paths of device nodes and equal container paths of mounts, the
    last one counts; all hooks run. So name a variable by the device, and a share's variable by the share id.
    """

    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()

    def __post_init__(self) -> None:
        # An author's list must equal the tuple that the journal returns; otherwise every later prepare would rewrite the CDI files.
        object.__setattr__(self, "env", _variables("Edits.env", self.env))
        for name, kind in _PARTS:
            parts = getattr(self, name)
            # The usual case is a tuple of parts of the right type, none or dozens.
            if type(parts) is not tuple or {*map(type, parts)} - {kind}:
                object.__setattr__(self, name, _parts(name, parts, kind))

    def __bool__(self) -> bool:
        return bool(self.env or self.device_nodes or self.mounts or self.hooks or self.net_devices)


_PARTS: tuple[tuple[str, type[object]], ...] = (
    ("device_nodes", DeviceNode),
    ("mounts", Mount),
    ("hooks", Hook),
    ("net_devices", NetDevice),
)
_NUMBERS = {int, type(None)}


def _parts(name: str, given: object, kind: type[object]) -> tuple[object, ...]:
    if isinstance(given, kind) or not isinstance(given, Iterable):
        raise TypeError(f"Edits.{name} is {type(given).__name__}; give a tuple of drakit.{kind.__name__}, also where it has only one")
    parts = tuple(given)
    for number, part in enumerate(parts):
        if not isinstance(part, kind):
            raise TypeError(f"Edits.{name}[{number}] is {type(part).__name__}; give drakit.{kind.__name__}(...)")
    return parts


def _variables(field: str, given: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(given, records.MAPPINGS):
        raise TypeError(f"{field} is {type(given).__name__}; give a mapping of names to values")
    variables = dict(given)
    for name, value in variables.items():
        if not isinstance(value, str):
            raise _not_text(f"{field}[{name!r}]", value)
        if not isinstance(name, str):
            raise _not_text(f"{field}: the name {name!r}", name)
    return types.MappingProxyType(variables)


def _texts(field: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{field} is {type(given).__name__}; give a tuple of texts, also where it has only one")
    texts = tuple(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise _not_text(f"{field}[{number}]", text)
    return texts


def _check_texts(part: object, *fields: str) -> None:
    for field in fields:
        if not isinstance(getattr(part, field), str):
            raise _not_text(f"{type(part).__name__}.{field}", getattr(part, field))


def _check_numbers(part: object, *fields: str) -> None:
    for field in fields:
        value = getattr(part, field)
        if value is not None and not isinstance(value, int):
            raise TypeError(f"{type(part).__name__}.{field} is {type(value).__name__}; give a whole number, or leave it out")


def _not_text(field: str, value: object) -> TypeError:
    fix = "leave it out" if value is None else "give text, str(...) of it"
    return TypeError(f"{field} is {type(value).__name__}; {fix}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CdiName:
    """The name of one prepared device for the container runtime: ``<driver>/claim=<claim UID>-<device>[-<share id>][_<request>]``.

    ``request`` is set only for admin access, where one claim may hold one device twice. The claim's UID makes the name unique, so a runtime never
    finds an old specification under a new name.
    """

    driver: str
    claim_uid: names.ClaimUid
    device: str
    share_id: names.ShareId | None = None
    request: str = ""

    @property
    def kind(self) -> str:
        """The CDI kind, ``vendor/class``."""
        return f"{self.driver}/claim"

    @property
    def device_name(self) -> str:
        """The device's name within the kind."""
        name = f"{self.claim_uid}-{self.device}-{self.share_id}" if self.share_id else f"{self.claim_uid}-{self.device}"
        return f"{name}_{self.request}" if self.request else name

    @property
    def qualified(self) -> str:
        """The name that the kubelet passes to the runtime."""
        return f"{self.kind}={self.device_name}"
