"""kubectl against the server, as a person uses it."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from typing import TypeAlias

import pytest

from drakit.cluster import apiserver

Kubectl: TypeAlias = Callable[..., str]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")

MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: "true"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: 0-n1-aaaaa}
spec:
  driver: gpu.drakit.dev
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, capacity: {memory: {value: 40Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c1}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p1}
spec:
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: c1}]
"""
KINDS = "deviceclasses,resourceslices,resourceclaimtemplates,resourceclaims,pods"


@pytest.fixture
def kubectl(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> Kubectl:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    environment = {"KUBECONFIG": str(path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def run(*arguments: str, text: str = "", code: int = 0) -> str:
        done = subprocess.run(
            ["kubectl", *arguments],
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_it_applies_gets_describes_and_deletes_every_kind(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", text=MANIFEST).count(" created") == 5
    listed = kubectl("get", KINDS)
    assert "pod/p1" in listed
    assert "pending" in listed
    described = kubectl("describe", KINDS)
    for word in ("Device Class Name:", "gpu.drakit.dev", "40Gi", "Image:"):
        assert word in described
    assert kubectl("delete", "-f", "-", text=MANIFEST).count(" deleted") == 5
    assert "No resources found" in kubectl("get", KINDS)


def test_it_applies_changes_and_sees_unknown_fields(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFEST)
    changed = MANIFEST.replace("busybox", "alpine").replace("gpu-0", "gpu-1")
    kubectl("apply", "-f", "-", text=changed)
    assert kubectl("get", "pod", "p1", "-o", "jsonpath={.spec.containers[*].image}") == "alpine"
    assert "gpu-1" in kubectl("get", "resourceslice", "0-n1-aaaaa", "-o", "yaml")
    typo = MANIFEST.replace("nodeName", "nodename")
    assert 'unknown field "spec.nodename"' in kubectl("apply", "-f", "-", text=typo, code=1)


def test_it_applies_on_the_server_side(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", text=MANIFEST).count("serverside-applied") == 5
    assert kubectl("apply", "--server-side", "-f", "-", text=MANIFEST).count("serverside-applied") == 5


def test_it_explains_kinds_and_lists_resources(kubectl: Kubectl) -> None:
    assert "firstAvailable" in kubectl("explain", "resourceclaim.spec.devices.requests")
    assert "resourceslices" in kubectl("api-resources")
    assert "v1.36" in kubectl("version")
    assert kubectl("get", "--raw", "/readyz") == "ok"
