"""What a prepared device changes in a container, in CDI's words (Container Device Interface, containerEdits)."""

import dataclasses
import enum
import types
from collections.abc import Mapping

from drakit.core import names


class HookName(enum.Enum):
    """OCI hook points that CDI knows."""

    PRESTART = "prestart"
    CREATE_RUNTIME = "createRuntime"
    CREATE_CONTAINER = "createContainer"
    START_CONTAINER = "startContainer"
    POSTSTART = "poststart"
    POSTSTOP = "poststop"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceNode:
    """A device node in the container; type and numbers are read from the host's node unless given."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mount:
    """A bind mount; ``type`` needs CDI 0.4.0."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")
    type: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hook:
    """A program the runtime calls; ``timeout`` is in seconds, without one a hanging hook blocks the container for minutes."""

    name: HookName
    path: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", types.MappingProxyType(dict(self.env)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetDevice:
    """A host interface moved into the container (CDI 1.1.0)."""

    host_interface_name: str
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edits:
    """Everything one device changes in a container."""

    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()

    def __post_init__(self) -> None:
        # An author's list must equal the tuple that comes back from the journal, or every second prepare would make everything anew.
        object.__setattr__(self, "env", types.MappingProxyType(dict(self.env)))
        for name in ("device_nodes", "mounts", "hooks", "net_devices"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __bool__(self) -> bool:
        return bool(self.env or self.device_nodes or self.mounts or self.hooks or self.net_devices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CdiName:
    """Identity of one prepared device towards the container runtime: ``<driver>/claim=<claim UID>-<device>[-<share id>][_<request>]``.

    ``request`` is given for admin access alone, where one claim may hold one device twice. A claim's UID makes it unique for ever, so a runtime
    never finds an old specification under a new name.
    """

    driver: str
    claim_uid: names.ClaimUid
    device: str
    share_id: names.ShareId | None = None
    request: str = ""

    @property
    def kind(self) -> str:
        """CDI kind, vendor/class."""
        return f"{self.driver}/claim"

    @property
    def device_name(self) -> str:
        """Device name within the kind."""
        name = f"{self.claim_uid}-{self.device}-{self.share_id}" if self.share_id else f"{self.claim_uid}-{self.device}"
        return f"{name}_{self.request}" if self.request else name

    @property
    def qualified(self) -> str:
        """What the kubelet passes to the runtime."""
        return f"{self.kind}={self.device_name}"
