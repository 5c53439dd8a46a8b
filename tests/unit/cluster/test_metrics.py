"""Metrics in Prometheus' text format, for those who may read them."""

import httpx
import pytest

from drakit_cluster.api import apiserver, tls
from drakit_cluster.api.metrics import Metrics


def test_steps_are_counted_in_growing_buckets_with_their_outcome() -> None:
    metrics = Metrics()
    with metrics.step("Filter"):
        pass
    with pytest.raises(ValueError, match="wrong"), metrics.step("Filter"):
        raise ValueError("wrong")
    lines = metrics.text().splitlines()
    name = "scheduler_plugin_execution_duration_seconds"
    for status in ("Error", "Success"):
        labels = f'extension_point="Filter",plugin="DynamicResources",status="{status}"'
        assert f"{name}_count{{{labels}}} 1.0" in lines
        buckets = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}_bucket{{") and f'status="{status}"' in line]
        assert buckets == sorted(buckets)
        assert (len(buckets), buckets[-1]) == (21, 1)
    assert f"# TYPE {name} histogram" in lines


def test_a_pod_is_unschedulable_once_however_often_it_is_refused() -> None:
    metrics = Metrics()
    for pod in ("a", "a", "b"):
        metrics.unschedulable(pod, is_unschedulable=True)
    assert 'scheduler_unschedulable_pods{plugin="DynamicResources",profile="default-scheduler"} 2.0' in metrics.text()
    metrics.unschedulable("a", is_unschedulable=False)
    assert 'profile="default-scheduler"} 1.0' in metrics.text()


def test_only_those_who_may_read_metrics_do_and_refusals_are_counted_too(guarded: apiserver.ApiServer) -> None:
    tokens = {name: guarded.issue_token(name, groups) for name, groups in {"root": ("system:masters",), "bob": ()}.items()}
    with httpx.Client(base_url=guarded.url, verify=tls.client_context(guarded.ca_pem), trust_env=False) as http:
        headers = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
        assert http.get("/metrics").status_code == 401
        assert http.get("/metrics", headers=headers["bob"]).status_code == 403
        http.get("/api/v1/namespaces/default/pods", headers=headers["bob"])
        answer = http.get("/metrics", headers=headers["root"])
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    labels = 'group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"'
    assert f'apiserver_request_total{{code="403",{labels}}} 1.0' in answer.text.splitlines()
