"""The sample manifests: the same everywhere, valid for Kubernetes 1.36, and taken by the local cluster as they are."""

import itertools
import pathlib
from collections.abc import Iterator

import pytest
import yaml

from drakit_cluster.api import registry
from drakit_cluster.objects import json_types, resources
from drakit_tools.demo import demo_cluster, samples
from fakes import kube_schema

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "daemonset" / "samples"
KINDS = {resource.kind: resource for resource in resources.ALL}


def objects(*kinds: str) -> Iterator[tuple[str, json_types.Object]]:
    """The objects of some kinds in all samples, with the sample's name."""
    for name in samples.names():
        yield from ((name, item) for item in samples.load(name) if json_types.text(item, "kind") in kinds)


def specs() -> dict[str, json_types.Object]:
    """The claim specs by the name of their claim or template."""
    found = {json_types.text(item, "metadata", "name"): json_types.mapping(item, "spec") for _, item in objects("ResourceClaim")}
    for _, item in objects("ResourceClaimTemplate"):
        found[json_types.text(item, "metadata", "name")] = json_types.mapping(item, "spec", "spec")
    return found


def test_the_package_and_the_repository_have_the_same_samples() -> None:
    packaged = {file.name: file.read_text() for file in samples.folder().iterdir()}
    assert packaged
    assert packaged == {file.name: file.read_text() for file in FOLDER.glob("*.yaml")}


def test_the_device_classes_of_the_demo_are_those_of_the_daemonset() -> None:
    families = [yaml.safe_load_all((ROOT / "daemonset" / family / "deviceclasses.yaml").read_text()) for family in ("gpu", "nic")]
    assert list(yaml.safe_load_all(samples.classes_file().read_text())) == [*itertools.chain(*families)]


@pytest.mark.parametrize("name", samples.names())
def test_every_sample_matches_the_schema_of_kubernetes(name: str) -> None:
    found = samples.load(name)
    assert found
    for item in found:
        kube_schema.validate(item)


def test_the_local_cluster_stores_classes_and_samples_in_order_of_name() -> None:
    api = registry.Registry()
    for item in (*samples.classes(), *(item for name in samples.names() for item in samples.load(name))):
        created = api.create(KINDS[json_types.text(item, "kind")], item)
        assert json_types.text(created, "metadata", "name") == json_types.text(item, "metadata", "name")


def test_everything_is_in_the_namespace_of_the_samples() -> None:
    for name, item in objects("Pod", "ResourceClaim", "ResourceClaimTemplate"):
        assert json_types.text(item, "metadata", "namespace") == demo_cluster.NAMESPACE, name


def test_pods_name_claims_and_requests_that_exist_and_classes_that_exist() -> None:
    known, classes = specs(), {json_types.text(item, "metadata", "name") for item in samples.classes()}
    pods = list(objects("Pod"))
    assert len(pods) == 11
    for _, pod in pods:
        sources = {
            json_types.text(one, "name"): known[
                json_types.text(one, "resourceClaimName") or json_types.text(one, "resourceClaimTemplateName")
            ]
            for one in json_types.objects(pod, "spec", "resourceClaims")
        }
        for container in json_types.objects(pod, "spec", "containers"):
            for use in json_types.objects(container, "resources", "claims"):
                requests = {
                    json_types.text(one, "name") for one in json_types.objects(sources[json_types.text(use, "name")], "devices", "requests")
                }
                assert json_types.text(use, "request") in {"", *requests}
    for spec in known.values():
        for request in json_types.objects(spec, "devices", "requests"):
            assert json_types.text(request, "exactly", "deviceClassName") in classes


def test_every_sample_begins_with_an_explanation() -> None:
    for name in samples.names():
        assert (samples.folder() / f"{name}.yaml").read_text().startswith("# "), name
