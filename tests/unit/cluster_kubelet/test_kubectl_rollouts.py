"""kubectl creates, scales, restarts and rolls back workloads of the local cluster."""

import pathlib

from drakit_cluster.objects.resources import DEPLOYMENT
from fakes import kubectl as program
from unit.cluster_kubelet.quick_cluster import QuickCluster
from unit.cluster_kubelet.test_workloads import images, pods

pytestmark = program.needed


def kubectl(cluster: QuickCluster, folder: pathlib.Path, line: str) -> str:
    return program.run(cluster.cluster.kubeconfig, folder, line.split())


def test_kubectl_rolls_a_deployment_out_and_back(cluster: QuickCluster, folder: pathlib.Path) -> None:
    def run(line: str) -> str:
        return kubectl(cluster, folder, line)

    run("create deployment w --image=v1 --replicas=2")
    assert "successfully rolled out" in run("rollout status deployment/w --timeout=60s")
    name = run("get pods -o name").splitlines()[0]
    assert name.startswith("pod/w-")
    run("set image deployment/w v1=v2")
    assert "successfully rolled out" in run("rollout status deployment/w --timeout=60s")
    assert images(cluster) == {"v2"}
    history = run("rollout history deployment/w").split()
    assert [word for word in history if word.isdecimal()] == ["1", "2"]
    assert "rolled back" in run("rollout undo deployment/w")
    run("rollout status deployment/w --timeout=60s")
    assert images(cluster) == {"v1"}
    run("rollout restart deployment/w")
    run("rollout status deployment/w --timeout=60s")
    run("scale deployment/w --replicas=3")
    cluster.until(lambda: len(pods(cluster)) == 3, "three pods")
    listed = run("get deploy,rs,pods,svc")
    assert "deployment.apps/w" in listed
    assert "replicaset.apps/w-" in listed
    run("delete deployment w")
    cluster.until(lambda: cluster.find(DEPLOYMENT, "w") is None and not pods(cluster), "the end of all")


def test_kubectl_creates_jobs_services_and_waits_for_jobs(cluster: QuickCluster, folder: pathlib.Path) -> None:
    manifest = folder / "job.yaml"
    manifest.write_text("""
apiVersion: batch/v1
kind: Job
metadata: {name: done}
spec:
  completions: 2
  template:
    metadata: {annotations: {drakit.dev/run-seconds: "0.1"}}
    spec: {restartPolicy: Never, containers: [{name: main, image: none}]}
""")
    kubectl(cluster, folder, f"apply -f {manifest}")
    assert "condition met" in kubectl(cluster, folder, "wait --for=condition=complete job/done --timeout=60s")
    assert "2/2" in kubectl(cluster, folder, "get jobs")
    assert "2 Succeeded" in kubectl(cluster, folder, "describe job done")
    kubectl(cluster, folder, "create job once --image=none")
    kubectl(cluster, folder, "create service clusterip s --tcp=80:8080")
    assert "80/TCP" in kubectl(cluster, folder, "get svc s")
