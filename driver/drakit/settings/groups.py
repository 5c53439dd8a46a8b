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
    """Where the driver runs and what it may touch."""

    name: Annotated[str, pydantic.AfterValidator(_node_name)] = ""
    """Name of this node as Kubernetes knows it; required to publish. In a DaemonSet: spec.nodeName by the downward API."""

    plugins_dir: Folder = pathlib.Path("/var/lib/kubelet/plugins")
    """The kubelet's plugin directory; each driver keeps its journal, locks and service socket in a folder of its name below it."""

    registry_dir: Folder = pathlib.Path("/var/lib/kubelet/plugins_registry")
    """The kubelet's registration directory. Must be the same path in the container and on the host."""

    cdi_dir: Folder = pathlib.Path("/var/run/cdi")
    """Where CDI files go; the container runtime must read it."""

    pod_uid: Annotated[str, pydantic.AfterValidator(_pod_uid)] = ""
    """UID of the driver's pod (metadata.uid by the downward API). With it two pods can serve at once in a rolling update (maxSurge 1); needs a
    kubelet from 1.33 on. Without it the sockets have fixed names: update with maxSurge 0."""


class Api(_Group):
    """How the API server is reached."""

    kubeconfig: Annotated[pathlib.Path | None, pydantic.BeforeValidator(_none_if_empty)] = None
    """Kubeconfig to use; without one, that of the KUBECONFIG variable, else the service account of the pod."""

    timeout: Annotated[Seconds, pydantic.Field(ge=0.1, le=600)] = 15.0
    """Longest wait for one answer, in seconds."""


class Publish(_Group):
    """How devices are offered."""

    form: Literal["auto", "flat", "mixins"] = "auto"
    """auto writes mixins where the API server was seen to store them, flat elsewhere."""

    rescan: Annotated[Seconds, pydantic.Field(ge=0.1, le=86400)] = 60.0
    """Seconds between two looks at the hardware."""


class Report(_Group):
    """What is told to users in their claims, beside the kubelet's own events."""

    conditions: Literal["failures", "always", "never"] = "failures"
    """Of which claims the driver itself writes the condition Ready into status.devices: those that could not be prepared, all, or none."""


class Gpu(_Group):
    """The GPU driver."""

    enabled: bool = True
    """Whether GPUs are served at all, where there are any."""

    driver_name: str = "gpu.drakit.dev"
    """Driver name; gpu.nvidia.com serves claims written for NVIDIA's driver."""

    library: Folder | None = None
    """Path of libnvidia-ml.so.1 where it is neither below the driver root nor found by the loader."""

    driver_root: Folder = pathlib.Path("/")
    """Folder below which NVIDIA's driver is installed, as this process sees it."""

    driver_root_on_host: Folder | None = None
    """The same folder's path on the host, where that is another: the container runtime mounts the driver's files from there."""

    kernel_root: Folder = pathlib.Path("/")
    """Folder that holds the proc and sys of NVIDIA's kernel driver: proc/devices, proc/driver/nvidia and sys/bus/pci. Not / for a mock NVML."""

    dev_root: Folder = pathlib.Path("/")
    """Folder that holds the host's dev, as this process sees it; device nodes that are missing there are made."""

    toolkit: bool = True
    """Whether nvidia-ctk, where it is installed below the driver root, says which of the driver's files a container needs."""

    share_memory: bool = False
    """Offer every GPU also in a form that many claims may hold, each with a part of its memory in steps of 1Mi."""

    shares: Annotated[int, pydantic.Field(ge=0, le=1000)] = 0
    """Offer every GPU also in a form that at most so many claims may hold; 0 does not, or sets no limit beside gpu.share_memory."""

    share_mig: bool = False
    """Share MIG devices as well as whole GPUs, on the terms of gpu.share_memory and gpu.shares."""

    health: bool = True
    """Watch the GPUs: taint those that have a fault, report health to the kubelet, and look anew when hardware changes."""

    evict: bool = True
    """Let a fault that no program can survive end the pods on the GPU (taint effect NoExecute); else it only keeps new ones away."""

    mps_template: Annotated[str | None, pydantic.BeforeValidator(_none_if_empty), pydantic.AfterValidator(_namespaced_name)] = None
    """NAMESPACE/NAME of the PodTemplate that MPS daemons run from, each in a pod of its own, so that they outlive the driver's pod. Without one they
    are child processes of the driver, and end with its container."""

    ignored_xids: tuple[Annotated[int, pydantic.Field(ge=1, le=9999)], ...] = ()
    """Xids that are no faults here, beside those that NVIDIA's catalog says a program brings about."""


class NicRule(_Group):
    """Figures for the interfaces whose name matches; quantities in bits per second, such as 10G."""

    match: str
    """Glob on the interface name, for example eth*."""

    speed: str | None = None
    """Bandwidth to offer; needed where the kernel knows none that can be believed (veth, virtio)."""

    reserve: str | None = None
    """Kept back for the host's own traffic."""

    ceil: str | None = None
    """Most that a share may borrow up to, whatever its class says; nic.ceil if not given."""

    default: str | None = None
    """What a share gets that does not ask."""

    min: str | None = None
    """Smallest share."""

    step: str | None = None
    """Shares are min plus a multiple of step."""

    max: str | None = None
    """Largest share."""


class Nic(_Group):
    """The network interface driver."""

    enabled: bool = True
    """Whether network interfaces are served at all."""

    driver_name: str = "nic.drakit.dev"
    """Driver name."""

    include: tuple[str, ...] = ("*",)
    """Globs of interfaces to offer: of the name, or of pci:ADDRESS, driver:NAME or vendor:ID."""

    exclude: tuple[str, ...] = ()
    """Globs of interfaces never to offer, as in nic.include."""

    offer_addressed: bool = False
    """Whether interfaces that carry global addresses are offered."""

    take_over: tuple[str, ...] = ()
    """Globs of interfaces to offer whatever the host uses them for, its default route included; each needs a reserve above 0 for the host."""

    reserve: str = "0"
    """Bandwidth of every interface kept back for the host's own traffic, which is held to it, unless a rule says otherwise."""

    ceil: str | None = None
    """Most that a share of any interface may borrow up to, whatever its class says; the interface's speed if not given, 0: nothing."""

    netns: str | None = None
    """Name of the network namespace to look at; without one, the process's own."""

    rules: tuple[NicRule, ...] = ()
    """Figures by interface name; the first match counts."""

    whole: tuple[str, ...] = ()
    """Globs of interfaces to offer in the exclusive form too: the whole interface is moved into the pod."""

    net_devices: bool = False
    """Whether the container runtime moves whole interfaces itself (CDI 1.1 netDevices); without it, the attach hook does."""

    shares: Annotated[int, pydantic.Field(ge=0, le=10000)] = 0
    """Shares of one interface at most; 0: as many as its bandwidth has room for, but never over 10000."""

    carrier_loss: Literal["report", "taint", "evict"] = "report"
    """What an interface without a link becomes: unhealthy only, tainted for new pods (NoSchedule), or for running ones too (NoExecute)."""


class Tpu(_Group):
    """TPU node pools, whose devices are slices of many nodes; mock machines only."""

    enabled: bool = True
    """Whether TPUs are served at all, where the machine has any."""

    driver_name: str = "tpu.drakit.dev"
    """Driver name."""

    nodes: tuple[str, ...] = ()
    """Names of the pool's nodes, row by row; those of the machine's file if not given."""

    node_label: str = "kubernetes.io/hostname"
    """Label of nodes that holds the names in tpu.nodes, by which slices select their nodes."""


class Election(_Group):
    """Which of several publishers of the whole cluster writes: the one that holds a Lease."""

    namespace: str = "drakit-system"
    """Namespace of the Lease."""

    name: str = ""
    """Name of the Lease; the driver's name if not given. Publishers of one driver must agree on it."""

    identity: str = ""
    """Name of this publisher in the Lease; the host's name and something random if not given. No two may have the same."""

    duration: Annotated[Seconds, pydantic.Field(ge=1, le=3600)] = 15.0
    """Seconds, whole, after which a Lease that was not renewed may be taken by another."""

    renew_deadline: Annotated[Seconds, pydantic.Field(gt=0, le=3600)] = 10.0
    """Seconds after its last renewal at which the publisher stops writing; below election.duration."""

    retry: Annotated[Seconds, pydantic.Field(gt=0, le=3600)] = 2.0
    """Seconds between two tries to get or renew the Lease; well below election.renew_deadline."""


class Serve(_Group):
    """What the driver tells about itself; nothing unless asked for."""

    socket: Folder | None = None
    """Path of a unix socket with the pages /healthz, /readyz and /metrics, for probes of the pod: drakit-probe SOCKET /readyz."""

    address: str | None = None
    """IP:PORT of an HTTP server with the same pages, for example 127.0.0.1:8080. While another process has it, the driver serves without it."""

    grpc_health: str | None = None
    """IP:PORT of a gRPC server with grpc.health.v1, for the kubelet's grpc probes: services liveness and readiness."""


class Webhook(_Group):
    """The admission webhook (drakit webhook)."""

    address: str = "127.0.0.1:8443"
    """IP:PORT of the HTTPS server that the API server calls; in a pod, its own IP."""

    certificate: pathlib.Path = pathlib.Path("/etc/drakit/webhook/tls.crt")
    """The server's certificate with its chain, in PEM. A new file is used from the next connection on."""

    key: pathlib.Path = pathlib.Path("/etc/drakit/webhook/tls.key")
    """The private key of webhook.certificate, in PEM, without a password."""


class Log(_Group):
    """What is logged, to standard error."""

    format: Literal["console", "json"] = "console"
    """console for people, json for machines."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level to write."""


class Mock(_Group):
    """Hardware that is not there."""

    machine: str | None = None
    """Name of a machine file, or a path to one; real hardware without it."""

    dir: Folder | None = None
    """Where the mock keeps its state, which outlives the driver; <plugins_dir>/mock/<machine> if not given."""


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
