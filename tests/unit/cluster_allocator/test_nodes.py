import pytest

from drakit_cluster.objects import nodes
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.json_types import Json, Object

NODE: Object = {"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "16", "underscored": "1_0"}}}


def expressions(*requirements: tuple[str, str, list[str]]) -> Object:
    terms: list[Json] = [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in requirements]
    return {"nodeSelectorTerms": [{"matchExpressions": terms}]}


@pytest.mark.parametrize(
    "selector, selected",
    [
        (expressions(("zone", "In", ["a", "b"])), True),
        (expressions(("zone", "In", ["b"])), False),
        (expressions(("zone", "NotIn", ["b"])), True),
        (expressions(("missing", "NotIn", ["b"])), True),
        (expressions(("zone", "Exists", [])), True),
        (expressions(("missing", "DoesNotExist", [])), True),
        (expressions(("zone", "Exists", []), ("missing", "Exists", [])), False),
        (expressions(("cores", "Gt", ["8"])), True),
        (expressions(("cores", "Gt", ["16"])), False),
        (expressions(("cores", "Lt", ["17"])), True),
        (expressions(("zone", "Gt", ["1"])), False),
        ({"nodeSelectorTerms": [{}]}, False),
        ({"nodeSelectorTerms": []}, False),
        ({"nodeSelectorTerms": [{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}, True),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]}, False),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]}]}, False),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.uid", "operator": "NotIn", "values": ["n1"]}]}]}, True),
        (expressions(("underscored", "Gt", ["1"])), False),
    ],
)
def test_a_node_is_selected_by_labels_and_name(selector: Object, *, selected: bool) -> None:
    assert nodes.selects(selector, NODE) is selected


@pytest.mark.parametrize(
    "selector, message",
    [
        (expressions(("zone", "Near", ["a"])), "unknown operator 'Near'"),
        (expressions(("zone", "In", [])), "In does not take 0 values"),
        (expressions(("zone", "Exists", ["a"])), "Exists does not take 1 values"),
        (expressions(("cores", "Gt", ["many"])), "Gt does not take"),
        (expressions(("cores", "Lt", ["1_0"])), "Lt does not take"),
        (expressions(("cores", "Lt", ["9223372036854775808"])), "Lt does not take"),
        (expressions(("zone", "In", ["a", "b c"])), "value 'b c'"),
        (expressions(("a b", "Exists", [])), "key 'a b'"),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}]}, "matchFields takes In or NotIn"),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]}]}, "one value"),
        (
            {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": "zone", "operator": "Near"}]},
                ]
            },
            "unknown operator 'Near'",
        ),
    ],
)
def test_an_unreadable_selector_is_an_error(selector: Object, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        nodes.selects(selector, NODE)


def test_a_name_goes_before_all_nodes_and_a_selector() -> None:
    assert nodes.matches(NODE, {"nodeName": "n1"})
    assert not nodes.matches(NODE, {"nodeName": "n2", "allNodes": True})
    assert nodes.matches(NODE, {"allNodes": True, "nodeSelector": expressions(("zone", "In", ["b"]))})
    assert nodes.matches(NODE, {"nodeSelector": expressions(("zone", "In", ["a"]))})
    assert not nodes.matches(NODE, {})
