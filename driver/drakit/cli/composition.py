"""Builds drivers and adapters from the settings: the only module that chooses the adapter of each port."""

import dataclasses
import difflib
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drakit import extras, machines
from drakit import families as known
from drakit import settings as values
from drakit.cli import process
from drakit.core import config, driver, errors, inventory, names, ports
from drakit.journal import inspection
from drakit.node import engine, local_node
from drakit.settings import schema

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
LOCAL_NODE = "local"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeFamily:
    """A device family of this node, ready to be opened as a local node.

    ``kind`` is the family of any node, ``options`` its settings. ``is_served`` is False for a family without hardware that left a folder on the node.
    """

    kind: known.Family[Any]
    options: Any
    spec: local_node.DriverSpec
    folders: local_node.Folders
    is_served: bool = True

    @property
    def name(self) -> str:
        """The name of ``--family``."""
        return self.kind.name


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


def families(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[NodeFamily, ...]:
    """Return the families that are served, by name; raises SettingsError if there are none."""
    chosen = narrowed(settings, only)
    wanted = [kind for kind in schema.current().families if _is_served(chosen, kind)]
    if not wanted:
        listed = ", ".join(kind.name for kind in schema.current().families)
        if not listed:
            raise errors.SettingsError(f"no device family is installed; run: {extras.command('gpu', 'nic')}")
        raise errors.SettingsError(
            f"there is no device family to serve (installed: {listed}); enable one, or add --mock MACHINE", key="--family"
        )
    return tuple(_family(chosen, kind) for kind in wanted)


def families_left(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[NodeFamily, ...]:
    """Return the families that are served, and enabled families without hardware that left a folder on the node; raises SettingsError."""
    chosen = narrowed(settings, only)
    if chosen.only or chosen.mock.machine is not None or schema.current().is_of_one_driver:
        return families(chosen)

    def has_folder(kind: known.Family[Any]) -> bool:
        options = schema.options_of(chosen, kind)
        return kind.is_enabled(options) and (chosen.node.plugins_dir / kind.driver_name(options)).exists()

    served = {kind.name for kind in schema.current().families if _is_served(chosen, kind)}
    wanted = (kind for kind in schema.current().families if kind.name in served or has_folder(kind))
    return tuple(dataclasses.replace(_family(chosen, kind), is_served=kind.name in served) for kind in wanted)


def families_to_read(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[NodeFamily, ...]:
    """Return the families whose state may be on this node, served or not, for commands that read journals; raises SettingsError if none."""
    chosen = narrowed(settings, only)
    return families_left(chosen) or families(chosen)


def families_to_serve(settings: values.Settings, *, only: Iterable[str] = ()) -> tuple[NodeFamily, ...]:
    """Return the families that ``drakit run`` serves: those of ``families``, and enabled families without hardware whose journal has claims.

    Otherwise nobody would unprepare the claims of a node that comes back without a kernel driver, and their pods would never end.
    """
    left = families_left(settings, only=only)
    return tuple(family for family in left if family.is_served or _has_claims(family.folders.home)) or families(settings, only=only)


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


def narrowed(settings: values.Settings, only: Iterable[str]) -> values.Settings:
    """Return the settings for these families only, or unchanged if ``only`` is empty; raises SettingsError for an unknown one."""
    only = tuple(only)
    installed = [kind.name for kind in schema.current().families]
    for name in only:
        if name not in installed:
            close = difflib.get_close_matches(name, installed, n=1)
            hint = f"did you mean {close[0]}? Installed" if close else "installed"
            raise errors.SettingsError(f"no device family {name!r}; {hint} are {', '.join(installed) or 'none'}", key="--family")
    return settings.for_families(only) if only else settings


def unserved(settings: values.Settings) -> Mapping[str, str]:
    """Return why enabled families are not served, by name; empty if all are."""
    if schema.current().is_of_one_driver or settings.mock.machine is not None or settings.only:
        return {}
    enabled = {kind: schema.options_of(settings, kind) for kind in schema.current().families}
    return {kind.name: why for kind, options in enabled.items() if kind.is_enabled(options) and (why := kind.missing(options))}


def unserved_note(settings: values.Settings, only: Iterable[str]) -> str:
    """Return in one line why families of a command with --family are not served; empty if all are."""
    return "; ".join(unserved(narrowed(settings, only)).values())


def _is_served(settings: values.Settings, kind: known.Family[Any]) -> bool:
    """Return whether a family is chosen or enabled, and has hardware: in the file of the mock machine, or on this node."""
    if settings.only:
        return kind.name in settings.only
    options = schema.options_of(settings, kind)
    if not kind.is_enabled(options):
        return False
    if settings.mock.machine is not None and kind.machine_key:
        return kind.machine_key in machines.load(settings.mock.machine).families
    return schema.current().is_of_one_driver or not (kind.mock_only or kind.missing(options))


def _family(settings: values.Settings, kind: known.Family[Any]) -> NodeFamily:
    options = schema.options_of(settings, kind)
    driver_name = names.check_driver(kind.driver_name(options), f"{kind.name}.driver_name")

    def build(intents: local_node.Intents) -> driver.Driver[Any]:
        return kind.build(options, site(settings, driver_name, intents))

    return NodeFamily(
        kind=kind,
        options=options,
        spec=local_node.DriverSpec(driver_name=driver_name, build=build, identity=identity(settings)),
        folders=local_node.Folders(home=settings.node.plugins_dir / driver_name, cdi=settings.node.cdi_dir),
    )


def site(settings: values.Settings, driver_name: str, intents: ports.Intents = ports.no_intents) -> known.Site:
    """Return the place where the driver of this name runs."""
    home = settings.node.plugins_dir / driver_name

    def pods(template: str) -> ports.PodStore:
        # Commands that read only this node do without the client, whose libraries take 20 ms to import.
        from drakit.kube import client
        from drakit.kube import pods as kube_pods

        namespace, _, name = template.partition("/")
        api = client.LazyClient(lambda: client.connect(settings.api.kubeconfig, seconds=settings.api.timeout))
        return kube_pods.ApiPods(
            api, namespace=namespace, template=name, node=node_name(settings), driver=driver_name, own_uid=settings.node.pod_uid
        )

    return known.Site(node=node_name(settings), driver_name=driver_name, home=home, machine=machine(settings), intents=intents, pods=pods)


def homes(settings: values.Settings) -> Sequence[pathlib.Path]:
    """Return the folders of all families' drivers, whether they exist or not."""
    kinds = schema.current().families
    return [settings.node.plugins_dir / kind.driver_name(schema.options_of(settings, kind)) for kind in kinds]


def opaque_rules(settings: values.Settings) -> Mapping[str, config.Rules]:
    """Return the rules of each driver's opaque parameters, by driver name; raises SettingsError."""
    enabled = {kind: schema.options_of(settings, kind) for kind in schema.current().families}
    return {
        names.check_driver(kind.driver_name(options), f"{kind.name}.driver_name"): kind.rules(options)
        for kind, options in enabled.items()
        if kind.is_enabled(options)
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterFamily:
    """The driver that the cluster-wide publisher serves; ``pools`` reads the pools and raises HardwareError, InventoryError."""

    driver_name: str
    pools: Callable[[], Sequence[inventory.ClusterPool]]


def cluster_family(settings: values.Settings, name: str) -> ClusterFamily:
    """Return the family of this name for the cluster-wide publisher; raises SettingsError, InventoryError."""
    is_own, installed = schema.current().is_of_one_driver, []
    for kind in schema.current().families:
        options = schema.options_of(settings, kind)
        driver_name = names.check_driver(kind.driver_name(options), f"{kind.name}.driver_name")
        pools = kind.pools(options, site(settings, driver_name)) if is_own or name == kind.name else None
        if pools is not None:
            return ClusterFamily(driver_name=driver_name, pools=pools)
        installed.append(kind.name)
    raise errors.SettingsError(f"{name!r} has no devices of several nodes; installed are {', '.join(installed) or 'none'}", key="family")


def identity(settings: values.Settings) -> engine.NodeIdentity:
    """Return the engine's identity: this node's pool, the boot ID and the name of the program."""
    return engine.NodeIdentity(pool=node_name(settings), boot_id=_boot_id(machine(settings)), program=process.PROGRAM.get())


def _boot_id(chosen: machines.Choice | None) -> str:
    if chosen is None:
        return BOOT_ID.read_text().strip()
    machines.take_over(chosen.directory, machines.load(chosen.name).name)
    return machines.boot_id(chosen.directory)
