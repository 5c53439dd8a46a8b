"""Fleets as groups of equal nodes. The slices of one node represent its group, so a fleet of any size needs the memory of a few nodes.

Two nodes are equal if their slices differ only in values that no decision depends on: the node name, and texts that occur on one node only
(UUIDs, serial numbers, MAC addresses) and that no selector reads. Equal texts within a node stay equal, so matchAttribute and
distinctAttribute decide as before. With pools for several nodes, each node is a group of its own, because the nodes share devices.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator.footprints import Footprint
from drakit_cluster.simulation.workload.templates import PodTemplate

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]+")
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True, kw_only=True)
class Reads:
    """The properties of nodes and devices that a workload reads: its CEL selectors, the labels of its node selectors, and names of nodes."""

    expressions: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, templates: Iterable[PodTemplate]) -> Self:
        """Return the properties that the pods of some templates read."""
        listed = list(templates)
        expressions = (text for template in listed for text in _expressions_of_claims(template.claims))
        return cls(
            expressions=frozenset(expressions),
            labels=frozenset(name for template in listed for name in template.node_selector),
            names=frozenset().union(*(template.nodes or () for template in listed)),
        )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Nodes with equal devices. ``node`` and ``slices`` are those of the prototype; ``names`` are all nodes of the group."""

    label: str
    node: Object
    slices: Sequence[Object]
    names: Sequence[str]

    @property
    def prototype(self) -> str:
        """The name of the node that represents the group."""
        return json_types.text(self.node, "metadata", "name")


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The nodes of a fleet. ``shared`` is for nodes whose pools span nodes; ``held`` are claims from before the first task."""

    groups: Sequence[Group] = ()
    shared: Sequence[Object] = ()
    """Slices for several nodes. If there are any, every node is a group of its own with all these slices."""
    classes: Mapping[str, Object] = field(default_factory=dict)
    held: Sequence[Object] = ()

    @property
    def size(self) -> int:
        """The number of nodes."""
        return sum(len(group.names) for group in self.groups)


def of_machine(label: str, slices: Sequence[Object], prototype: str, count: int, *, first: int = 0) -> Group:
    """Return ``count`` nodes named after a machine, which all have the slices of ``prototype``."""
    width = max(4, len(str(first + count - 1)))
    names = [f"{label}-{number:0{width}}" for number in range(first, first + count)]
    labels: Object = {_INSTANCE_TYPE: label}
    return Group(label=label, node={"metadata": {"name": prototype, "labels": labels}}, slices=slices, names=names)


def of_objects(
    slices: Sequence[Object], nodes: Sequence[Object], classes: Mapping[str, Object], reads: Reads, held: Sequence[Object] = ()
) -> Fleet:
    """Return the fleet of a cluster's objects."""
    nodes_by_name = {_name(node): node for node in nodes}
    by_node: defaultdict[str, list[Object]] = defaultdict(list)
    for entry in slices:
        by_node[json_types.text(entry, "spec", "nodeName")].append(entry)
    names = sorted(nodes_by_name.keys() or by_node.keys() - {""})
    objects: dict[str, Object] = {name: nodes_by_name.get(name, {"metadata": {"name": name}}) for name in names}
    if _spans_nodes(slices):
        alone = [Group(label=_label(node), node=node, slices=slices, names=[name]) for name, node in objects.items()]
        return Fleet(groups=alone, shared=slices, classes=classes, held=held)
    texts = [*reads.expressions, *_expressions_of(classes)]
    unread = _unread_texts(by_node, texts)
    groups: dict[str, list[str]] = defaultdict(list)
    for name, node in objects.items():
        groups[_normal_form(node, by_node.get(name, []), unread, reads)].append(name)
    equal_nodes = [
        Group(label=_label(objects[members[0]]), node=objects[members[0]], slices=by_node.get(members[0], []), names=members)
        for members in groups.values()
    ]
    return Fleet(groups=equal_nodes, classes=classes, held=held)


def _expressions_of_claims(claims: Iterable[Object]) -> Iterator[str]:
    """Yield the CEL selectors of claims."""
    for claim in claims:
        for request in json_types.objects(claim, "spec", "devices", "requests"):
            for exact in (json_types.mapping(request, "exactly"), *json_types.objects(request, "firstAvailable")):
                yield from (json_types.text(selector, "cel", "expression") for selector in json_types.objects(exact, "selectors"))


def _expressions_of(classes: Mapping[str, Object]) -> Iterator[str]:
    for device_class in classes.values():
        yield from (json_types.text(selector, "cel", "expression") for selector in json_types.objects(device_class, "spec", "selectors"))


def _spans_nodes(slices: Sequence[Object]) -> bool:
    owners: dict[tuple[str, str], str] = {}
    for entry in slices:
        spec = json_types.mapping(entry, "spec")
        node = json_types.text(spec, "nodeName")
        key = (json_types.text(spec, "driver"), json_types.text(spec, "pool", "name"))
        if not node or owners.setdefault(key, node) != node:
            return True
    return False


def _unread_texts(by_node: Mapping[str, Sequence[Object]], expressions: Sequence[str]) -> set[str]:
    """Return the attribute texts that occur on one node only and that no selector reads; none if an expression may read any attribute."""
    if any(Footprint.of(expression) is None for expression in expressions):
        return set()
    read = {word for expression in expressions for word in _IDENTIFIER.findall(expression.replace(".", " "))}
    owner: dict[str, str] = {}
    excluded_texts: set[str] = set()
    for node, slices in by_node.items():
        for name, text in _texts(slices):
            if name.rpartition("/")[2] in read or owner.setdefault(text, node) != node:
                excluded_texts.add(text)
    return owner.keys() - excluded_texts


def _texts(slices: Sequence[Object]) -> Iterator[tuple[str, str]]:
    for entry in slices:
        for device in json_types.objects(entry, "spec", "devices"):
            for name, value in json_types.mapping(device, "attributes").items():
                if isinstance(text := json_types.at(value, "string"), str):
                    yield name, text


def _normal_form(node: Object, slices: Sequence[Object], unread: set[str], reads: Reads) -> str:
    """Return the normal form of a node as text; equal nodes have the same."""
    name = _name(node)
    numbers: dict[str, str] = {}

    def renamed(value: Json) -> Json:
        text = json_types.at(value, "string")
        return {"only": numbers.setdefault(text, str(len(numbers)))} if isinstance(text, str) and text in unread else value

    specs: list[Json] = []
    for entry in sorted(slices, key=_name):
        spec = json_types.mapping(entry, "spec")
        pool = json_types.mapping(spec, "pool")
        devices = [
            device | {"attributes": {key: renamed(value) for key, value in json_types.mapping(device, "attributes").items()}}
            for device in json_types.objects(spec, "devices")
        ]
        is_named_after_node = json_types.text(pool, "name") == name
        normalized_pool: Json = pool | {"name": None if is_named_after_node else json_types.text(pool, "name"), "generation": None}
        specs.append(spec | {"nodeName": None, "pool": normalized_pool, "devices": json_types.from_objects(devices)})
    node_labels = json_types.mapping(node, "metadata", "labels")
    shape: Json = {
        "name": name if name in reads.names else None,
        "labels": {key: node_labels.get(key) for key in (*reads.labels, _INSTANCE_TYPE)},
        "unschedulable": json_types.at(node, "spec", "unschedulable"),
        "taints": json_types.at(node, "spec", "taints"),
        "slices": specs,
    }
    return json.dumps(shape, sort_keys=True)


def _label(node: Object) -> str:
    return json_types.text(node, "metadata", "labels", _INSTANCE_TYPE) or _name(node)


def _name(obj: Object) -> str:
    return json_types.text(obj, "metadata", "name")
