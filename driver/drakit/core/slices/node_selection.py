"""The nodes that can use a device or the devices of a pool (resource.k8s.io/v1 nodeName, nodeSelector, allNodes, perDeviceNodeSelection).

A pool of one node needs no selection, because its slices have the node's name. A pool of the cluster states the nodes once for all devices or for
each device. Selectors have exactly one term, because the allocator of Kubernetes 1.36 accepts no other. Values are checked on construction;
InventoryError names the field.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Self

from drakit.core import arguments, errors, names, records


class Operator(enum.Enum):
    """The operator of a requirement (v1 NodeSelectorOperator)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


HOSTNAME = "kubernetes.io/hostname"
_FIELD_KEY = "metadata.name"
_LISTS = (Operator.IN, Operator.NOT_IN)
_PRESENCE = (Operator.EXISTS, Operator.DOES_NOT_EXIST)


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirement:
    """A requirement on a node: on a label in ``NodeSelector.expressions``, on ``metadata.name`` in ``NodeSelector.fields``."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names.check_label_key(self.key, "nodeSelector.key")
        field = f"nodeSelector[{self.key}].values"
        for value in self.values:
            names.check_label_value(value, field)
        if self.operator in _LISTS and not self.values:
            raise errors.InventoryError(f"{self.operator.value} needs values", field=field)
        if self.operator in _PRESENCE and self.values:
            raise errors.InventoryError(f"{self.operator.value} takes no values", field=field)
        if self.operator not in (*_LISTS, *_PRESENCE) and len(self.values) != 1:
            raise errors.InventoryError(f"{self.operator.value} needs exactly one value", field=field)


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSelector:
    """The nodes that meet every requirement. At least one is needed, because an empty term selects no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __post_init__(self) -> None:
        if not (self.expressions or self.fields):
            raise errors.InventoryError("needs at least one requirement", field="nodeSelector")
        for requirement in self.fields:
            if requirement.key != _FIELD_KEY or requirement.operator not in _LISTS or len(requirement.values) != 1:
                raise errors.InventoryError(f"a field can only be {_FIELD_KEY}, with In or NotIn and one value", field="nodeSelector")

    @classmethod
    def by_label(cls, key: str, values: Iterable[str]) -> Self:
        """Return a selector of nodes whose label has one of these values. Every node has the label ``HOSTNAME``."""
        return cls(expressions=(Requirement(key=key, operator=Operator.IN, values=tuple(values)),))


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class OneNode:
    """The node with this name."""

    name: str

    def __post_init__(self) -> None:
        if not names.is_subdomain(self.name):
            raise errors.InventoryError(f"{self.name!r} is not a node name", field="nodeName")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllNodes:
    """Every node."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerDevice:
    """Each device of the pool states its nodes (gate DRAPartitionableDevices)."""


DeviceNodes = OneNode | NodeSelector | AllNodes
PoolNodes = NodeSelector | AllNodes | PerDevice


def to_record(reach: "DeviceNodes | PoolNodes | None") -> dict[str, records.Json]:
    """Return the API's fields for a node selection; none for None."""
    match reach:
        case OneNode(name=name):
            return {"nodeName": name}
        case NodeSelector():
            parts = {"matchExpressions": reach.expressions, "matchFields": reach.fields}
            term: dict[str, records.Json] = {
                key: [_requirement_record(requirement) for requirement in part] for key, part in parts.items() if part
            }
            return {"nodeSelector": {"nodeSelectorTerms": [term]}}
        case AllNodes():
            return {"allNodes": True}
        case PerDevice():
            return {"perDeviceNodeSelection": True}
    return {}


def _requirement_record(requirement: Requirement) -> records.Json:
    record: dict[str, records.Json] = {"key": requirement.key, "operator": requirement.operator.value}
    return record | ({"values": list(requirement.values)} if requirement.values else {})


def of_device(found: Mapping[str, object]) -> DeviceNodes | None:
    """Return the node selection in a device's fields; None if there is none. Raises InventoryError for an unknown form."""
    if name := found.get("nodeName"):
        return OneNode(name=str(name))
    return _shared(found)


def of_pool(found: Mapping[str, object]) -> PoolNodes | None:
    """Return the node selection in the spec of a slice; None for a slice of one node. Raises InventoryError for an unknown form."""
    return PerDevice() if found.get("perDeviceNodeSelection") is True else _shared(found)


def _shared(fields: Mapping[str, object]) -> NodeSelector | AllNodes | None:
    if fields.get("allNodes") is True:
        return AllNodes()
    selector = fields.get("nodeSelector")
    if selector is None:
        return None
    terms = _list(_object(selector).get("nodeSelectorTerms"))
    if len(terms) != 1:
        raise errors.InventoryError(f"{len(terms)} terms; exactly one is supported", field="nodeSelector.nodeSelectorTerms")
    term = _object(terms[0])
    parts = {key: tuple(map(_read_requirement, _list(term.get(key)))) for key in ("matchExpressions", "matchFields")}
    return NodeSelector(expressions=parts["matchExpressions"], fields=parts["matchFields"])


def _read_requirement(value: object) -> Requirement:
    requirement = _object(value)
    try:
        operator = Operator(requirement.get("operator"))
    except ValueError as error:
        raise errors.InventoryError(f"unknown operator {requirement.get('operator')!r}", field="nodeSelector") from error
    return Requirement(key=str(requirement.get("key") or ""), operator=operator, values=tuple(map(str, _list(requirement.get("values")))))


def _object(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise errors.InventoryError("must be an object", field="nodeSelector")


def _list(value: object) -> list[object]:
    if value is None or isinstance(value, list | tuple):
        return list(value or ())
    raise errors.InventoryError("must be a list", field="nodeSelector")
