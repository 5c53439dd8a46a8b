"""Claims on the API server of a real cluster, in place of ``claim_server``, for the same measurements.

All that is made there (a service account with all rights, a Node without a kubelet, the claims) is removed afterwards. The claims are reserved for no
pod and owned by the Node, because a real cluster removes what belongs to pods that are gone.
"""

import base64
import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

from bench import bench_driver, claim_server, processes
from drakit.kube import client

NAME, NAMESPACE = "drakit-bench", "kube-system"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
USER = {"apiGroup": "bench.example.com", "resource": "jobs", "name": "job", "uid": "e0e0f3f5-6d1c-4a39-8b4e-0d1d3a2c5b10"}


@contextlib.contextmanager
def api_server(kubeconfig: pathlib.Path, folder: pathlib.Path, *, shares: int, units: int, slow: int) -> Iterator[processes.Api]:
    """Make the claims, and yield the API server with a kubeconfig that has a token, as a pod has."""
    with contextlib.closing(client.connect(kubeconfig)) as api, contextlib.ExitStack() as made:
        _log_in(api, kubeconfig, folder, made)
        node = _create(api, NODES, {"metadata": {"name": processes.NODE}, "spec": {"unschedulable": True}}, made)
        made.callback(_remove_slices, api)
        uids = [_claim(api, number, device, node, made) for number, device in enumerate(claim_server.devices(shares, units, slow))]
        access = yaml.safe_load((folder / "kubeconfig").read_text())
        token = access["users"][0]["user"]["token"]
        yield processes.Api(url=api.server, ca=folder / "ca.crt", token=token, kubeconfig=folder / "kubeconfig", uids=uids)


def _create(api: client.Client, path: str, body: dict[str, Any], made: contextlib.ExitStack) -> dict[str, Any]:
    created: Any = api.request("POST", path, body=body)
    made.callback(api.request, "DELETE", f"{path}/{created['metadata']['name']}")
    return dict(created)


def _log_in(api: client.Client, kubeconfig: pathlib.Path, folder: pathlib.Path, made: contextlib.ExitStack) -> None:
    """Write a kubeconfig with the token of a service account that may do everything."""
    _create(api, ACCOUNTS, {"metadata": {"name": NAME}}, made)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    _create(api, BINDINGS, {"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]}, made)
    answer: Any = api.request("POST", f"{ACCOUNTS}/{NAME}/token", body={"spec": {"expirationSeconds": 3600}})
    given = yaml.safe_load(kubeconfig.read_text())
    cluster = given["clusters"][0]["cluster"]
    authority = cluster.get("certificate-authority-data")
    content = base64.b64decode(authority) if authority else (kubeconfig.parent / cluster["certificate-authority"]).read_bytes()
    (folder / "ca.crt").write_bytes(content)
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {"server": cluster["server"], "certificate-authority": str(folder / "ca.crt")}}],
        "users": [{"name": NAME, "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(written))


def _claim(api: client.Client, number: int, device: str, node: dict[str, Any], made: contextlib.ExitStack) -> str:
    wanted = claim_server.claim(number)
    owner = {"apiVersion": "v1", "kind": "Node", "name": processes.NODE, "uid": node["metadata"]["uid"]}
    wanted["metadata"] |= {"ownerReferences": [owner], "finalizers": []}
    claim = _create(api, CLAIMS, wanted, made)
    status = {**claim_server.status(number, device, USER["uid"]), "reservedFor": [USER]}
    path = f"{CLAIMS}/{claim['metadata']['name']}"
    api.request("PUT", f"{path}/status", body={**claim, "status": status})
    return str(claim["metadata"]["uid"])


def _remove_slices(api: client.Client) -> None:
    api.request("DELETE", SLICES, query={"fieldSelector": f"spec.driver={bench_driver.DRIVER}"})
