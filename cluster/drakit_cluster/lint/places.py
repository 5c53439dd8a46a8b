"""Slices and devices for nodes that are not among the nodes of the files."""

from collections.abc import Iterator, Sequence

from drakit_cluster.lint import findings
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted
from drakit_cluster.objects import json_types, nodes
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.json_types import Object


def check(slices: Sequence[Accepted], known: Sequence[Object]) -> Iterator[Finding]:
    """Yield slices and devices that are for no node of ``known``; without nodes, nothing can be said."""
    if not known:
        return
    for one in slices:
        spec = json_types.mapping(one.object, "spec")
        yield from _place(one, spec, "spec", known)
        for number, device in enumerate(json_types.objects(spec, "devices")):
            yield from _place(one, device, f"spec.devices[{number}]", known)


def _place(one: Accepted, place: Object, path: str, known: Sequence[Object]) -> Iterator[Finding]:
    name, names = json_types.text(place, "nodeName"), [json_types.text(node, "metadata", "name") for node in known]
    if name and name not in names:
        text = f"there is no Node {name} in these files: its devices are allocated to nobody"
        yield findings.warning(one.document, f"{path}.nodeName", text, findings.suggestion(name, names))
    selector = place.get("nodeSelector")
    if selector is not None and not any(_selects(selector, node) for node in known):
        text = f"selects no node in these files ({len(known)} in all)"
        yield findings.warning(one.document, f"{path}.nodeSelector", text, "compare it with the labels of the nodes")


def _selects(selector: json_types.Json, node: Object) -> bool:
    try:
        return nodes.selects(selector, node)
    except AllocationError:
        return True  # The server says what is wrong with it.
