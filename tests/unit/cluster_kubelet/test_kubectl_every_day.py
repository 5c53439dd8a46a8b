"""The kubectl commands of every day, on a whole local cluster with devices."""

import os
import pathlib
import textwrap
from collections.abc import Callable
from typing import TypeAlias

import pytest

from drakit_cluster.objects.resources import CLAIM_TEMPLATE, POD
from fakes import kubectl as program
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

Kubectl: TypeAlias = Callable[..., str]

pytestmark = program.needed


@pytest.fixture
def kubectl(cluster: QuickCluster, folder: pathlib.Path) -> Kubectl:
    return lambda line, **how: program.run(cluster.cluster.kubeconfig, folder, line.split(), **how)


def test_a_described_node_has_capacity_a_lease_and_sane_percentages(kubectl: Kubectl) -> None:
    kubectl("apply -f -", text=PLAIN_POD)
    kubectl("wait --for=condition=Ready pod/p --timeout=60s")
    described = kubectl(f"describe node {objects.NODE}")
    assert "%" in described
    assert "-92233" not in described
    for word in ("MemoryPressure", "HolderIdentity:  node-1", "Capacity:", "Allocatable:", "ephemeral-storage:", "pods:"):
        assert word in described
    capacity = kubectl(f"get node {objects.NODE} -o jsonpath={{.status.allocatable}}")
    assert f'"cpu":"{os.cpu_count()}"' in capacity


PLAIN_POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: main, image: none, resources: {requests: {cpu: 100m}}}]}
"""


@pytest.fixture
def devices(cluster: QuickCluster) -> QuickCluster:
    """A node with two devices, and a claim template for one of them."""
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM_TEMPLATE, objects.template("gpu"))
    cluster.until(cluster.cluster.is_scheduler_current, "the scheduler to know all objects")
    return cluster


POD_SPEC = """
      containers: [{name: main, image: "web:1", resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
"""
WEB = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  strategy: STRATEGY
  progressDeadlineSeconds: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:{POD_SPEC}
"""
JOB = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  completions: 3
  parallelism: 3
  template:
    metadata: {{annotations: {{drakit.dev/run-seconds: "0.1"}}}}
    spec:
      restartPolicy: Never{POD_SPEC}
"""
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: train}
spec:
  schedule: 30 4 * * 1-5
  timeZone: Europe/Berlin
"""
IMAGES = "get pods -l app=web -o jsonpath={.items[*].spec.containers[*].image}"


@pytest.mark.usefixtures("devices")
def test_a_rollout_ends_while_all_devices_are_in_use(kubectl: Kubectl) -> None:
    """How each strategy gets there is tested without kubectl."""
    manifest = WEB.replace("STRATEGY", "{rollingUpdate: {maxUnavailable: 50%}}")
    kubectl("apply -f -", text=manifest)
    kubectl("rollout status deployment/web --timeout=60s")
    kubectl("apply -f -", text=manifest.replace("web:1", "web:2"))
    assert "successfully rolled out" in kubectl("rollout status deployment/web --timeout=60s")
    assert set(kubectl(IMAGES).split()) == {"web:2"}
    kubectl("rollout undo deployment/web")
    assert "successfully rolled out" in kubectl("rollout status deployment/web --timeout=60s")
    assert set(kubectl(IMAGES).split()) == {"web:1"}


@pytest.mark.usefixtures("devices")
def test_a_rollout_that_must_not_stop_a_pod_reports_that_it_waits_for_a_device(kubectl: Kubectl) -> None:
    manifest = WEB.replace("STRATEGY", "{rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}")
    kubectl("apply -f -", text=manifest)
    kubectl("rollout status deployment/web --timeout=60s")
    kubectl("apply -f -", text=manifest.replace("web:1", "web:2"))
    assert "exceeded its progress deadline" in kubectl("rollout status deployment/web --timeout=60s", code=1)
    assert "ProgressDeadlineExceeded" in kubectl("describe deployment web")
    assert "needs 1 device" in kubectl("events --for deployment/web") + kubectl("events")
    kubectl("scale deployment/web --replicas=1")
    assert "successfully rolled out" in kubectl("rollout status deployment/web --timeout=60s")


@pytest.mark.usefixtures("devices")
def test_a_job_with_more_pods_than_devices_completes(kubectl: Kubectl) -> None:
    kubectl("apply -f -", text=JOB)
    assert "condition met" in kubectl("wait --for=condition=complete job/train --timeout=60s")
    assert "3/3" in kubectl("get jobs")


@pytest.mark.usefixtures("devices")
def test_a_cron_job_starts_jobs_by_its_schedule_and_on_demand(kubectl: Kubectl) -> None:
    kubectl("create cronjob other --image=none --schedule=@yearly -- true")
    spec = textwrap.indent(JOB.partition("spec:")[2], "    ")
    kubectl("apply -f -", text=f"{CRON_JOB}  jobTemplate:\n    spec:{spec}")
    kubectl("create job now --from=cronjob/train")
    assert "condition met" in kubectl("wait --for=condition=complete job/now --timeout=60s")
    listed = " ".join(kubectl("get cj").split())
    assert "train 30 4 * * 1-5 Europe/Berlin False" in listed
    assert "other @yearly <none> False" in listed
    assert "Schedule:" in kubectl("describe cronjob train")
    assert "schedule" in kubectl("explain cronjob.spec")


def test_pods_of_a_drained_node_wait_for_a_device_and_start_after_uncordon(devices: QuickCluster, kubectl: Kubectl) -> None:
    kubectl("apply -f -", text=WEB.replace("STRATEGY", "{}"))
    kubectl("rollout status deployment/web --timeout=60s")
    assert "evicted" in kubectl(f"drain {objects.NODE} --timeout=60s")
    devices.until(lambda: len(devices.api.list(POD).items) == 2, "the new pods")
    assert set(kubectl("get pods -o jsonpath={.items[*].status.phase}").split()) == {"Pending"}
    assert "unschedulable" in kubectl("describe pods")
    kubectl(f"uncordon {objects.NODE}")
    assert "condition met" in kubectl("wait --for=condition=Available deployment/web --timeout=60s")


@pytest.mark.usefixtures("devices")
def test_kubectl_describes_pods_claims_and_deployments_with_their_events(kubectl: Kubectl) -> None:
    kubectl("apply -f -", text=WEB.replace("STRATEGY", "{}"))
    kubectl("rollout status deployment/web --timeout=60s")
    listed = kubectl("get deploy,rs,pods,resourceclaims -o wide")
    for word in ("deployment.apps/web", "replicaset.apps/web-", "pod/web-", "allocated,reserved"):
        assert word in listed
    pod = " ".join(kubectl("describe pods -l app=web").split())
    for word in ("Controlled By: ReplicaSet/web-", "State: Running", "PreparedDynamicResources", "Scheduled"):
        assert word in pod
    assert "NewReplicaSet:" in kubectl("describe deployment web")
    claim = " ".join(kubectl("describe resourceclaims").split())
    for word in ("Device Class Name: gpu", "Results:", "Reserved For:", "Allocated"):
        assert word in claim
    assert "Created pod: web-" in kubectl("events")
    assert "gpu-0" in kubectl("get events --field-selector reason=PreparedDynamicResources")


REPLICATION_CONTROLLER = """
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec: {template: {spec: {containers: [{name: main, image: none}]}}}
"""


def test_kubectl_reports_the_cluster_its_kinds_and_rights(kubectl: Kubectl) -> None:
    assert "Kubernetes control plane" in kubectl("cluster-info")
    assert '"kind": "NodeList"' in kubectl("cluster-info dump")
    kinds = kubectl("api-resources")
    for kind in ("Deployment", "Job", "Lease", "ResourceSlice", "Service"):
        assert kind in kinds
    assert kubectl("auth can-i create deployments").strip() == "yes"
    refused = kubectl("create -f -", text=REPLICATION_CONTROLLER, code=1)
    assert "does not allow this method" in refused
    for what in ("node", "pod"):
        assert "Metrics API not available" in kubectl(f"top {what}", code=1)
