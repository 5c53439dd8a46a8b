"""From settings to drivers and adapters: the only place that chooses which adapter stands behind a port."""

import dataclasses
import pathlib
from collections.abc import Iterable

from drakit import settings as values
from drakit.core import driver, errors, names, quantity
from drakit.devices import machines, registry
from drakit.devices.gpu import settings as gpu_settings
from drakit.devices.nic import settings as nic_settings
from drakit.node import engine, station

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
LOCAL_NODE = "local"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One device family of this node, ready to be opened as a station."""

    name: str
    post: station.Post
    folders: station.Folders


def node_name(settings: values.Settings) -> str:
    """The node's name; ``local`` where there is no Kubernetes to know another."""
    return settings.node.name or LOCAL_NODE


def machine(settings: values.Settings) -> machines.Choice | None:
    """The mock machine that was chosen; raises SettingsError for one nobody knows."""
    if settings.mock.machine is None:
        return None
    machines.load(settings.mock.machine)
    folder = settings.mock.dir or settings.node.plugins_dir / "mock"
    return machines.Choice(name=settings.mock.machine, directory=folder, owner=node_name(settings))


def families(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[Family, ...]:
    """The families that are served, in the registry's order; raises SettingsError when that leaves none."""
    chosen, only = machine(settings), tuple(only)
    for name in only:
        if name not in registry.FAMILIES:
            raise errors.SettingsError(f"no device family {name!r}; known are {', '.join(registry.FAMILIES)}", key="--family")
    wanted = only or tuple(name for name in registry.FAMILIES if _enabled(settings, name, chosen))
    if not wanted:
        raise errors.SettingsError("no device family is left to serve; enable gpu or nic, or name a mock machine", key="gpu.enabled")
    return tuple(_family(settings, name, chosen) for name in wanted)


def unserved(settings: values.Settings) -> str:
    """What a person should know of families that are enabled and yet not served; empty when there is nothing to say."""
    if settings.gpu.enabled and settings.mock.machine is None and not registry.has_gpu_driver():
        return "GPUs are not served: NVIDIA's kernel driver is not loaded on this machine; name a machine with --mock to pretend"
    return ""


def _enabled(settings: values.Settings, name: str, chosen: machines.Choice | None) -> bool:
    return bool(getattr(settings, name).enabled) and not (name == "gpu" and chosen is None and not registry.has_gpu_driver())


def _family(settings: values.Settings, name: str, chosen: machines.Choice | None) -> Family:
    driver_name = names.check_driver(str(getattr(settings, name).driver_name), f"{name}.driver_name")

    def build(intents: station.Intents) -> driver.Driver[object]:
        order = registry.Order(
            node=node_name(settings),
            driver_name=driver_name,
            machine=chosen,
            intents=intents,
            netns=settings.nic.netns,
            options=_nic_options(settings.nic) if name == "nic" else gpu_settings.GpuSettings(library=settings.gpu.library),
        )
        return registry.build(name, order)

    place = engine.Place(pool=node_name(settings), boot_id=_boot_id(chosen))
    return Family(
        name=name,
        post=station.Post(driver_name=driver_name, build=build, place=place),
        folders=station.Folders(home=settings.node.plugins_dir / driver_name, cdi=settings.node.cdi_dir),
    )


def _boot_id(chosen: machines.Choice | None) -> str:
    return machines.boot_id(chosen.directory) if chosen else BOOT_ID.read_text().strip()


def _nic_options(nic: values.Nic) -> nic_settings.NicSettings:
    try:
        reserve = quantity.Quantity.parse(nic.reserve)
    except errors.QuantityError as error:
        raise errors.SettingsError(error.reason, key="nic.reserve") from error
    return nic_settings.NicSettings(
        include=nic.include,
        exclude=nic.exclude,
        take_over=nic.take_over,
        offer_addressed=nic.offer_addressed,
        reserve=reserve,
        interfaces=tuple(_rule(index, rule) for index, rule in enumerate(nic.rules)),
    )


def _rule(index: int, rule: values.NicRule) -> nic_settings.InterfaceRule:
    try:
        return nic_settings.InterfaceRule.parse(rule.match, rule.model_dump(exclude={"match"}))
    except errors.SettingsError as error:
        raise errors.SettingsError(str(error), key=f"nic.rules[{index}]") from error
