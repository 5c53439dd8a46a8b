"""The concepts page: every YAML sample is applied, and what is wrong with it as it stands is named."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit_cluster.client.api import Api
from fakes import allocating_server
from fakes import feature_sample_checks as checks
from fakes.feature_samples import CONCEPTS, Sample

WRONG = [sample for sample in CONCEPTS if sample.field]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with allocating_server.serve() as client:
        yield checks.with_admin_namespace(client)


def _name(sample: Sample) -> str:
    return sample.name


@pytest.mark.parametrize("sample", CONCEPTS, ids=_name)
def test_every_sample_of_the_concepts_page_applies_after_its_correction(api: Api, sample: Sample) -> None:
    checks.is_applied(api, sample)


@pytest.mark.parametrize("sample", WRONG, ids=_name)
def test_lint_names_field_and_fix_of_each_refused_sample_of_the_concepts_page(sample: Sample, tmp_path: pathlib.Path) -> None:
    checks.lint_names_field_and_fix(sample, tmp_path)


@pytest.mark.parametrize("sample", CONCEPTS, ids=_name)
def test_exactly_the_refused_samples_of_the_concepts_page_have_a_correction(sample: Sample, tmp_path: pathlib.Path) -> None:
    checks.is_mended_if_refused(sample, WRONG, tmp_path)


def test_the_samples_of_the_concepts_page_are_all_that_its_text_has() -> None:
    checks.are_all(CONCEPTS, 11, "dra-concepts.md")
