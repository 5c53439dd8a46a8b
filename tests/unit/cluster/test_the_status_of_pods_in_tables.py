"""The column Status of ``kubectl get pods``, as Kubernetes' own server fills it."""

import pytest

from drakit_cluster.api.http import tables
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import POD

RUNNING: Object = {"running": {}}
COMPLETED: Object = {"terminated": {"exitCode": 0, "reason": "Completed"}}
READY: Json = [{"type": "Ready", "status": "True"}]


def waiting(reason: str) -> Object:
    return {"waiting": {"reason": reason}}


def states(*given: Object) -> Json:
    return [{"name": f"c{place}", "state": state, "ready": "running" in state} for place, state in enumerate(given)]


@pytest.mark.parametrize(
    "wanted, status",
    [
        ("Pending", {"phase": "Pending"}),
        ("ContainerCreating", {"phase": "Pending", "containerStatuses": states(waiting("ContainerCreating"))}),
        ("CreateContainerError", {"phase": "Pending", "containerStatuses": states(RUNNING, waiting("CreateContainerError"))}),
        ("Running", {"phase": "Running", "containerStatuses": states(RUNNING)}),
        ("Running", {"phase": "Running", "containerStatuses": states(RUNNING, COMPLETED), "conditions": READY}),
        ("NotReady", {"phase": "Running", "containerStatuses": states(RUNNING, COMPLETED)}),
        ("Completed", {"phase": "Succeeded", "containerStatuses": states(COMPLETED)}),
        ("Error", {"phase": "Failed", "containerStatuses": states({"terminated": {"exitCode": 1, "reason": "Error"}})}),
        ("ExitCode:3", {"phase": "Failed", "containerStatuses": states({"terminated": {"exitCode": 3}})}),
        ("Signal:9", {"phase": "Failed", "containerStatuses": states({"terminated": {"exitCode": 137, "signal": 9}})}),
        ("Evicted", {"phase": "Failed", "reason": "Evicted"}),
        ("Init:1/2", {"phase": "Pending", "initContainerStatuses": states(COMPLETED, RUNNING)}),
        ("Init:0/1", {"phase": "Pending", "initContainerStatuses": states(waiting("PodInitializing"))}),
        ("Init:Error", {"phase": "Failed", "initContainerStatuses": states({"terminated": {"exitCode": 1, "reason": "Error"}})}),
        ("Completed", {"phase": "Succeeded", "initContainerStatuses": states(COMPLETED), "containerStatuses": states(COMPLETED)}),
    ],
)
def test_the_status_of_a_pod_is_the_reason_of_its_containers(wanted: str, status: Object) -> None:
    assert column({"metadata": {"name": "p"}, "status": status}) == wanted


@pytest.mark.parametrize("phase, wanted", [("Running", "Terminating"), ("Succeeded", "Succeeded")])
def test_a_deleted_pod_ends_unless_it_has_ended(phase: str, wanted: str) -> None:
    assert column({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase}}) == wanted


def column(pod: Object) -> str:
    table = tables.table(POD, [pod], "", "")
    names = [json_types.text(one, "name") for one in json_types.objects(table, "columnDefinitions")]
    return json_types.text(table, "rows", 0, "cells", names.index("Status"))
