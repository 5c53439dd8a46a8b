"""The concepts page: every YAML sample is applied, and what is wrong with it as it stands is named."""

import pathlib
from collections.abc import Iterator

import kubernetes_validate
import pytest

from drakit.cluster.api import Api
from drakit.cluster.resources import NAMESPACE, SLICE
from fakes import feature_desk, feature_samples
from fakes.feature_samples import CONCEPTS, Sample

WRONG = [sample for sample in CONCEPTS if sample.field]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with feature_desk.serve() as client:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        client.create(NAMESPACE, {"metadata": {"name": feature_desk.ADMIN_NAMESPACE, "labels": {**labels}}})
        yield client


def _name(sample: Sample) -> str:
    return sample.name


@pytest.mark.parametrize("sample", CONCEPTS, ids=_name)
def test_every_sample_of_the_concepts_page_is_applied_mended_where_1_36_refuses_it(api: Api, sample: Sample) -> None:
    stored = feature_samples.apply(api, sample.name, feature_desk.ADMIN_NAMESPACE)
    given = feature_samples.load(sample.name)
    assert stored
    for part, whole in zip(given, stored, strict=True):
        assert feature_samples.is_part(part, whole)
        kubernetes_validate.validate(part, "1.36", strict=True)
    api.delete_collection(SLICE)


@pytest.mark.parametrize("sample", WRONG, ids=_name)
def test_lint_names_field_and_fix_of_every_sample_of_the_concepts_page_that_is_refused(sample: Sample, tmp_path: pathlib.Path) -> None:
    status, printed = feature_samples.lint(sample, tmp_path)
    assert status
    assert sample.field in printed
    assert sample.fix in " ".join(printed.split())


@pytest.mark.parametrize("sample", CONCEPTS, ids=_name)
def test_exactly_the_refused_samples_of_the_concepts_page_are_mended(sample: Sample, tmp_path: pathlib.Path) -> None:
    status, _ = feature_samples.lint(sample, tmp_path)
    assert (status != 0) is (sample in WRONG)
    if sample.is_mended:
        assert sample in WRONG


def test_the_samples_of_the_concepts_page_are_all_that_its_text_has() -> None:
    kept = [sample.seed for sample in CONCEPTS]
    assert len(set(kept)) == 11
    published = feature_samples.blocks_of("dra-concepts.md")
    assert published in (None, kept)
