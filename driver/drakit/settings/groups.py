"""The settings of every program, by group: name, type, default and, as the string below it, the meaning. Groups are frozen once read.

Each device family adds a group of its own (``drakit.families``).
"""

import pathlib
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import pydantic

from drakit.core import names
from drakit.settings.values import Folder, none_if_empty

Seconds = float


def _node_name(value: str) -> str:
    if value and not names.is_subdomain(value):
        raise ValueError(f"{value!r} is not a node name (a DNS subdomain: lower-case letters, digits, '-' and '.')")
    return value


def _pod_uid(value: str) -> str:
    if value and not names.is_uid(value):
        raise ValueError(f"{value!r} is not the UID of a pod (a lower-case UUID)")
    return value


class _Group(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Node(_Group):
    """The node, and the folders that the driver shares with the kubelet and the container runtime."""

    name: Annotated[str, pydantic.AfterValidator(_node_name)] = ""
    """Name of the Node object. Required to publish. In a DaemonSet, take spec.nodeName from the downward API."""

    plugins_dir: Folder = pathlib.Path("/var/lib/kubelet/plugins")
    """The kubelet's plugin directory. Each driver keeps its journal, locks and service socket in a folder of its name below it."""

    registry_dir: Folder = pathlib.Path("/var/lib/kubelet/plugins_registry")
    """The kubelet's registration directory. Must be the same path in the container and on the host."""

    cdi_dir: Folder = pathlib.Path("/var/run/cdi")
    """Folder for CDI files. The container runtime must read it."""

    pod_uid: Annotated[str, pydantic.AfterValidator(_pod_uid)] = ""
    """UID of the driver's pod; take metadata.uid from the downward API. With it, two pods can serve at once in a rolling update with maxSurge 1, on
    a kubelet of 1.33 or newer. Without it the sockets have fixed names: update with maxSurge 0."""


class Api(_Group):
    """The connection to the API server."""

    kubeconfig: Annotated[pathlib.Path | None, pydantic.BeforeValidator(none_if_empty)] = None
    """Kubeconfig to use. Without it, the driver uses the one in the KUBECONFIG variable, or else the service account of the pod."""

    timeout: Annotated[Seconds, pydantic.Field(ge=0.1, le=600)] = 15.0
    """Timeout of one request, in seconds."""


class Publish(_Group):
    """How the driver publishes ResourceSlices."""

    form: Literal["auto", "flat", "mixins"] = "auto"
    """Form of the slices. auto writes mixins where the API server stores them, and flat elsewhere."""

    rescan: Annotated[Seconds, pydantic.Field(ge=0.1, le=86400)] = 60.0
    """Seconds between two scans of the hardware."""


class Report(_Group):
    """What the driver reports in the status of claims, in addition to the kubelet's events."""

    conditions: Literal["failures", "always", "never"] = "failures"
    """Claims for which the driver writes the condition Ready into status.devices: those whose prepare failed, all, or none."""


class Election(_Group):
    """Leader election among the publishers of one driver (`drakit publish`). Only the holder of the Lease writes slices."""

    namespace: str = "drakit-system"
    """Namespace of the Lease."""

    name: str = ""
    """Name of the Lease; the driver's name if not given. All publishers of one driver need the same."""

    identity: str = ""
    """Name of this publisher in the Lease; the host's name with a random suffix if not given. It must be unique."""

    duration: Annotated[Seconds, pydantic.Field(ge=1, le=3600)] = 15.0
    """Whole seconds after the last renewal until another publisher may take the Lease."""

    renew_deadline: Annotated[Seconds, pydantic.Field(gt=0, le=3600)] = 10.0
    """Seconds after the last renewal until the publisher stops writing. Must be below election.duration."""

    retry: Annotated[Seconds, pydantic.Field(gt=0, le=3600)] = 2.0
    """Seconds between two attempts to get or renew the Lease. Must be well below election.renew_deadline."""


class Serve(_Group):
    """Health and metrics endpoints. All are off by default."""

    socket: Folder | None = None
    """Path of a unix socket that serves /healthz, /readyz and /metrics. A probe of the pod runs drakit-probe SOCKET /readyz."""

    address: str | None = None
    """IP:PORT of an HTTP server with the same pages. While another process has the address, the driver works without it."""


class Webhook(_Group):
    """The admission webhook (drakit webhook)."""

    address: str = "127.0.0.1:8443"
    """IP:PORT of the HTTPS server that the API server calls. In a pod, use the pod's IP."""

    certificate: pathlib.Path = pathlib.Path("/etc/drakit/webhook/tls.crt")
    """The server's certificate with its chain, in PEM. The next connection uses a new file."""

    key: pathlib.Path = pathlib.Path("/etc/drakit/webhook/tls.key")
    """The private key of webhook.certificate, in PEM, without a password."""


class Log(_Group):
    """The log, on standard error."""

    format: Literal["console", "json"] = "console"
    """Format of a line: console for people, json for machines."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""


class Mock(_Group):
    """Mock hardware, instead of the node's own."""

    machine: str | None = None
    """Name of a machine file, or a path to one. Without it, the driver serves the real hardware."""

    dir: Folder | None = None
    """Folder for the state of the mock hardware, which survives the driver; <plugins_dir>/mock/<machine> if not given."""


class Settings(_Group):
    """The groups of every program. A program's families add one each."""

    node: Node = Node()
    api: Api = Api()
    publish: Publish = Publish()
    report: Report = Report()
    election: Election = Election()
    serve: Serve = Serve()
    webhook: Webhook = Webhook()
    log: Log = Log()
    mock: Mock = Mock()
    _only: frozenset[str] = pydantic.PrivateAttr(default=frozenset())

    @property
    def only(self) -> frozenset[str]:
        """The families that the user named with --family: no other is used, and these even if their hardware is not detected. Empty: all."""
        return self._only

    def group(self, name: str) -> Any:
        """Return a group by name; those of families are not attributes of this class."""
        return getattr(self, name)

    def for_families(self, only: Iterable[str]) -> Self:
        """Return the settings for a command with --family."""
        copied = self.model_copy()
        copied._only = frozenset(only)  # noqa: SLF001 - a copy of the same class
        return copied
