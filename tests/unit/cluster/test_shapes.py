"""Shapes against Kubernetes' own samples and schema, where those are at hand."""

import json
import pathlib
from collections.abc import Callable

import pytest

from drakit_cluster.objects import errors, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import decoding, formats, shape, table
from drakit_cluster.objects.schema.shape import ListOf, MapOf, Shape, Struct

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
DRA = [one for one in resources.ALL if one.group == resources.RESOURCE_GROUP and one.version == "v1" and one.kind != "DeviceTaintRule"]
AS_1_36 = FeatureGates.of({"DRAResourceSliceMixins": True, "DRAReservedForWorkloads": True}, "1.36")
ALPHA = ("DeviceTaintRule", "ResourcePoolStatusRequest")
OURS = {"mixins", "includes", "reservedForAnyPod"}
# KEP-5194 adds a list to the claim's spec that is, in Kubernetes, in its status alone.
OURS_AT = {"ResourceClaim.spec.reservedFor", "ResourceClaimTemplate.spec.spec.reservedFor"}

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the folder shared/data beside the repository is missing")


@needs_data
@pytest.mark.parametrize("resource", DRA, ids=lambda one: one.kind)
def test_a_full_sample_of_each_kind_survives_decoding(resource: Resource) -> None:
    sample: Json = json.loads((DATA / "api-samples" / f"resource.k8s.io.v1.{resource.kind}.json").read_text())
    decoded, unknown = table.decode(resource, sample)
    assert unknown == []
    assert decoded == sample


def compare(ours: Shape, schema: dict[str, Json], schemas: dict[str, Json], path: str) -> list[str]:
    """Return the differences of a shape and an OpenAPI schema."""
    node = schema
    reference = node.get("$ref") or (node.get("allOf") or [{}])[0].get("$ref")  # type: ignore[index,union-attr]
    if isinstance(reference, str):
        node = {**node, **schemas[reference.rpartition("/")[2]]}  # type: ignore[dict-item]
    if isinstance(ours, Struct):
        theirs = node.get("properties", {})
        assert isinstance(theirs, dict)
        found = [f"{path}.{name}" for name in set(theirs) ^ set(ours.fields) if name not in OURS and f"{path}.{name}" not in OURS_AT]
        for name in set(theirs) & set(ours.fields):
            found += compare(ours.fields[name], theirs[name], schemas, f"{path}.{name}")  # type: ignore[arg-type]
        return found
    if isinstance(ours, ListOf):
        keys = tuple(node.get("x-kubernetes-list-map-keys", ()))  # type: ignore[arg-type]
        key = node.get("x-kubernetes-patch-merge-key", "")
        wrong = [] if (keys, key) == (ours.keys, ours.merge_key) else [f"{path}: keys {keys} {key}"]
        return wrong + compare(ours.item, node["items"], schemas, f"{path}[]")  # type: ignore[arg-type]
    if isinstance(ours, MapOf):
        return compare(ours.value, node["additionalProperties"], schemas, f"{path}{{}}")  # type: ignore[arg-type]
    return []


@needs_data
@pytest.mark.parametrize("resource", DRA, ids=lambda one: one.kind)
def test_fields_and_list_keys_are_those_of_the_published_schema(resource: Resource) -> None:
    schemas = json.loads((DATA / "openapi" / "resource.k8s.io.v1.json").read_text())["components"]["schemas"]
    name = next(one for one in schemas if one.endswith(f".{resource.kind}"))
    assert compare(table.shape_of(resource, AS_1_36), schemas[name], schemas, resource.kind) == []


@needs_data
@pytest.mark.parametrize("kind", ALPHA)
def test_fields_and_list_keys_of_the_alpha_kinds_are_those_of_the_schema(kind: str) -> None:
    schemas = json.loads((DATA / "openapi" / "resource.k8s.io.v1alpha3.json").read_text())["components"]["schemas"]
    schema = schemas[f"io.k8s.api.resource.v1alpha3.{kind}"]
    resource = next(one for one in resources.SERVED if (one.kind, one.version) == (kind, "v1alpha3"))
    assert compare(table.shape_of(resource, AS_1_36), schema, schemas, kind) == []


@pytest.mark.parametrize(
    "leaf, value, wanted",
    [
        (shape.QUANTITY, "1024Mi", "1Gi"),
        (shape.QUANTITY, 2, "2"),
        (shape.QUANTITY, "0.5", "500m"),
        (shape.INTEGER, 5.0, 5),
        (shape.TIME, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        (shape.ANY, None, None),
    ],
)
def test_leaves_are_read_as_a_server_reads_them(leaf: shape.Leaf, value: Json, wanted: Json) -> None:
    assert decoding.Decoder().decode(leaf, value, "x") == wanted


@pytest.mark.parametrize(
    "leaf, value",
    [
        (shape.STRING, 1),
        (shape.INTEGER, "1"),
        (shape.INTEGER, True),
        (shape.INTEGER, 1 << 63),
        (shape.INTEGER, 1.5),
        (shape.BOOLEAN, 1),
        (shape.QUANTITY, "1 Gi"),
        (shape.QUANTITY, ""),
        (shape.QUANTITY, True),
        (shape.TIME, "yesterday"),
        (shape.TIME, "2026-01-01T00:00:00"),
    ],
)
def test_leaves_of_a_wrong_type_are_refused(leaf: shape.Leaf, value: Json) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^x: want"):
        decoding.Decoder().decode(leaf, value, "x")


@pytest.mark.parametrize(
    "check, good, bad",
    [
        (formats.dns_label, "a-1", "a.b"),
        (formats.dns_label, "a" * 63, "a" * 64),
        (formats.dns_subdomain, "a.b-c", "a..b"),
        (formats.path_segment, "system:node", "a/b"),
        (formats.c_identifier, "Abc_1", "1a"),
        (formats.semver, "1.2.3-rc.1+b", "v1.2.3"),
        (formats.uuid, "6f0a4b4e-7d50-4ad5-9f0c-2f2b8e6f7a10", "6F0A4B4E-7d50-4ad5-9f0c-2f2b8e6f7a10"),
        (formats.label_key, "a.b/C_d", "a b"),
        (formats.label_value, "", "-a"),
        (formats.condition_reason, "AllGood", "All Good"),
    ],
)
def test_formats_accept_and_refuse(check: Callable[[str], str], good: str, bad: str) -> None:
    assert check(good) == ""
    assert check(bad) != ""
