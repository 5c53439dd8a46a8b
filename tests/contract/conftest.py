"""Tests that only some kernels can run are not collected on others; the report's head says so."""

import pathlib

from fakes import netns

FAIR_QUEUES = "test_nic_fair_queues_with_fq_codel.py"


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    return True if collection_path.name == FAIR_QUEUES and not netns.has_qdisc("fq_codel") else None


def pytest_report_header() -> str:
    return "" if netns.has_qdisc("fq_codel") else f"not collected: {FAIR_QUEUES} (needs root and a kernel with fq_codel)"
