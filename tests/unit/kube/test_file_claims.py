import json
import pathlib

import pytest
import yaml

from drakit.core import errors
from drakit.kube import file_claims
from fakes import claim_samples as samples

YAML_WITH_A_DATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, uid: 0f2c8d3e-1a5b-4c7d-9e8f-102938475610, creationTimestamp: 2026-01-02T03:04:05Z}
status:
  allocation:
    devices:
      results: [{request: gpu, driver: gpu.drakit.dev, pool: node, device: gpu-0}]
      config: [{source: FromClaim, opaque: {driver: gpu.drakit.dev, parameters: {until: 2026-01-02, count: 1}}}]
"""


def write(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(errors.ConfigError) as raised:
        file_claims.FileClaims(path)
    return str(raised.value)


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_list_of_claims_is_read_from_json_and_yaml(tmp_path: pathlib.Path, dump: object) -> None:
    assert callable(dump)
    items = [samples.allocated(), samples.allocated(name="second", uid=str(samples.OTHER_UID))]
    source = file_claims.FileClaims(write(tmp_path, dump({"apiVersion": "v1", "kind": "List", "items": items})))
    assert [ref.name for ref in source.refs] == [samples.REF.name, "second"]
    assert [source.fetch(ref).ref for ref in source.refs] == list(source.refs)


def test_a_claim_without_namespace_is_in_default_and_dates_stay_text(tmp_path: pathlib.Path) -> None:
    source = file_claims.FileClaims(write(tmp_path, f"---\n{YAML_WITH_A_DATE}---\n"))
    (ref,) = source.refs
    assert ref.namespace == "default"
    assert source.fetch(ref).configs[0].parameters == {"until": "2026-01-02", "count": 1}


@pytest.mark.parametrize("key", ["0", "true", "1.5", "null"])
def test_a_key_that_is_no_text_in_yaml_is_the_text_it_is_in_json(tmp_path: pathlib.Path, key: str) -> None:
    source = file_claims.FileClaims(write(tmp_path, YAML_WITH_A_DATE.replace("until: 2026-01-02", f"limits: {{{key}: 5Gi}}")))
    assert source.fetch(source.refs[0]).configs[0].parameters == {"limits": {key: "5Gi"}, "count": 1}


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("device: gpu-0, 0: 5Gi", "status.allocation.devices.results[0].0: is not a field of a ResourceClaim; known are request, driver"),
        (
            "device: gpu-0, consumedCapacity: {0: 5Gi}",
            "consumedCapacity[\"0\"]: '0' must end in a C identifier of at most 32 characters; write",
        ),
    ],
)
def test_a_number_where_a_name_belongs_is_reported_by_its_field(tmp_path: pathlib.Path, wrong: str, message: str) -> None:
    source = file_claims.FileClaims(write(tmp_path, YAML_WITH_A_DATE.replace("device: gpu-0", wrong)))
    with pytest.raises(errors.ClaimError) as raised:
        source.fetch(source.refs[0])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{a: 1, a: 2}", "claims.yaml: is neither YAML nor JSON: line 1, column 8: the key a is given twice"),
        ('{0: 1, "0": 2}', "claims.yaml: is neither YAML nor JSON: line 1, column 8: the key 0 is given twice"),
        ("", "claims.yaml: holds no ResourceClaim"),
        ("just text", 'claims.yaml[0]: must be an object, not "just text"'),
        ("{unclosed", "claims.yaml: is neither YAML nor JSON"),
        ("a: !!python/object:os.system {}", "claims.yaml: is neither YAML nor JSON"),
        ("kind: Pod\napiVersion: v1", "claims.yaml[0].kind: is 'Pod'; only ResourceClaims that are allocated can be used here"),
        ("kind: ResourceClaim\napiVersion: v1", "claims.yaml[0].apiVersion: is 'v1', and must be resource.k8s.io/v1"),
        ("kind: ResourceClaim\napiVersion: resource.k8s.io/v1alpha3", "claims.yaml[0].apiVersion: is 'resource.k8s.io/v1alpha3'"),
        ("kind: ResourceClaim\napiVersion: resource.k8s.io/v1", "claims.yaml[0].metadata.uid: is required"),
        (
            "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: a/b, uid: 4cf8db2d-06c0-4d70-9a51-e59b25b2c16c}",
            "claims.yaml[0].metadata.name: 'a/b' is not a DNS subdomain",
        ),
        ("kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}", "claims.yaml[0].metadata.uid: is required"),
        (
            "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: a, uid: x}",
            "claims.yaml[0].metadata.uid: 'x' is not a lower-case UUID",
        ),
        (f"{YAML_WITH_A_DATE}---{YAML_WITH_A_DATE}", "claims.yaml[1]: the claim default/c is given twice"),
        ("? !!binary aGk=\n: 1\n", "claims.yaml: is neither YAML nor JSON: line 1, column 1: the key b'hi' is nothing that JSON has"),
        ("? !!timestamp 2026-01-02\n: 1\n", "is nothing that JSON has"),
    ],
)
def test_what_is_no_claim_is_refused_with_the_place_named(tmp_path: pathlib.Path, text: str, message: str) -> None:
    assert message in refusal(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "missing.yaml")
    assert "cannot be read: is a directory" in refusal(tmp_path)


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_bytes(b"\x80\x00\xff")
    assert "is not UTF-8 text (byte 1)" in refusal(path)
    path.write_bytes(b"#" * (file_claims.SIZE_MAX + 1))
    assert "more than" in refusal(path)
