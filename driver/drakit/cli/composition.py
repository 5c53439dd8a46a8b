"""Builds drivers and adapters from the settings: the only module that chooses the adapter of each port."""

import contextvars
import dataclasses
import difflib
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit import machines
from drakit import settings as values
from drakit.cli import process
from drakit.core import advanced, config, driver, errors, inventory, names, ports, quantity
from drakit.devices import registry
from drakit.devices.tpu import machine as tpu_pool
from drakit.journal import inspection
from drakit.kube import client
from drakit.kube import pods as kube_pods
from drakit.node import engine, local_node
from drakit_gpu import settings as gpu_settings
from drakit_nic import settings as nic_settings

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
LOCAL_NODE = "local"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A device family of this node, ready to be opened as a local node. Only an author's driver has ``config_types``.

    ``is_served`` is False for a family without hardware that left a folder on the node.
    """

    name: str
    spec: local_node.DriverSpec
    folders: local_node.Folders
    config_types: tuple[type[object], ...] = ()
    is_served: bool = True


AUTHORED: contextvars.ContextVar[Callable[[values.Settings], tuple[Family, ...]] | None] = contextvars.ContextVar("AUTHORED", default=None)
"""Makes the family of an author's driver in that driver's own program; None in drakit's program, which has its own families."""


def node_name(settings: values.Settings) -> str:
    """Return the node's name, ``local`` if it is not set."""
    return settings.node.name or LOCAL_NODE


def machine(settings: values.Settings) -> machines.Choice | None:
    """Return the chosen mock machine, or None; raises SettingsError if it is unknown."""
    if settings.mock.machine is None:
        return None
    name = machines.load(settings.mock.machine).name
    folder = settings.mock.dir or settings.node.plugins_dir / "mock" / machines.folder_name(name)
    return machines.Choice(name=settings.mock.machine, directory=folder, owner=node_name(settings))


def families(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[Family, ...]:
    """Return the families that are served, in the registry's order; raises SettingsError if there are none."""
    authored = AUTHORED.get()
    if authored is not None:
        return authored(settings)
    chosen, only = machine(settings), tuple(only)
    _check_families(only)
    wanted = only or tuple(name for name in registry.FAMILIES if _enabled(settings, name, chosen))
    if not wanted:
        raise errors.SettingsError("there is no device family to serve; enable gpu or nic, or add --mock MACHINE", key="gpu.enabled")
    return tuple(_family(settings, name, chosen) for name in wanted)


def families_left(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[Family, ...]:
    """Return the families that are served, and enabled families without hardware that left a folder on the node; raises SettingsError."""
    chosen, only = machine(settings), tuple(only)
    if only or chosen is not None or AUTHORED.get() is not None:
        return families(settings, only=only)

    def has_folder(name: str) -> bool:
        options = getattr(settings, name)
        return bool(options.enabled) and (settings.node.plugins_dir / str(options.driver_name)).exists()

    served = {name for name in registry.FAMILIES if _enabled(settings, name, chosen)}
    wanted = (name for name in registry.FAMILIES if name in served or has_folder(name))
    return tuple(dataclasses.replace(_family(settings, name, chosen), is_served=name in served) for name in wanted)


def families_to_read(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[Family, ...]:
    """Return the families whose state may be on this node, served or not, for commands that read journals; raises SettingsError if none."""
    only = tuple(only)
    return families_left(settings, only=only) or families(settings, only=only)


def families_to_serve(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[Family, ...]:
    """Return the families that ``drakit run`` serves: those of ``families``, and enabled families without hardware whose journal has claims.

    Otherwise nobody would unprepare the claims of a node that comes back without a kernel driver, and their pods would never end.
    """
    only = tuple(only)
    if only or settings.mock.machine is not None or AUTHORED.get() is not None:
        return families(settings, only=only)
    left = families_left(settings)
    return tuple(family for family in left if _enabled(settings, family.name, None) or _has_claims(family.folders.home)) or families(
        settings
    )


def _has_claims(home: pathlib.Path) -> bool:
    """Return whether the journal in a folder has claims. One that cannot be read may have some."""
    try:
        if not inspection.exists(home):
            return False
        with tempfile.TemporaryDirectory(prefix="drakit-") as folder:
            copy = pathlib.Path(folder, "home")
            inspection.copy(home, copy)
            return inspection.has_claims(copy)
    except errors.JournalError:
        return True


class Asked(values.Settings):
    """Settings with families that the user named. They are served even if their hardware is not detected."""

    asked: frozenset[str] = frozenset()


def narrowed(settings: values.Settings, only: Sequence[str]) -> values.Settings:
    """Return the settings with only these families enabled, or unchanged if ``only`` is empty; raises SettingsError."""
    _check_families(only)
    if not only:
        return settings
    enabled = {name: getattr(settings, name).model_copy(update={"enabled": name in only}) for name in registry.FAMILIES}
    return Asked.model_construct(**{**dict(settings), **enabled}, asked=frozenset(only))


def _check_families(names_given: Sequence[str]) -> None:
    for name in names_given:
        if name not in registry.FAMILIES:
            close = difflib.get_close_matches(name, registry.FAMILIES, n=1)
            hint = f"did you mean {close[0]}? Known" if close else "known"
            raise errors.SettingsError(f"no device family {name!r}; {hint} are {', '.join(registry.FAMILIES)}", key="--family")


def unserved(settings: values.Settings) -> str:
    """Return why an enabled family is not served; empty if all are served."""
    if AUTHORED.get() is None and settings.gpu.enabled and settings.mock.machine is None and not has_gpus(settings):
        missing = settings.gpu.kernel_root / "proc/driver/nvidia/version"
        return (
            f"GPUs are not served: {missing} is missing, so NVIDIA's kernel driver is not loaded; to use mock hardware, add --mock MACHINE"
        )
    return ""


def has_gpus(settings: values.Settings) -> bool:
    """Return whether real GPUs are served: if NVIDIA's kernel driver is loaded, or if the user asked for them."""
    is_asked = isinstance(settings, Asked) and "gpu" in settings.asked
    return is_asked or registry.has_gpu_driver(settings.gpu.kernel_root)


def _enabled(settings: values.Settings, name: str, chosen: machines.Choice | None) -> bool:
    """Return whether a family is enabled and has hardware: in the file of the mock machine, or on this node."""
    if not getattr(settings, name).enabled:
        return False
    if chosen is not None:
        return registry.KEYS[name] in machines.load(chosen.name).families
    return name == "nic" or (name == "gpu" and has_gpus(settings))


def _family(settings: values.Settings, name: str, chosen: machines.Choice | None) -> Family:
    driver_name = names.check_driver(str(getattr(settings, name).driver_name), f"{name}.driver_name")

    def build(intents: local_node.Intents) -> driver.Driver[object]:
        order = registry.Order(
            node=node_name(settings),
            driver_name=driver_name,
            machine=chosen,
            intents=intents,
            netns=settings.nic.netns,
            options=_options(settings, name),
        )
        return registry.build(name, order)

    return Family(
        name=name,
        spec=local_node.DriverSpec(driver_name=driver_name, build=build, identity=identity(settings)),
        folders=local_node.Folders(home=settings.node.plugins_dir / driver_name, cdi=settings.node.cdi_dir),
    )


def opaque_rules(settings: values.Settings) -> Mapping[str, config.Rules]:
    """Return the rules of each driver's opaque parameters, by driver name; raises SettingsError."""
    authored = AUTHORED.get()
    if authored is not None:
        return {family.spec.driver_name: config.Rules(types=family.config_types) for family in authored(settings)}
    return {
        names.check_driver(str(getattr(settings, name).driver_name), f"{name}.driver_name"): registry.opaque_rules(name)
        for name in registry.FAMILIES
        if getattr(settings, name).enabled
    }


def network_drivers(settings: values.Settings) -> frozenset[str]:
    """Return the drivers of this program that attach their devices to a pod's network namespace."""
    return frozenset() if AUTHORED.get() is not None else frozenset({str(settings.nic.driver_name)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterFamily:
    """The driver that the cluster-wide publisher serves; ``pools`` reads the pools and raises HardwareError, InventoryError."""

    driver_name: str
    pools: Callable[[], Sequence[inventory.ClusterPool]]


def cluster_family(settings: values.Settings, family: str) -> ClusterFamily:
    """Return the family of this name for the cluster-wide publisher; raises SettingsError, InventoryError."""
    authored = AUTHORED.get()
    if authored is not None:
        (own,) = authored(settings)
        author = own.spec.build(ports.no_intents)
        return ClusterFamily(driver_name=own.spec.driver_name, pools=lambda: advanced.cluster_pools(author))
    pools = _cluster_pools(settings, family)
    return ClusterFamily(
        driver_name=names.check_driver(str(getattr(settings, family).driver_name), f"{family}.driver_name"), pools=lambda: pools
    )


def _cluster_pools(settings: values.Settings, family: str) -> Sequence[inventory.ClusterPool]:
    order = registry.Order(node=node_name(settings), machine=machine(settings), options=_options(settings, family))
    return registry.cluster_pools(family, order)


def _options(settings: values.Settings, family: str) -> object:
    """Return the settings object that the family's driver takes."""
    match family:
        case "gpu":
            return _gpu_options(settings.gpu, settings.node.plugins_dir / settings.gpu.driver_name, _pods(settings))
        case "nic":
            return _nic_options(settings.nic, settings.node.plugins_dir / settings.nic.driver_name)
        case "tpu":
            return tpu_pool.TpuSettings(nodes=settings.tpu.nodes, label=settings.tpu.node_label)
    return None


def identity(settings: values.Settings) -> engine.NodeIdentity:
    """Return the engine's identity: this node's pool, the boot ID and the name of the program."""
    return engine.NodeIdentity(pool=node_name(settings), boot_id=_boot_id(machine(settings)), program=process.PROGRAM.get())


def _boot_id(chosen: machines.Choice | None) -> str:
    if chosen is None:
        return BOOT_ID.read_text().strip()
    machines.take_over(chosen.directory, machines.load(chosen.name).name)
    return machines.boot_id(chosen.directory)


def _pods(settings: values.Settings) -> ports.PodStore | None:
    """Return the store of the pods that run MPS daemons; None if there are none. It connects to the API server at the first use."""
    if settings.gpu.mps_template is None:
        return None
    namespace, _, template = settings.gpu.mps_template.partition("/")
    api = client.LazyClient(lambda: client.connect(settings.api.kubeconfig, seconds=settings.api.timeout))
    node, driver_name = node_name(settings), settings.gpu.driver_name
    return kube_pods.ApiPods(api, namespace=namespace, template=template, node=node, driver=driver_name, own_uid=settings.node.pod_uid)


def _gpu_options(gpu: values.Gpu, home: pathlib.Path, daemon_pods: ports.PodStore | None) -> gpu_settings.GpuSettings:
    return gpu_settings.GpuSettings(
        library=gpu.library,
        driver_root=gpu.driver_root,
        driver_root_on_host=gpu.driver_root_on_host,
        library_folders=gpu.library_folders,
        kernel_root=gpu.kernel_root,
        dev_root=gpu.dev_root,
        toolkit=gpu.toolkit,
        home=home,
        daemon_pods=daemon_pods,
        share_memory=gpu.share_memory,
        shares=gpu.shares,
        share_mig=gpu.share_mig,
        health=gpu.health,
        evict=gpu.evict,
        ignored_xids=frozenset(gpu.ignored_xids),
    )


def _nic_options(nic: values.Nic, home: pathlib.Path) -> nic_settings.NicSettings:
    return nic_settings.NicSettings(
        include=nic.include,
        exclude=nic.exclude,
        take_over=nic.take_over,
        offer_addressed=nic.offer_addressed,
        reserve=_rate(nic.reserve, "nic.reserve"),
        ceil=None if nic.ceil is None else _rate(nic.ceil, "nic.ceil"),
        interfaces=tuple(_rule(index, rule) for index, rule in enumerate(nic.rules)),
        home=home,
        whole=nic.whole,
        net_devices=nic.net_devices,
        shares=nic.shares,
        carrier_loss=nic_settings.CarrierLoss(nic.carrier_loss),
    )


def _rate(text: str, key: str) -> quantity.Quantity:
    try:
        return quantity.Quantity.parse(text)
    except errors.QuantityError as error:
        raise errors.SettingsError(error.reason, key=key) from error


def _rule(index: int, rule: values.NicRule) -> nic_settings.InterfaceRule:
    try:
        return nic_settings.InterfaceRule.parse(rule.match, rule.model_dump(exclude={"match"}))
    except errors.SettingsError as error:
        raise errors.SettingsError(str(error), key=f"nic.rules[{index}]") from error
