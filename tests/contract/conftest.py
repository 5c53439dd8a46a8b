"""A NIC in a namespace of the test's own; tests that only some kernels can run are not collected on others, as the report's head says."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit_nic import kernel_port
from fakes import netns
from fakes.nic_samples import MAC

FAIR_QUEUES = "test_nic_fair_queues_with_fq_codel.py"


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    return True if collection_path.name == FAIR_QUEUES and not netns.has_qdisc("fq_codel") else None


def pytest_report_header() -> str:
    return "" if netns.has_qdisc("fq_codel") else f"not collected: {FAIR_QUEUES} (needs root and a kernel with fq_codel)"


@pytest.fixture
def own() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("nic0", mac=MAC)
        yield made


@pytest.fixture
def nics(own: netns.Namespace) -> Iterator[kernel_port.KernelPort]:
    made = kernel_port.KernelPort(own.name)
    yield made
    made.close()
