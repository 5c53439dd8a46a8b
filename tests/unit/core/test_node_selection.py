"""Which nodes are meant is said in the API's words, read back the same, and refused where a server or its allocator would refuse it."""

from collections.abc import Mapping

import pytest

from drakit.core import errors
from drakit.core.slices import node_selection

OPERATORS = node_selection.Operator
SELECTOR = node_selection.NodeSelector(
    expressions=(
        node_selection.Requirement(key="zone", operator=OPERATORS.IN, values=("a", "b")),
        node_selection.Requirement(key="example.com/gpu", operator=OPERATORS.DOES_NOT_EXIST),
        node_selection.Requirement(key="cores", operator=OPERATORS.LESS, values=("8",)),
    ),
    fields=(node_selection.Requirement(key="metadata.name", operator=OPERATORS.IN, values=("node-1",)),),
)


@pytest.mark.parametrize("place", [node_selection.OneNode(name="node-1"), SELECTOR, node_selection.AllNodes(), None])
def test_the_node_selection_of_a_device_is_read_back_equal(place: node_selection.DeviceNodes | None) -> None:
    assert node_selection.of_device(node_selection.to_record(place)) == place


@pytest.mark.parametrize("place", [node_selection.PerDevice(), SELECTOR, node_selection.AllNodes(), None])
def test_the_node_selection_of_a_pool_is_read_back_equal(place: node_selection.PoolNodes | None) -> None:
    assert node_selection.of_pool(node_selection.to_record(place)) == place


def test_hosts_are_written_as_the_text_writes_them() -> None:
    requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1", "node-2"]}
    found = node_selection.to_record(node_selection.NodeSelector.by_label(node_selection.HOSTNAME, ["node-1", "node-2"]))
    assert found == {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}


@pytest.mark.parametrize(
    "stored, message",
    [
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, "2 terms; exactly one"),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, "needs at least one requirement"),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}, "unknown operator 'Near'"),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}, "In needs values"),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt"}]}]}}, "Gt needs exactly one"),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]}},
            "Exists takes no values",
        ),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["b"]}]}]}},
            "a field can only be metadata.name",
        ),
        ({"nodeSelector": "all"}, "must be an object"),
        ({"nodeSelector": {"nodeSelectorTerms": 5}}, "must be a list"),
        ({"nodeName": "Not A Node"}, "is not a node name"),
    ],
)
def test_a_node_selection_that_the_server_refuses_is_refused(stored: Mapping[str, object], message: str) -> None:
    with pytest.raises(errors.InventoryError, match=message):
        node_selection.of_device(stored)
