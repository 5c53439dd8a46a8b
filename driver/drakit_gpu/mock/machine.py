"""The GPUs of a mock machine, read from its file and from the tables of GPU models in ``models/``.

Every table has its source: measured on hardware, documented by the vendor, or guessed.
"""

import dataclasses
import enum
import functools
import importlib.resources
import uuid
from collections.abc import Mapping

import drakit
from drakit import machines, tables
from drakit_gpu import nvml_errors, port

_SUFFIX = ".yaml"
_MIB = 1 << 20
_CC_MODES = ("on", "off", "devtools")
_SERIALS = 10**12  # serial numbers have thirteen digits; a board without ECC is a consumer board, and has none
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "mock.gpu.drakit.dev")


class Evidence(enum.Enum):
    """The source of a table."""

    MEASURED = "measured"
    DOCUMENTED = "documented"
    GUESSED = "guessed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A kind of GPU; ``profiles`` (with their placements, by profile id) is empty when it has no MIG. ``memory`` is in bytes.

    ``evidence`` is the table's source, ``exceptions`` are the sources of single profiles, by id.
    """

    evidence: Evidence
    product_name: str
    brand: str
    architecture: str
    compute_capability: tuple[int, int]
    memory: int
    profiles: Mapping[int, tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]]]
    exceptions: Mapping[int, Evidence] = dataclasses.field(default_factory=dict)
    ecc: bool | None = None
    addressing_mode: str | None = None

    def evidence_of(self, profile_id: int) -> Evidence:
        """Return the source of a profile's figures."""
        return self.exceptions.get(profile_id, self.evidence)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """One GPU of the machine; ``mig_mode`` is its initial MIG mode."""

    gpu: port.Gpu
    model: Model
    mig_mode: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuMachine:
    """The GPUs of a machine, by UUID in the order of their minor numbers.

    ``latencies`` are seconds by method of the port; a method without one takes none.
    ``whole_beside_partitions`` asks the driver to offer an Ampere GPU in MIG mode as a whole too; see discovery.DiscoveryOptions.
    """

    name: str
    evidence: Evidence
    versions: port.Versions
    boards: Mapping[port.GpuUuid, Board]
    whole_beside_partitions: bool = False
    latencies: Mapping[str, float] = dataclasses.field(default_factory=dict)


def load(choice: machines.Choice) -> GpuMachine:
    """Return the GPUs of the chosen machine; raises SettingsError for an unknown machine or model and for malformed tables."""
    return read(machines.load(choice.name), choice.owner)


@functools.lru_cache(maxsize=64)
def read(machine: machines.Machine, owner: str) -> GpuMachine:
    """Return the GPUs a machine's file describes, with UUIDs derived from machine, owner and minor number."""
    top = machine.family("gpus").table("gpus")
    evidence = _evidence(top)
    cc_mode = top.optional("ccMode", lambda field: top.choice(field, _CC_MODES))
    versions = port.Versions(driver=top.text("driverVersion"), cuda=top.text("cudaDriverVersion"), cc_mode=cc_mode)
    models: dict[str, Model] = {}
    fabric = top.optional("fabric", lambda field: _fabric(top.table(field)))
    boards = [_board(row, minor, f"{machine.name}/{owner}", models, fabric) for minor, row in enumerate(top.rows("boards"))]
    beside = top.optional("wholeBesidePartitions", top.flag) or False
    latencies = top.optional("latencyMs", lambda field: _latencies(top.table(field))) or {}
    top.close()
    return GpuMachine(
        name=machine.name,
        evidence=evidence,
        versions=versions,
        boards={board.gpu.uuid: board for board in boards},
        whole_beside_partitions=beside,
        latencies=latencies,
    )


@functools.cache
def model_names() -> tuple[str, ...]:
    """Return the names of all GPU models, sorted."""
    folder = importlib.resources.files(__package__) / "models"
    return tuple(sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX)))


def load_model(name: str, *, field: str = "model") -> Model:
    """Return the model of that name; raises SettingsError that lists the known ones."""
    if name not in model_names():
        raise drakit.SettingsError(f"no GPU model {name!r}; known are {', '.join(model_names())}", key=field)
    return _stored_model(name)


@functools.cache
def _stored_model(name: str) -> Model:
    """Return the model of a file of this package, read once."""
    text = (importlib.resources.files(__package__) / "models" / f"{name}{_SUFFIX}").read_text("utf-8")
    return read_model(tables.from_yaml(text, name))


def read_model(top: tables.Table) -> Model:
    """Return a model from its table."""
    capability = top.integers("computeCapability")
    if len(capability) != len(("major", "minor")):
        raise drakit.SettingsError("must be [major, minor]", key=top.at("computeCapability"))
    profiles: dict[int, tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]]] = {}
    exceptions: dict[int, Evidence] = {}
    for row in top.rows("profiles"):
        differs = _evidence(row) if "evidence" in row else None
        profile, placements = _profile(row)
        if profile.id in profiles:
            raise drakit.SettingsError(f"{profile.id} is the id of two profiles", key=row.at("id"))
        profiles[profile.id] = (profile, placements)
        if differs is not None:
            exceptions[profile.id] = differs
    model = Model(
        evidence=_evidence(top),
        product_name=top.text("productName"),
        brand=top.text("brand"),
        architecture=top.text("architecture"),
        compute_capability=(capability[0], capability[1]),
        memory=top.integer("memoryMiB", least=1) * _MIB,
        profiles=profiles,
        exceptions=exceptions,
        ecc=top.optional("ecc", top.flag),
        addressing_mode=top.optional("addressingMode", top.text),
    )
    top.close()
    return model


def _profile(row: tables.Table) -> tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]]:
    profile = port.GpuInstanceProfile(
        enum=row.integer("enum"),
        id=row.integer("id"),
        name=row.text("name"),
        slices=row.integer("slices", least=1),
        instances=row.integer("instances", least=1),
        multiprocessors=row.integer("multiprocessors", least=1),
        copy_engines=row.integer("copyEngines"),
        decoders=row.integer("decoders"),
        encoders=row.integer("encoders"),
        jpeg_engines=row.integer("jpegEngines"),
        ofa_engines=row.integer("ofaEngines"),
        memory_mib=row.integer("memoryMiB", least=1),
    )
    size = row.integer("size", least=1)
    placements = tuple(port.Placement(start=start, size=size) for start in row.integers("starts"))
    row.close()
    return profile, placements


def _latencies(row: tables.Table) -> Mapping[str, float]:
    """Return the latencies in seconds, by method of the port; the file has milliseconds."""
    seconds = {call: row.integer(call) / 1000 for call in nvml_errors.CALLS if call in row}
    row.close()
    return seconds


def _fabric(row: tables.Table) -> port.Fabric:
    fabric = port.Fabric(state=row.text("state"), cluster=row.optional("cluster", row.text), clique=row.optional("clique", row.integer))
    row.close()
    return fabric


def _nvlinks(row: tables.Table) -> port.NvLinks:
    """Return the NVLinks of a row: ``switched: true``, or the PCI addresses of the GPUs at the other ends."""
    links = port.NvLinks(gpus=row.optional("gpus", row.texts) or (), switched=row.optional("switched", row.flag) or False)
    row.close()
    return links


def _board(row: tables.Table, minor: int, origin: str, models: dict[str, Model], fabric: port.Fabric | None) -> Board:
    name = row.text("model")
    if name not in models:
        models[name] = load_model(name, field=row.at("model"))
    model = models[name]
    identity = uuid.uuid5(_NAMESPACE, f"{origin}/{minor}")
    nvlinks = row.optional("nvlinks", lambda field: _nvlinks(row.table(field))) or port.NvLinks()
    gpu = port.Gpu(
        uuid=port.GpuUuid(f"GPU-{identity}"),
        minor=minor,
        product_name=model.product_name,
        pci_bus_id=row.text("pciBusID"),
        memory=model.memory,
        brand=model.brand,
        architecture=model.architecture,
        compute_capability=model.compute_capability,
        pcie_root=row.optional("pcieRoot", row.text),
        numa_nodes=machines.numa_nodes(row),
        is_vgpu=row.optional("vgpu", row.flag) or False,
        serial=str(identity.int % _SERIALS + _SERIALS) if model.ecc is not None else None,
        module_id=row.optional("moduleID", row.integer),
        ecc=model.ecc,
        addressing_mode=model.addressing_mode,
        nvlinks=nvlinks,
        fabric=fabric if nvlinks.switched else None,
    )
    mig_mode = row.flag("migMode")
    if mig_mode and not model.profiles:
        raise drakit.SettingsError(f"{name} has no MIG", key=row.at("migMode"))
    row.close()
    return Board(gpu=gpu, model=model, mig_mode=mig_mode)


def _evidence(table: tables.Table) -> Evidence:
    return Evidence(table.choice("evidence", [member.value for member in Evidence]))
