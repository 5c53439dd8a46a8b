"""What is asked of every YAML sample of a seed document, whichever it is from."""

import pathlib
from collections.abc import Sequence

from drakit_cluster.client.api import Api
from drakit_cluster.objects.resources import NAMESPACE, SLICE
from fakes import allocating_server, feature_samples, kube_schema
from fakes.feature_samples import Sample


def with_admin_namespace(api: Api) -> Api:
    """The server with the namespace in which admin access is allowed."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    api.create(NAMESPACE, {"metadata": {"name": allocating_server.ADMIN_NAMESPACE, "labels": {**labels}}})
    return api


def is_applied(api: Api, sample: Sample) -> None:
    """The server stores all that the applied form says, and Kubernetes' own schema takes it."""
    stored = feature_samples.apply(api, sample.name, allocating_server.ADMIN_NAMESPACE)
    given = feature_samples.load(sample.name)
    assert stored
    for part, whole in zip(given, stored, strict=True):
        assert feature_samples.is_part(part, whole)
        kube_schema.validate(part)
    api.delete_collection(SLICE)


def lint_names_field_and_fix(sample: Sample, folder: pathlib.Path) -> None:
    """Linting the original names the field and the fix: just as it stands in its text, and with what it leaves out."""
    for text, field in ((sample.seed, sample.field.rpartition(".")[2]), (sample.original, sample.field)):
        status, printed = feature_samples.lint(text, folder)
        assert status
        assert field in printed
        assert sample.fix in " ".join(printed.split())


def is_mended_if_refused(sample: Sample, wrong: Sequence[Sample], folder: pathlib.Path) -> None:
    """Linting refuses the original if and only if it is among the wrong ones, and nothing else is mended."""
    status, _ = feature_samples.lint(sample.original, folder)
    assert (status != 0) is (sample in wrong)
    if sample.is_mended:
        assert sample in wrong


def are_all(samples: Sequence[Sample], count: int, document: str) -> None:
    """So many samples, and, where the seed is at hand, exactly those of its text."""
    kept = [sample.seed for sample in samples]
    assert len(set(kept)) == count
    assert feature_samples.blocks_of(document) in (None, kept)
