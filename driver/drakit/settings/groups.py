"""Every setting of our processes, by group: its name, type, default and, as the string below it, its meaning. Groups are frozen once read."""

import pathlib
from typing import Annotated, Literal

import pydantic

from drakit.core import names

Seconds = float


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _node_name(value: str) -> str:
    if value and not names.is_subdomain(value):
        raise ValueError(f"{value!r} is not a node name (a DNS subdomain: lower-case letters, digits, '-' and '.')")
    return value


def _pod_uid(value: str) -> str:
    if value and not names.is_uid(value):
        raise ValueError(f"{value!r} is not the UID of a pod (a lower-case UUID)")
    return value


def _namespaced_name(value: str | None) -> str | None:
    namespace, slash, name = (value or "").partition("/")
    if value is not None and not (slash and names.is_label(namespace) and names.is_subdomain(name)):
        raise ValueError(f"{value!r} is not NAMESPACE/NAME")
    return value


def _absolute(value: pathlib.Path) -> pathlib.Path:
    if not value.is_absolute():
        raise ValueError(f"{str(value)!r} must be an absolute path")
    return value


Folder = Annotated[pathlib.Path, pydantic.AfterValidator(_absolute)]


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

    kubeconfig: Annotated[pathlib.Path | None, pydantic.BeforeValidator(_none_if_empty)] = None
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


class Gpu(_Group):
    """The GPU driver."""

    enabled: bool = True
    """Whether the driver serves GPUs, on nodes that have any."""

    driver_name: str = "gpu.drakit.dev"
    """Driver name. gpu.nvidia.com serves claims that were written for NVIDIA's driver."""

    library: Folder | None = None
    """Path of libnvidia-ml.so.1. Needed if it is not below gpu.driver_root and the loader does not find it."""

    driver_root: Folder = pathlib.Path("/")
    """Folder below which NVIDIA's driver is installed, as this process sees it."""

    driver_root_on_host: Folder | None = None
    """Path of gpu.driver_root on the host, if it differs. The container runtime mounts the driver's files from there."""

    library_folders: tuple[str, ...] = ()
    """Folders below gpu.driver_root with the libraries of NVIDIA's driver, searched before the usual ones of Linux distributions."""

    kernel_root: Folder = pathlib.Path("/")
    """Folder with the proc and sys of NVIDIA's kernel driver: proc/devices, proc/driver/nvidia and sys/bus/pci. Not / with a mock NVML."""

    dev_root: Folder = pathlib.Path("/")
    """Folder with the host's dev, as this process sees it. The driver creates device nodes that are missing there."""

    toolkit: bool = True
    """Whether the driver asks nvidia-ctk, if it is installed below gpu.driver_root, which files a container needs."""

    share_memory: bool = False
    """Also offer every GPU as a shared device. Each claim gets a part of its memory, in steps of 1Mi."""

    shares: Annotated[int, pydantic.Field(ge=0, le=1000)] = 0
    """Also offer every GPU as a device that at most this many claims share. 0 turns it off; with gpu.share_memory, 0 means no limit."""

    share_mig: bool = False
    """Apply gpu.share_memory and gpu.shares to MIG devices too."""

    health: bool = True
    """Monitor the GPUs: taint those that have a fault, report health to the kubelet, and publish again when hardware changes."""

    evict: bool = True
    """Evict the pods of a GPU after a fault that no program survives (taint effect NoExecute). Without it, the fault only keeps new pods away."""

    mps_template: Annotated[str | None, pydantic.BeforeValidator(_none_if_empty), pydantic.AfterValidator(_namespaced_name)] = None
    """NAMESPACE/NAME of a PodTemplate. Each MPS daemon then runs in a pod of its own and survives the driver's pod. Without it, daemons are child
    processes of the driver, and end with its container."""

    ignored_xids: tuple[Annotated[int, pydantic.Field(ge=1, le=9999)], ...] = ()
    """Xids that are no fault of the GPU here, in addition to those that programs cause according to NVIDIA's catalog."""


class NicRule(_Group):
    """Bandwidth of the interfaces whose name matches. Quantities are bits per second, such as 10G."""

    match: str
    """Glob on the interface name, for example eth*."""

    speed: str | None = None
    """Bandwidth of the interface. Needed where the kernel reports no reliable speed (veth, virtio)."""

    reserve: str | None = None
    """Bandwidth reserved for the host's own traffic; nic.reserve if not given."""

    ceil: str | None = None
    """Upper limit of what a share may borrow, for every DeviceClass; nic.ceil if not given."""

    default: str | None = None
    """Bandwidth of a share whose request names none."""

    min: str | None = None
    """Smallest share."""

    step: str | None = None
    """The bandwidth of a share is min plus a multiple of step."""

    max: str | None = None
    """Largest share."""


class Nic(_Group):
    """The network interface driver."""

    enabled: bool = True
    """Whether the driver serves network interfaces."""

    driver_name: str = "nic.drakit.dev"
    """Driver name."""

    include: tuple[str, ...] = ("*",)
    """Globs of interfaces to offer. A glob matches the name or an alternative name, or pci:ADDRESS, driver:NAME or vendor:ID."""

    exclude: tuple[str, ...] = ()
    """Globs of interfaces that are never offered, as in nic.include."""

    offer_addressed: bool = False
    """Whether to offer interfaces that are in use, for example with an address of the host. Those of the default route need nic.take_over."""

    take_over: tuple[str, ...] = ()
    """Globs of interfaces to offer although the host uses them, even for its default route. Each needs a reserve above 0 for the host."""

    reserve: str = "0"
    """Bandwidth of every interface that is reserved for the host's own traffic, and limits it. A rule can set another for an interface."""

    ceil: str | None = None
    """Upper limit of what a share of any interface may borrow, for every DeviceClass. The interface's speed if not given; 0: no borrowing."""

    netns: str | None = None
    """Name of the network namespace with the interfaces. Without it, that of the process."""

    rules: tuple[NicRule, ...] = ()
    """Bandwidth by interface name. The first rule that matches counts."""

    whole: tuple[str, ...] = ()
    """Globs of interfaces to offer also as whole devices: the driver moves the interface into the pod."""

    net_devices: bool = False
    """Whether the container runtime moves whole interfaces (CDI 1.1 netDevices). Without it, the attach hook does."""

    shares: Annotated[int, pydantic.Field(ge=0, le=10000)] = 0
    """Maximum number of shares of one interface. 0: as many as fit its bandwidth, at most 10000."""

    carrier_loss: Literal["report", "taint", "evict"] = "report"
    """Effect of a lost link. report: the interface is Unhealthy. taint: new pods avoid it (NoSchedule). evict: its pods end (NoExecute)."""


class Tpu(_Group):
    """TPU node pools, whose devices are slices of several nodes. For mock machines only."""

    enabled: bool = True
    """Whether the driver serves TPUs, where the machine has any."""

    driver_name: str = "tpu.drakit.dev"
    """Driver name."""

    nodes: tuple[str, ...] = ()
    """Names of the pool's nodes, row by row. Those of the machine file if not given."""

    node_label: str = "kubernetes.io/hostname"
    """Node label with the names in tpu.nodes. Slices select their nodes by it."""


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
    """All groups together."""

    node: Node = Node()
    api: Api = Api()
    publish: Publish = Publish()
    report: Report = Report()
    gpu: Gpu = Gpu()
    nic: Nic = Nic()
    tpu: Tpu = Tpu()
    election: Election = Election()
    serve: Serve = Serve()
    webhook: Webhook = Webhook()
    log: Log = Log()
    mock: Mock = Mock()
