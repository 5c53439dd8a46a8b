"""kubectl against the server, as a person uses it."""

import pathlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import EVENT, POD
from fakes import kubectl as program
from fakes import manifests
from unit.cluster import samples

Kubectl: TypeAlias = Callable[..., str]

pytestmark = program.needed

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
GUARDED = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: driver}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {a: b}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: driver}
spec:
  selector: {matchLabels: {app: driver}}
  template:
    metadata: {labels: {app: driver}}
    spec:
      serviceAccountName: driver
      containers: [{name: main, image: "driver:1", env: [{name: A, value: b}]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers: [{name: main, image: "d:1"}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: l}
spec: {holderIdentity: me, leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: driver}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [resource.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [deviceclasses]}]
  validations: [{expression: "object.metadata.name != 'bad'", message: not that name}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny]}
---
apiVersion: resource.k8s.io/v1alpha3
kind: DeviceTaintRule
metadata: {name: r}
spec: {deviceSelector: {driver: gpu.drakit.dev}, taint: {key: example.com/broken, effect: NoExecute}}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
"""
GUARDED_KINDS = (
    "sa,secret,cm,ds,deploy,lease,role,rolebinding,validatingadmissionpolicies,validatingadmissionpolicybindings,devicetaintrules"
)
KINDS = "deviceclasses,resourceslices,resourceclaimtemplates,resourceclaims,pods"


SUBRESOURCES = {
    "log": ("logs", "p1"),
    "exec": ("exec", "p1", "--", "true"),
    "attach": ("attach", "p1"),
    "portforward": ("port-forward", "p1", "18080:80"),
}


def kubectl_of(server: apiserver.ApiServer, home: pathlib.Path) -> Kubectl:
    server.write_kubeconfig(home / "kubeconfig")
    return lambda *words, **how: program.run(home / "kubeconfig", home, words, **how)


@pytest.fixture
def kubectl(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> Kubectl:
    return kubectl_of(server, tmp_path)


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl for tests that change nothing, which discovers the kinds of the server once."""
    with apiserver.ApiServer(registry.Registry()) as server:
        yield kubectl_of(server, tmp_path_factory.mktemp("reading"))


def test_kubectl_applies_gets_describes_and_deletes_every_kind(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", text=MANIFEST).count(" created") == 5
    listed = kubectl("get", KINDS)
    assert "pod/p1" in listed
    assert "pending" in listed
    described = kubectl("describe", KINDS)
    for word in ("Device Class Name:", "gpu.drakit.dev", "40Gi", "Image:"):
        assert word in described
    assert kubectl("delete", "-f", "-", text=MANIFEST).count(" deleted") == 5
    assert "No resources found" in kubectl("get", KINDS)


def test_a_driver_is_removed_with_its_namespace_without_an_error(kubectl: Kubectl) -> None:
    deploy = str(manifests.ROOT / "examples" / "hello" / "deploy")
    kubectl("apply", "-k", deploy)
    assert "NotFound" not in kubectl("delete", "-k", deploy, "--ignore-not-found")
    listed = kubectl("get", f"sa,daemonset,clusterrole,clusterrolebinding,deviceclass,{GUARDED_KINDS}", "-A")
    assert "hello" not in listed


def test_kubectl_applies_changes_and_reports_unknown_fields(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFEST)
    changed = MANIFEST.replace("busybox", "alpine").replace("gpu-0", "gpu-1")
    kubectl("apply", "-f", "-", text=changed)
    assert kubectl("get", "pod", "p1", "-o", "jsonpath={.spec.containers[*].image}") == "alpine"
    assert "gpu-1" in kubectl("get", "resourceslice", "0-n1-aaaaa", "-o", "yaml")
    typo = MANIFEST.replace("nodeName", "nodename")
    assert 'unknown field "spec.nodename"' in kubectl("apply", "-f", "-", text=typo, code=1)


def test_kubectl_refuses_a_misspelt_field_of_a_pod_as_a_real_server_does(kubectl: Kubectl) -> None:
    pod = MANIFEST.rsplit("---", maxsplit=1)[-1].replace("resourceClaims:", "resourceClaim:")
    assert 'unknown field "spec.resourceClaim"' in kubectl("apply", "-f", "-", text=pod, code=1)
    assert 'unknown field "spec.template.spec.containers[0].imag"' in kubectl(
        "create", "-f", "-", text=WEB.replace("image", "imag"), code=1
    )
    assert "created" in kubectl("create", "--validate=false", "-f", "-", text=WEB.replace("web:1", "web:2"))


def test_kubectl_reports_that_v1beta1_does_not_exist(kubectl: Kubectl) -> None:
    old = MANIFEST.split("---")[3].replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1")
    assert 'no matches for kind "ResourceClaim" in version "resource.k8s.io/v1beta1"' in kubectl("apply", "-f", "-", text=old, code=1)
    asked = kubectl("get", "--raw", "/apis/resource.k8s.io/v1beta1/resourceclaims", code=1)
    assert "v1beta1 is not served here, as it is off by default in Kubernetes 1.34 and later: use resource.k8s.io/v1" in asked


def test_kubectl_applies_on_the_server_side(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", text=MANIFEST).count("serverside-applied") == 5
    assert kubectl("apply", "--server-side", "-f", "-", text=MANIFEST).count("serverside-applied") == 5


WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {a: b}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "web:1", env: [{name: A, value: b}]}]}
"""
MANAGERS = ("get", "deployment", "web", "-o", "jsonpath={range .metadata.managedFields[*]}{.manager}/{.operation} {end}")


def test_a_file_applied_by_the_client_is_then_applied_by_the_server(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=WEB)
    assert kubectl(*MANAGERS).split() == ["kubectl-client-side-apply/Update"]
    for _ in range(2):
        assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", text=WEB)
        assert kubectl(*MANAGERS).split() == ["kubectl-last-applied/Apply", "kubectl/Apply"]
    less = WEB.replace(", env: [{name: A, value: b}]", "").replace(", labels: {a: b}", "")
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", text=less)
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.labels}{.spec.template.spec.containers[0].env}") == ""
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "1"
    assert "configured" in kubectl("apply", "-f", "-", text=WEB)


def test_a_server_side_apply_takes_over_what_the_client_applied(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=WEB)
    changed = WEB.replace("web:1", "web:2")
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", text=changed)
    assert "web:2" in kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.annotations}")


def test_a_server_side_apply_conflicts_with_what_another_command_changed(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=WEB)
    kubectl("set", "image", "deployment/web", "main=web:9")
    refused = kubectl("apply", "--server-side", "-f", "-", text=WEB, code=1)
    assert 'conflict with "kubectl-set"' in refused
    assert 'containers[name="main"].image' in refused
    assert "serverside-applied" in kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=WEB)
    kubectl("patch", "deployment", "web", "--type=merge", "-p", '{"metadata":{"managedFields":[{}]}}')
    assert kubectl(*MANAGERS) == ""


def test_kubectl_explains_kinds_and_lists_resources(reading: Kubectl) -> None:
    assert "firstAvailable" in reading("explain", "resourceclaim.spec.devices.requests")
    assert "resourceslices" in reading("api-resources")
    assert "v1.37" in reading("version")
    assert reading("get", "--raw", "/readyz") == "ok"


def test_kubectl_applies_gets_describes_and_deletes_kinds_of_a_driver(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", text=GUARDED).count(" created") == 11
    listed = kubectl("get", GUARDED_KINDS)
    for word in ("daemonset.apps/driver", "deployment.apps/d", "lease.coordination.k8s.io/l", "Role/reader", "NoExecute", "Opaque"):
        assert word in listed
    described = kubectl("describe", GUARDED_KINDS)
    for word in ("driver:1", "configmaps", "Holder Identity:", "not that name", "example.com/broken", "password:  7 bytes"):
        assert word in described
    assert kubectl("apply", "-f", "-", text=GUARDED.replace("driver:1", "driver:2")).count(" configured") >= 1
    assert kubectl("get", "ds", "driver", "-o", "jsonpath={.spec.template.spec.containers[0].image}") == "driver:2"
    assert kubectl("get", "ds", "driver", "-o", "jsonpath={.metadata.generation}") == "2"
    assert kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=GUARDED).count("serverside-applied") == 11
    assert "denied request: not that name" in kubectl("create", "-f", "-", text=BAD_CLASS, code=1)
    assert kubectl("delete", "-f", "-", text=GUARDED).count(" deleted") == 11


BAD_CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: bad}
spec: {}
"""


@pytest.mark.parametrize(
    "field, text",
    [
        ("pod", "Pod is a collection of containers that can run on a host"),
        ("deployment.spec.strategy.rollingUpdate.maxSurge", "The maximum number of pods that can be scheduled above the desired number"),
        ("validatingadmissionpolicy.spec.validations", "messageExpression"),
        ("devicetaintrule.spec.taint", "DeviceTaint"),
    ],
)
def test_kubectl_explain_has_the_texts_of_kubernetes(reading: Kubectl, field: str, text: str) -> None:
    explained = " ".join(reading("explain", field).split())
    assert text in explained
    assert "<empty>" not in explained


def test_kubectl_explains_a_pod_to_its_last_field(reading: Kubectl) -> None:
    tree = reading("explain", "pod", "--recursive")
    for line in ("terminationMessagePolicy\t<string>", "runAsNonRoot\t<boolean>", "affinity\t<Object>", "httpGet\t<HTTPGetAction>"):
        assert line in tree


def test_kubectl_reads_the_other_versions(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFEST)
    assert "apiVersion: resource.k8s.io/v1beta2" in kubectl("get", "resourceslices.v1beta2.resource.k8s.io", "-o", "yaml")
    assert "nodeName" in kubectl("explain", "resourceslice.spec", "--api-version=resource.k8s.io/v1beta2")


def test_kubectl_auth_reports_identity_and_rights(reading: Kubectl) -> None:
    assert "kubernetes-admin" in reading("auth", "whoami")
    assert "yes" in reading("auth", "can-i", "delete", "resourceslices.resource.k8s.io")
    assert "yes" in reading("auth", "can-i", "get", "/healthz")
    assert "*.*" in reading("auth", "can-i", "--list")


def test_kubectl_creates_tokens_of_service_accounts(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=GUARDED)
    kubectl("apply", "-f", "-", text=MANIFEST.replace("spec:\n  containers", "spec:\n  serviceAccountName: driver\n  containers"))
    token = kubectl("create", "token", "driver", "--bound-object-kind=Pod", "--bound-object-name=p1", "--duration=20m").strip()
    assert len(token) > 30
    assert "system:serviceaccount:default:driver" in kubectl("auth", "whoami", f"--token={token}")
    assert kubectl("auth", "whoami", f"--token={token}", "-o", "jsonpath={.status.userInfo.extra.*}").count("p1") == 1


def test_kubectl_watches_changes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFEST)
    seen = kubectl("get", "resourceslices", "--watch", "--output-watch-events", "--request-timeout=1s", code=0)
    assert "ADDED" in seen


def test_kubectl_create_has_sub_commands_for_kinds(kubectl: Kubectl) -> None:
    assert "created (server dry run)" in kubectl("create", "namespace", "team", "--dry-run=server")
    for words in (
        "namespace team",
        "configmap c --from-literal=a=b",
        "secret generic s --from-literal=password=hunter2",
        "serviceaccount me",
        "role reader --verb=get --resource=pods",
        "rolebinding reader --role=reader --serviceaccount=default:me",
        "clusterrole looker --verb=get,list --resource=nodes",
        "clusterrolebinding looker --clusterrole=looker --user=me",
        "deployment d --image=d:1 --replicas=2",
    ):
        assert "created" in kubectl("create", *words.split())
    assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.password}") == "aHVudGVyMg=="
    assert kubectl("get", "rolebinding", "reader", "-o", "wide").split()[-1] == "default/me"
    assert "scaled" in kubectl("scale", "deployment/d", "--replicas=5")
    assert kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "5"


def test_kubectl_makes_dry_runs_and_diffs(kubectl: Kubectl) -> None:
    for way in ((), ("--server-side",)):
        assert kubectl("apply", *way, "--dry-run=server", "-f", "-", text=MANIFEST).count("(server dry run)") == 5
    assert "No resources found" in kubectl("get", KINDS)
    kubectl("apply", "-f", "-", text=MANIFEST)
    assert kubectl("diff", "-f", "-", text=MANIFEST) == ""
    assert "+  - image: alpine" in kubectl("diff", "-f", "-", text=MANIFEST.replace("busybox", "alpine"), code=1)
    assert kubectl("delete", "--dry-run=server", "-f", "-", text=MANIFEST).count("(server dry run)") == 5
    assert "pod/p1" in kubectl("get", KINDS)


def test_kubectl_drains_and_uncordons_a_node(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", text=NODE)
    kubectl("apply", "-f", "-", text=MANIFEST.replace("spec:\n  containers", "spec:\n  nodeName: n1\n  containers"))
    assert "pod/p1 evicted" in kubectl("drain", "n1", "--force", "--grace-period=0")
    assert "No resources found" in kubectl("get", "pods")
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    assert "uncordoned" in kubectl("uncordon", "n1")


COLUMNS = {
    "pods": "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
    "nodes": "NAME STATUS ROLES AGE VERSION INTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME",
    "daemonsets": "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE CONTAINERS IMAGES SELECTOR",
    "deployments": "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
    "serviceaccounts": "NAME SECRETS AGE",
    "roles": "NAME CREATED AT",
    "rolebindings": "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS",
    "validatingadmissionpolicies": "NAME VALIDATIONS PARAMKIND AGE",
    "validatingadmissionpolicybindings": "NAME POLICYNAME PARAMREF AGE",
    "resourceslices": "NAME NODE DRIVER POOL AGE",
    "resourceclaims": "NAME STATE AGE",
}


def test_tables_have_the_columns_of_kubernetes(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", text=NODE)
    kubectl("apply", "-f", "-", text=f"{MANIFEST}---{GUARDED}")
    tables = [table.splitlines() for table in kubectl("get", ",".join(COLUMNS), "-o", "wide").rstrip().split("\n\n")]
    assert [" ".join(header.split()) for header, *_ in tables] == list(COLUMNS.values())
    assert all(rows for _, *rows in tables)


def test_kubectl_sorts_by_any_field(kubectl: Kubectl, memory: registry.Registry) -> None:
    for name, moment in (("b", "2026-01-02T00:00:00Z"), ("a", "2026-01-03T00:00:00Z"), ("c", "2026-01-01T00:00:00Z")):
        involved: Json = {"kind": "Pod", "name": name, "namespace": "default"}
        body: Object = {"metadata": {"name": name, "namespace": "default"}, "lastTimestamp": moment, "involvedObject": involved}
        memory.create(EVENT, body)
    rows = kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["pod/c", "pod/b", "pod/a"]


@pytest.mark.parametrize("wanted", SUBRESOURCES)
def test_logs_and_exec_of_simulated_containers_fail_with_a_sentence(kubectl: Kubectl, memory: registry.Registry, wanted: str) -> None:
    uid = json_types.text(memory.create(POD, samples.pod(node="n1")), "metadata", "uid")
    memory.patch(POD, "p1", {"status": {"phase": "Running"}}, namespace="default", kind=PatchKind.MERGE, subresource="status")
    result = kubectl(*SUBRESOURCES[wanted], code=1)
    told = (
        f"serves no logs; with --run-pods containers write to n1/logs/{uid}/CONTAINER.log"
        if wanted == "log"
        else f"does not serve {wanted}"
    )
    assert f"pod p1: the local cluster {told}" in result
    assert "kubectl -n default describe pod p1" in result


def test_the_log_of_a_missing_pod_is_not_found(reading: Kubectl) -> None:
    assert 'pods "nothing" not found' in reading("logs", "nothing", code=1)
