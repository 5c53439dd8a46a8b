"""Samples from texts are linted though they are parts of objects and leave things out; nothing else reads them."""

import pytest

from drakit_cluster import lint as linting
from drakit_cluster import manifests
from drakit_cluster.objects import fragments, json_types, reading
from drakit_cluster.objects.features import FeatureGates

CLAIM = """\
kind: ResourceClaim
...
spec:
  devices:
    requests:
    - name: gpu
      exactlyy: {deviceClassName: gpu}
"""


def said(text: str) -> list[tuple[str, str]]:
    """Line and field of what linting says of a file ``f``."""
    found = linting.lint(manifests.read("f", text, samples=True), FeatureGates())
    return [(one.document.place(one.field), one.field or one.text) for one in found]


@pytest.mark.parametrize(
    "text, kind, path",
    [
        ("sharedCounters: []\ndevices: []", "ResourceSlice", "spec"),
        ("devices: [{name: a}]", "ResourceSlice", "spec"),
        ("devices: {requests: []}", "ResourceClaim", "spec"),
        ("selectors: []", "DeviceClass", "spec"),
        ("requestPolicy: {default: 1}", "ResourceSlice", "spec.devices[0].capacity[part]"),
    ],
)
def test_a_fragment_is_placed_by_its_fields(text: str, kind: str, path: str) -> None:
    [sample] = fragments.read(text)
    assert json_types.text(sample.part.body, "kind") == kind
    assert [one.text for one in sample.missing] == [f"this is a part only: {path} of a {kind}"]


def test_errors_have_the_lines_of_the_fragment() -> None:
    assert ("f:4", "spec.devices[1].basic") in said("# a part\ndevices:\n- name: a\n- {name: b, basic: {}}\n")


def test_ellipses_are_reported_and_their_siblings_are_checked() -> None:
    found = said(CLAIM)
    assert ("f:1", "line 2: the dots stand for omitted fields") in found
    assert ("f:1", "apiVersion") in found
    assert ("f:7", "spec.devices.requests[0].exactlyy") in found


def test_an_ellipsis_belongs_to_its_document() -> None:
    whole = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
    assert [len(one.missing) for one in fragments.read(f"{whole}---\n{CLAIM}---\n{whole}")] == [0, 2, 0]


def test_the_end_marker_of_yaml_is_not_an_ellipsis() -> None:
    whole = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
    assert [one.missing for one in fragments.read(f"{whole}...\n---\n{whole}")] == [(), ()]


@pytest.mark.parametrize("text", ["a: 1\n", "just text\n", "apiVersion: v1\n", "kind: Unheard\n", "- a\n"])
def test_a_fragment_of_no_known_kind_is_refused(text: str) -> None:
    with pytest.raises(manifests.ManifestError, match="an object needs apiVersion and kind"):
        manifests.read("f", text, samples=True)


def test_a_fragment_is_refused_where_an_object_is_expected() -> None:
    with pytest.raises(manifests.ManifestError, match="an object needs apiVersion and kind"):
        manifests.read("f", "devices: []\n")
    with pytest.raises(manifests.ManifestError, match="is not YAML"):
        manifests.read("f", CLAIM)


@pytest.mark.parametrize(
    "text, hint",
    [
        ("a:\n  b:\n    c: 1\n   d: 2\n", "(d: nothing above is indented by 3: write 4)"),
        ("a: 'x['y'] > 1'\n", "(a: a quote within quotes? write the text on lines of its own, after a: |-)"),
    ],
)
def test_a_mapping_that_ends_too_early_is_explained(text: str, hint: str) -> None:
    with pytest.raises(reading.ReadingError) as refused:
        reading.parts(text)
    assert str(refused.value).endswith(hint)
