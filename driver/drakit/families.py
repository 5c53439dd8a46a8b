"""Device families: what a program needs to know of a driver to serve it, and how the installed ones are found.

A family is named by an entry point of the group ``drakit.families``:

    [project.entry-points."drakit.families"]
    ssd = "ssd_driver:FAMILY"

``drakit run`` then serves it beside the other families of the node. Loading a family must not import the library of its hardware: commands load all
of them, whatever hardware the node has.
"""

import abc
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeGuard, TypeVar

from drakit import entry_points
from drakit.core import advanced, arguments, config, edits, errors, inventory, ports, records
from drakit.core import driver as drivers

if TYPE_CHECKING:
    import importlib.metadata

    from drakit import machines

GROUP = "drakit.families"
"""The group of entry points."""
_GROUP = "resource.k8s.io"

Make = Callable[..., drivers.Driver[Any]]
Options = TypeVar("Options")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """The place where a driver runs: the node's name, the driver's name and its folder.

    ``machine`` takes the place of real hardware. ``intents`` gives the intents of all grants in the driver's journal, by which a driver tells what it
    made from what others made. ``pods`` connects the driver to the API server for pods of its own, made from a PodTemplate NAMESPACE/NAME; the
    connection is opened by the first call.
    """

    node: str
    driver_name: str
    home: pathlib.Path
    machine: "machines.Choice | None" = None
    intents: ports.Intents = ports.no_intents
    pods: Callable[[str], ports.PodStore]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Right:
    """A right in the cluster that a driver uses, as RBAC names it. Without one that is not ``needed``, the driver works with restrictions.

    ``name`` limits the right to one object. An empty ``namespace`` means all namespaces.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    subresource: str = ""
    needed: bool = True
    why: str = ""
    name: str = ""
    namespace: str = ""

    def attributes(self, verb: str) -> dict[str, records.Json]:
        """Return the right to do one of the verbs as ``resourceAttributes`` of an access review."""
        return {
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "verb": verb,
            "name": self.name,
            "namespace": self.namespace,
        }

    @property
    def path(self) -> str:
        """Return the resource as RBAC writes it, followed by the object's name, if any."""
        path = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{path} {self.name}" if self.name else path


class Family(abc.ABC, Generic[Options]):
    """A driver as commands know it before its hardware is opened. Every method but ``build`` works without the hardware and its library.

    ``name`` is that of ``--family`` and of the group in the settings file. ``options`` is the class of that group's settings: a frozen dataclass, of
    which every field has a default. ``machine_key`` is the key of the family's part in the files of mock machines; a family without one is served
    with and without mock hardware. ``spans_nodes`` is true for devices that are allocated to several nodes, ``mock_only`` for a family that is known
    on mock machines only.
    """

    name: str
    options: type[Options] | None = None
    machine_key: ClassVar[str] = ""
    spans_nodes: ClassVar[bool] = False
    mock_only: ClassVar[bool] = False

    @property
    def package(self) -> str:
        """The package whose loggers write into drakit's log."""
        return type(self).__module__.partition(".")[0]

    @abc.abstractmethod
    def driver_name(self, options: Options) -> str:
        """Return the driver's name."""

    @abc.abstractmethod
    def build(self, options: Options, site: Site) -> drivers.Driver[Any]:
        """Return the driver. Raises SettingsError, and HardwareError if the hardware cannot be opened."""

    def is_enabled(self, options: Options) -> bool:  # noqa: ARG002 - for overrides
        """Return whether the admin wants the family served where there is hardware."""
        return True

    def missing(self, options: Options) -> str:  # noqa: ARG002 - for overrides
        """Return why the node has no hardware of the family; empty if it may have some. With a reason, only ``--family`` serves it."""
        return ""

    @abc.abstractmethod
    def rules(self, options: Options) -> config.Rules:
        """Return what the driver accepts as opaque parameters."""

    def pools(self, options: Options, site: Site) -> Callable[[], Sequence[inventory.ClusterPool]] | None:  # noqa: ARG002 - for overrides
        """Return a function that reads the pools that belong to no node, for ``publish``; None if all devices belong to nodes."""
        return None

    def check_node(self, options: Options, site: Site) -> Iterable[advanced.Finding]:  # noqa: ARG002 - for overrides
        """Check what the family needs on a node with real hardware, for ``doctor``: libraries, kernel features, programs. Changes nothing."""
        return ()

    def check_claims(self, options: Options, handed_out: Sequence[edits.Edits]) -> Iterable[advanced.Finding]:  # noqa: ARG002 - for overrides
        """Check what the containers of prepared claims need on the node, for ``doctor``."""
        return ()

    def rights(self, options: Options) -> Sequence[Right]:  # noqa: ARG002 - for overrides
        """Return the rights that this driver needs in addition to those of every driver."""
        return ()

    def placing_labels(self) -> Mapping[str, str | None]:
        """Return the node labels of which the manifests need one to place the driver; None stands for any value. Empty: every node."""
        return {}

    def local_path(self, options: Options, path: pathlib.Path) -> pathlib.Path | None:  # noqa: ARG002 - for overrides
        """Return where this process sees a path of the host that only this family mounts, None for any other path."""
        return None


EVERY_DRIVERS = (
    Right(group=_GROUP, resource="resourceclaims", verbs=("get",), why="to prepare claims"),
    Right(group=_GROUP, resource="resourceclaims", verbs=("list",), needed=False, why="to restore a lost journal"),
    Right(group=_GROUP, resource="resourceslices", verbs=("list", "watch", "create", "update", "delete"), why="to publish devices"),
    Right(group="", resource="nodes", verbs=("get",), why="to make the node the owner of its slices"),
    Right(
        group=_GROUP,
        resource="resourceclaims",
        subresource="status",
        verbs=("patch",),
        needed=False,
        why="to write device status into claims",
    ),
)
"""The rights that every driver of a node uses."""


def rights(kind: Family[Any], options: object) -> Sequence[Right]:
    """Return the rights that a node's driver of this family uses, and that its manifests grant."""
    events = Right(group="", resource="events", verbs=("create", "patch"), needed=False, why="to report errors to users as events")
    return (
        *EVERY_DRIVERS,
        Right(
            group=_GROUP,
            resource="resourceclaims",
            subresource="driver",
            verbs=("arbitrary-node:patch" if kind.spans_nodes else "associated-node:patch",),
            needed=False,
            why="to write device status into claims, from Kubernetes 1.36 on",
            name=kind.driver_name(options),
        ),
        *(() if kind.spans_nodes else (events,)),
        *kind.rights(options),
    )


class DriverFamily(Family[Any]):
    """The family of a driver that ``make`` makes: a class, or a function that returns a driver. ``make`` receives the options if there are any."""

    def __init__(self, make: Make, *, options: type | None = None, name: str = "") -> None:
        self._make = make
        self.options = options
        self.name = name or group_of(self.kind_and_name[1])

    @functools.cached_property
    def kind_and_name(self) -> tuple[type[drivers.Driver[Any]], str]:
        """Return the driver's class and name; if ``make`` is not a class with a name, of a driver that it makes with default options.

        A class is not called, because its ``__init__`` may open hardware that only the real settings name. Raises DrakitError.
        """
        make = self._make
        if _has_name(make):
            drivers.check_class(make)
            return make, make.name
        driver = drivers.made_by(make, *(() if self.options is None else (self.options(),)))
        return type(driver), driver.name

    @property
    def package(self) -> str:
        return str(getattr(self._make, "__module__", "")).partition(".")[0]

    def driver_name(self, options: object) -> str:
        return self._named(options).name

    def build(self, options: object, site: Site) -> drivers.Driver[Any]:  # noqa: ARG002 - an author's driver knows its site by its context
        return self._make(*self._given(options))

    def rules(self, options: object) -> config.Rules:
        if not issubclass(self.kind_and_name[0], advanced.ClaimChecker | advanced.PodChecker):
            return config.Rules(types=self._named(options).config_types)
        author = drivers.made_by(self._make, *self._given(options))
        return config.Rules(
            types=author.config_types,
            check_claim=author.check_claim if isinstance(author, advanced.ClaimChecker) else None,
            check_pod=author.check_pod if isinstance(author, advanced.PodChecker) else None,
        )

    def pools(self, options: object, site: Site) -> Callable[[], Sequence[inventory.ClusterPool]] | None:
        if not issubclass(self.kind_and_name[0], advanced.ClusterPools):
            return None
        author = self.build(options, site)
        return functools.partial(advanced.cluster_pools, author)

    def rights(self, options: object) -> Sequence[Right]:  # noqa: ARG002 - the class decides
        kind, name = self.kind_and_name
        rights: list[Right] = []
        if issubclass(kind, advanced.Binder):
            why = "to bind devices with binding conditions before their pods are bound"
            rights.append(Right(group=_GROUP, resource="resourceclaims", verbs=("list", "watch"), why=why))
        if issubclass(kind, advanced.ClusterPools | advanced.ClusterDevices):
            why = "to write the status of devices that belong to no single node, from Kubernetes 1.36 on"
            verbs = ("arbitrary-node:patch",)
            rights.append(
                Right(group=_GROUP, resource="resourceclaims", subresource="driver", verbs=verbs, needed=False, why=why, name=name)
            )
        return rights

    def _given(self, options: object) -> tuple[object, ...]:
        return () if self.options is None else (options,)

    def _named(self, options: object) -> type[drivers.Driver[Any]] | drivers.Driver[Any]:
        """Return the driver's class; if its name depends on the options, a driver."""
        return self._make if _has_name(self._make) else drivers.made_by(self._make, *self._given(options))


def _has_name(make: Make) -> TypeGuard[type[drivers.Driver[Any]]]:
    return isinstance(make, type) and issubclass(make, drivers.Driver) and isinstance(getattr(make, "name", None), str)


@arguments.checked_call
def family(make: Make, *, settings: type | None = None, name: str = "") -> Family[Any]:
    """Return the family of a driver, for an entry point of the group ``drakit.families``.

    ``make`` and ``settings`` are those of ``drakit.run``. ``name`` is the name of the family and of its group of settings, by default the first label
    of the driver's name: ``ssd`` for ``ssd.example.com``. Raises TypeError for a driver that breaks the contract's form.
    """
    return DriverFamily(make, options=settings, name=name)


def group_of(driver_name: str) -> str:
    """Return the default group of a driver's settings: ``ssd`` for ``ssd.example.com``."""
    return driver_name.partition(".")[0].replace("-", "_")


@functools.cache
def installed() -> tuple[Family[Any], ...]:
    """Return the families of all installed distributions, sorted by name. Raises SettingsError for one that cannot be loaded."""
    loaded = tuple(_loaded(point) for point in entry_points.of(GROUP))
    for first, second in itertools.pairwise(loaded):
        if first.name == second.name:
            raise errors.SettingsError(f"two installed distributions have a family {first.name!r}; uninstall one", key=GROUP)
    return loaded


def _loaded(point: "importlib.metadata.EntryPoint") -> Family[Any]:
    loaded, origin = entry_points.load(point), entry_points.origin(point)
    if not isinstance(loaded, Family):
        raise entry_points.unusable(point, f"{origin} is no drakit.Family; make one with drakit.family(...)")
    if loaded.name != point.name:
        raise entry_points.unusable(point, f"{origin} is named {loaded.name!r}; name its entry point so")
    return loaded
