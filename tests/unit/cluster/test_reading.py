"""YAML and JSON are taken apart as Kubernetes does it, every field keeps its line, and errors name document, line and column."""

import json

import pytest

from drakit_cluster import manifests
from drakit_cluster.objects import reading

CLAIMS = """\
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata:
    name: a
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {name: b}
  spec:
    devices:
      requests:
      - name: r
---
# nothing
---
apiVersion: v1
kind: Node
metadata: {name: n}
"""


def test_a_missing_field_has_the_line_of_its_parent() -> None:
    first, second, node = manifests.read("f.yaml", CLAIMS)
    assert [one.number for one in (first, second, node)] == [1, 1, 3]
    assert first.place("metadata.name") == "f.yaml:7"
    assert second.place("spec.devices.requests[0].name") == "f.yaml:14"
    assert second.place("spec.devices.requests[0].exactly.count") == "f.yaml:14"
    assert second.place("status") == "f.yaml:8"
    assert node.place() == "f.yaml:18"


def test_names_have_their_namespace_also_where_it_is_left_out() -> None:
    assert [one.label for one in manifests.read("f.yaml", CLAIMS)] == ["ResourceClaim default/a", "ResourceClaim default/b", "Node n"]


BROKEN = {
    "a wrong indent": ("kind: X\n  y: z\n", "is not YAML: line 2, column 4: "),
    "in the second document": ("kind: X\n---\na: [\n", "document 2: is not YAML: line 4, column 1: "),
    "a tab": (
        "a:\n\t- b\n",
        "is not YAML: line 2, column 1: found character that cannot start any token (a tab? YAML is indented by spaces)",
    ),
    "a key twice": ("a: 1\nb: 2\na: 3\n", "is not YAML: line 3, column 1: the key a is given twice"),
    "an alias of itself": ("a: &x [*x]\n", "is not YAML: line 1, column 8: the alias *x leads back to itself"),
    "what JSON has not": ("a: !!binary aGk=\n", "is not YAML: a tag produces a value that JSON cannot hold"),
    "no text": ("a: \x00", "is not YAML: "),
    "an endless number in JSON": (f'{{"a": {"1" * 5000}}}', "is not JSON: Exceeds the limit"),
    "a key twice in JSON": ('{"a": 1, "a": 2}', "is not JSON: key a occurs twice"),
}


@pytest.mark.parametrize("text, message", BROKEN.values(), ids=BROKEN)
def test_a_syntax_error_is_reported_with_its_place(text: str, message: str) -> None:
    with pytest.raises(reading.ReadingError) as raised:
        reading.parts(text)
    assert str(raised.value).startswith(message)
    assert "unicode string" not in str(raised.value)


def test_json_by_its_name_is_read_as_json() -> None:
    with pytest.raises(manifests.ManifestError) as raised:
        manifests.read("f.json", '{"kind": "X",\n "a": }')
    assert str(raised.value) == "f.json: is not JSON: line 2, column 7: Expecting value"


def test_objects_of_json_one_after_the_other_are_documents_and_tabs_are_blanks() -> None:
    text = '{"apiVersion": "v1",\n\t"kind": "Node"}\n{"apiVersion": "v1", "kind": "Pod"}\n'
    assert [(one.number, one.part.line, one.body["kind"]) for one in manifests.read("f.json", text)] == [(1, 1, "Node"), (2, 3, "Pod")]


def test_json_keeps_the_lines_of_its_fields() -> None:
    (only,) = manifests.read("f.json", '{"apiVersion": "v1",\n "kind": "Node",\n "metadata": {\n  "name": "n"}}')
    assert only.place("metadata.name") == "f.json:4"
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("a", "b")]
    first, second = manifests.read("f.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}, indent=1))
    assert [one.place() for one in (first, second)] == ["f.json:5", "f.json:12"]
    assert second.place("metadata.name") == "f.json:16"


def test_json_has_the_values_of_json() -> None:
    (only,) = reading.parts('{"a": 1e3, "b": "\\ud800", "c": [1, "on", null]}')
    assert only.body == {"a": 1000.0, "b": "\ufffd", "c": [1, "on", None]}


def test_keys_are_text_and_dates_stay_text() -> None:
    (only,) = reading.parts("2: 2026-11-22\ntrue: x\n")
    assert only.body == {"2": "2026-11-22", "true": "x"}


@pytest.mark.parametrize(
    "text, missing",
    [("a: 1", "apiVersion nor kind"), ("kind: Pod", "apiVersion"), ("apiVersion: v1", "kind"), ("7", "apiVersion nor kind")],
)
def test_a_document_that_is_not_an_object_is_reported_with_its_line(text: str, missing: str) -> None:
    with pytest.raises(manifests.ManifestError) as raised:
        manifests.read("f.yaml", f"apiVersion: v1\nkind: Node\n---\n{text}\n")
    assert str(raised.value) == f"f.yaml: document 2 (line 4): an object needs apiVersion and kind, and this has no {missing}"
