"""Discovery: the API server's version, and which fields of a ResourceSlice its schema (OpenAPI v3) lacks.

A field in the schema may still be dropped, because its feature gate is off; a field that is not in the schema is never stored. A failed request keeps
the values of the last successful one. Until the first success nothing counts as lacking, so that probe slices decide. Failures are retried after a
pause that grows to a minute.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeVar

from drakit.core import backoff, ports, records
from drakit.core.slices import feature_gates
from drakit.kube import api_objects, slice_codec, transport
from drakit.telemetry import logs

VERSION_PATH = "/version"
VERSION_SECONDS = 60.0
"""The interval between reads of the version, and the longest pause after a failure."""
FIRST_PAUSE = 1.0

SCHEMA_PATH = f"/openapi/v3/apis/{slice_codec.API_VERSION}"
# The fields below spec that identify each feature gate; "[]" and "{}" are the items of a list and of a map.
_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "DRAPartitionableDevices": (("sharedCounters",), ("devices", "[]", "consumesCounters")),
    "DRAResourceSliceMixins": (("mixins",),),
    "DRAConsumableCapacity": (("devices", "[]", "allowMultipleAllocations"), ("devices", "[]", "capacity", "{}", "requestPolicy")),
    "DRADeviceTaints": (("devices", "[]", "taints"),),
    "DRAListTypeAttributes": (("devices", "[]", "attributes", "{}", "strings"),),
    feature_gates.GROUPS: (("devices", "[]", "consumesCounters", "[]", "compatibilityGroups"),),
    feature_gates.PARTITION_TYPE: (("partitionTypeAttribute",),),
    feature_gates.NODE_OPERATIONS: (("skipNodeOperations",),),
    feature_gates.NODE_RESOURCES: (("devices", "[]", "nodeAllocatableResources"),),
}
_FIELD_OF_1_36 = ("devices", "[]", "nodeAllocatableResourceMappings")
_INNER = {"[]": "items", "{}": "additionalProperties"}
_DEPTH = 32

Node = Mapping[str, records.Json]

_log = logs.get_logger(__name__)

Read = TypeVar("Read")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Version:
    git_version: str = ""


class Description:
    """A cached description of the API server. It reads the version at most once a minute, and the schema once for each version."""

    def __init__(self, api: transport.Transport, clock: ports.Clock) -> None:
        self._api = api
        self._clock = clock
        self._server = ports.ApiServer(version="")
        self._has_schema = False
        self._read_at = clock.monotonic()
        self._pauses = backoff.Backoff(FIRST_PAUSE, VERSION_SECONDS)

    def current(self) -> ports.ApiServer:
        """Return the description of the server, after a refresh if one is due. Never raise."""
        if self._clock.monotonic() < self._read_at:
            return self._server
        version = self._get(VERSION_PATH, lambda answer: api_objects.FORMAT.decode(_Version, answer).git_version)
        if version is not None and version != self._server.version:
            self._server, self._has_schema = ports.ApiServer(version=version), False
        lacks = None if self._has_schema else self._get(SCHEMA_PATH, missing_gates)
        if lacks is not None:
            self._server, self._has_schema = dataclasses.replace(self._server, lacks=lacks), True
            _log.info("API server discovered", version=self._server.version, lacks=sorted(lacks))
        is_complete = version is not None and self._has_schema
        self._read_at = self._clock.monotonic() + (VERSION_SECONDS if is_complete else self._pauses.next())
        if is_complete:
            self._pauses.reset()
        return self._server

    def _get(self, path: str, read: Callable[[transport.Object], Read]) -> Read | None:
        """Return the answer decoded by ``read``, None for a failure. Log only the first failure in a row as a warning."""
        try:
            return read(self._api.request("GET", path))
        except api_objects.UNREADABLE as error:
            log = _log.warning if self._pauses.pause == FIRST_PAUSE else _log.debug
            log("API server discovery failed", path=path, error=str(error), retry_in_s=self._pauses.pause)
            return None


def missing_gates(document: Node) -> frozenset[str]:
    """Return the feature gates that have a field missing in the schema; none where the document does not describe a ResourceSlice."""
    schemas = _mapping(_mapping(document.get("components")).get("schemas"))
    spec = next(
        (
            schema
            for definition in schemas.values()
            if _is_slice(_mapping(definition)) and (schema := _subschema(_mapping(definition), "spec", schemas))
        ),
        None,
    )
    if spec is None:
        return frozenset()
    lacks = frozenset(gate for gate, fields in _FIELDS.items() if not all(_has(spec, steps, schemas) for steps in fields))
    if feature_gates.NODE_RESOURCES in lacks and _has(spec, _FIELD_OF_1_36, schemas):
        return lacks - {feature_gates.NODE_RESOURCES} | {feature_gates.NODE_RESOURCES_FIELD}
    return lacks


def _is_slice(schema: Node) -> bool:
    kinds = schema.get("x-kubernetes-group-version-kind")
    group, _, version = slice_codec.API_VERSION.partition("/")
    wanted = {"group": group, "version": version, "kind": slice_codec.KIND}
    return isinstance(kinds, (list, tuple)) and any(isinstance(kind, Mapping) and dict(kind) == wanted for kind in kinds)


def _has(schema: Node, steps: tuple[str, ...], schemas: Node) -> bool:
    """Return whether the schema has the field. A schema that cannot be followed counts as having it."""
    current: Node | None = schema
    for step in steps:
        if current is None:
            return True
        if step not in _INNER and "properties" in current and step not in _mapping(current["properties"]):
            return False
        current = _subschema(current, step, schemas)
    return True


def _subschema(schema: Node, step: str, schemas: Node) -> Node | None:
    """Return the schema one step below, with references resolved; None where there is none."""
    inner = _INNER.get(step)
    node = _mapping(schema.get(inner) if inner else _mapping(schema.get("properties")).get(step))
    for _ in range(_DEPTH):
        parts = node.get("allOf")
        wrapped = parts[0] if isinstance(parts, (list, tuple)) and len(parts) == 1 else node
        reference = _mapping(wrapped).get("$ref")
        if not isinstance(reference, str):
            return _mapping(wrapped) or None
        node = _mapping(schemas.get(reference.rpartition("/")[2]))
    return None


def _mapping(value: object) -> Node:
    return value if isinstance(value, Mapping) else {}
