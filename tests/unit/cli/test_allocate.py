"""``drakit allocate`` says where claims go, in order, and what stands in the way of those that do not fit; its exit status is the answer."""

import json
import pathlib
from collections.abc import Callable

import pytest
import yaml

from drakit.inputs import documents
from drakit_cluster import manifests
from drakit_cluster.api import apiserver, registry
from drakit_cluster.client import pod_claims
from drakit_cluster.lint import pod_templates
from drakit_cluster.objects import resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from fakes import command_line

MANIFESTS = pathlib.Path(__file__).parents[3] / "daemonset"

CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mig}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.drakit.dev" && device.attributes["gpu.drakit.dev"].type == "mig"'}}]}
---
"""


def request(profile: str, **fields: object) -> dict[str, object]:
    expression = f'device.attributes["gpu.drakit.dev"].profile == "{profile}"'
    return {"deviceClassName": "mig", "selectors": [{"cel": {"expression": expression}}], **fields}


def claim(name: str, *requests: dict[str, object], **fields: object) -> dict[str, object]:
    named = [{"name": f"r{number}", "exactly": one} for number, one in enumerate(requests)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {"devices": {"requests": named, **fields}},
    }


@pytest.fixture
def slices(shell: command_line.CommandLine, published_json: Callable[..., str]) -> str:
    file = shell.folder / "slices.yaml"
    file.write_text(published_json(command_line.MACHINE, before=CLASS))
    return str(file)


def write(shell: command_line.CommandLine, *objects: object) -> str:
    file = shell.folder / "asked.yaml"
    file.write_text(documents.dump_all(objects))
    return str(file)


def test_an_allocation_that_fits_shows_node_and_device_with_status_0(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", "-f", slices, "-f", write(shell, claim("one", request("3g.20gb"))))
    assert (ran.status, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["CLAIM", "NODE", "REQUEST", "DEVICE"],
        ["demo/one", "node-1", "r0", "gpu.drakit.dev/node-1/gpu-0-mig-3g20gb-9-4"],
    ]


def test_a_device_of_one_claim_is_taken_for_the_next_and_why_names_it(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("one", request("3g.20gb")), claim("two", request("7g.40gb", count=2)))
    ran = shell.run("allocate", "-f", slices, "-f", file, "--why")
    assert ran.status == 1
    assert "claim demo/two does not fit" in ran.out
    assert "needs 2 devices, 1 available" in ran.out
    short = "counter memory-slice-4 of gpu-0-counter-set: 1 needed, none of 1 left, taken by claim demo/one"
    assert f"1 device: {short} (gpu-0-mig-7g40gb-0-0)" in ran.out
    assert "48 devices: not selected by the request: " in ran.out


def test_with_v_every_device_has_a_line_of_its_own(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("one", request("3g.20gb")), claim("two", request("7g.40gb", count=2)))
    grouped = shell.run("allocate", slices, file, "--why").out.splitlines()
    single = shell.run("allocate", slices, file, "--why", "-v").out.splitlines()
    assert len(grouped) < 12
    assert len([line for line in single if "not selected by the request: " in line]) == 48
    short = "counter memory-slice-4 of gpu-0-counter-set: 1 needed, none of 1 left, taken by claim demo/one"
    assert f"      gpu-0-mig-7g40gb-0-0: {short}" in single


def test_files_may_be_given_with_and_without_f(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("one", request("3g.20gb")))
    given = [("-f", slices, "-f", file), (slices, file), (slices, "-f", file)]
    assert len({shell.run("allocate", *arguments).out for arguments in given}) == 1


def test_a_taint_rule_excludes_devices(shell: command_line.CommandLine, slices: str) -> None:
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
    rule = {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken"},
        "spec": {"deviceSelector": {"driver": "gpu.drakit.dev", "pool": "node-1"}, "taint": taint},
    }
    ran = shell.run("allocate", slices, write(shell, claim("one", request("7g.40gb")), rule), "--why")
    assert ran.status == 1
    assert "2 devices: tainted and not tolerated: example.com/broken=yes:NoSchedule" in ran.out
    assert "needs 1 device, none available" in ran.out


def test_ignored_kinds_are_named(shell: command_line.CommandLine, slices: str) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}}
    ran = shell.run("allocate", slices, write(shell, claim("one", request("3g.20gb")), service))
    assert ran.status == 0
    assert "skipped: Service web (" in ran.err
    assert "workloads" not in ran.err


def test_a_skipped_workload_is_named_with_the_command_that_checks_it(shell: command_line.CommandLine, slices: str) -> None:
    trainer = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "trainer"}, "spec": {}}
    ran = shell.run("allocate", slices, write(shell, claim("one", request("3g.20gb")), trainer))
    assert ran.status == 0
    assert "skipped: DaemonSet trainer (" in ran.err
    assert "the pods of these workloads are not read here; drakit lint checks them" in ran.err


WORKLOADS = {
    "Deployment": {"apiVersion": "apps/v1", "spec": {"replicas": 7, "template": None}},
    "StatefulSet": {"apiVersion": "apps/v1", "spec": {"replicas": 7, "template": None}},
    "Job": {"apiVersion": "batch/v1", "spec": {"parallelism": 7, "template": None}},
    "CronJob": {"apiVersion": "batch/v1", "spec": {"jobTemplate": {"spec": {"parallelism": 7, "template": None}}}},
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_the_pods_of_a_workload_are_decided_one_after_the_other(shell: command_line.CommandLine, slices: str, kind: str) -> None:
    of_pod = {"name": "gpu", "resourceClaimTemplateName": "half"}
    container = {"name": "main", "image": "trainer", "resources": {"claims": [{"name": "gpu"}]}}
    pods = {"metadata": {"labels": {"app": "trainer"}}, "spec": {"resourceClaims": [of_pod], "containers": [container]}}
    body = json.loads(json.dumps(WORKLOADS[kind]).replace("null", json.dumps(pods)))
    half = claim("half", request("3g.20gb"))
    template = half | {"kind": "ResourceClaimTemplate", "spec": {"spec": half["spec"]}}
    workload = body | {"kind": kind, "metadata": {"name": "trainer", "namespace": "demo"}}
    ran = shell.run("allocate", slices, write(shell, template, workload))
    assert ran.status == 1
    name = "trainer" if kind == "StatefulSet" else f"trainer-{kind.lower()}"
    assert [line.split()[2:4] for line in ran.out.splitlines() if line.startswith("demo/trainer-")] == [
        ["pod", f"demo/{name}-{number}"] for number in range(4)
    ], "two GPUs have room for four halves"
    assert f"pod demo/{name}-4 and 2 more do not fit: " in ran.out
    assert "template demo/half" not in ran.out, "pods use it, so it is not decided by itself"


def bare_workload(kind: str, *, replicas: int = 1, **metadata: str) -> dict[str, object]:
    version, count = ("batch/v1", "parallelism") if kind == "Job" else ("apps/v1", "replicas")
    spec = {count: replicas, "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def bare_pod(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


@pytest.mark.parametrize(
    "objects, names",
    [
        ([bare_workload("Deployment", name="web"), bare_workload("Job", name="web")], ["web-deployment-0", "web-job-0"]),
        ([bare_pod("web-deployment-0"), bare_workload("Deployment", name="web")], ["web-deployment-0", "web-deployment-0-2"]),
        ([bare_workload("StatefulSet", name="web"), bare_pod("web-0")], ["web-0-2", "web-0"]),
        ([bare_workload("Job", generateName="train-"), bare_workload("Job", generateName="train-")], ["train-job-0", "train-job-0-2"]),
        ([bare_workload("Deployment", name="web", namespace="a"), bare_pod("web-deployment-0")], ["web-deployment-0", "web-deployment-0"]),
        ([bare_workload("Deployment", name="web", replicas=0), bare_pod("other")], ["other"]),
    ],
)
def test_pods_of_workloads_have_names_that_no_other_pod_has(
    shell: command_line.CommandLine, slices: str, objects: list[object], names: list[str]
) -> None:
    ran = shell.run("allocate", slices, write(shell, *objects), "-o", "json")
    assert (ran.status, ran.err) == (0, "")
    assert [decision["asked"].rpartition("/")[2] for decision in json.loads(ran.out)["decisions"]] == names


@pytest.mark.parametrize(
    "spec, count",
    [
        ({"parallelism": 40, "completions": 2}, 2),
        ({"completions": 4}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 3, "suspend": True}, 0),
    ],
)
@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_job_has_no_more_pods_at_a_time_than_completions(kind: str, spec: dict[str, object], count: int) -> None:
    spec = spec | {"template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}
    body: dict[str, object] = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "train"}}
    body["spec"] = spec if kind == "Job" else {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    assert len(pod_templates.with_pods(manifests.read("job.yaml", json.dumps(body)))) == count


def test_only_pods_of_one_workload_are_counted_and_all_others_named(shell: command_line.CommandLine, slices: str) -> None:
    half = claim("half", request("3g.20gb", count=9))
    template = half | {"kind": "ResourceClaimTemplate", "spec": {"spec": half["spec"]}}
    container = {"name": "main", "image": "trainer", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "half"}], "containers": [container]}
    sets = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "demo"}}
        | {"spec": {"replicas": 2, "template": {"spec": spec}}}
        for name in ("first", "second")
    ]
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "demo"}, "spec": spec} for name in ("a", "b")]
    ran = shell.run("allocate", slices, write(shell, template, *pods, *sets), "--why")
    assert [line for line in ran.out.splitlines() if line.endswith(" not fit")] == [
        "pod demo/a does not fit",
        "pod demo/b does not fit",
        "pod demo/first-0 and 1 more do not fit",
        "pod demo/second-0 and 1 more do not fit",
    ]


def test_drakits_own_class_need_not_be_in_the_files_and_is_noted(shell: command_line.CommandLine, slices: str) -> None:
    own = claim("one", request("3g.20gb") | {"deviceClassName": "mig.drakit.dev"})
    ran = shell.run("allocate", slices, write(shell, own))
    assert (ran.status, ran.err) == (0, "drakit: DeviceClass mig.drakit.dev is not in the files; drakit's own is used\n")
    assert "gpu.drakit.dev/node-1/gpu-0-mig-3g20gb-9-4" in ran.out
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": own["spec"]},
    }
    assert shell.run("allocate", slices, write(shell, template)).status == 0


def test_a_class_in_the_files_goes_before_drakits_own(shell: command_line.CommandLine, slices: str) -> None:
    nothing = {"selectors": [{"cel": {"expression": "false"}}]}
    other = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig.drakit.dev"}, "spec": nothing}
    ran = shell.run("allocate", slices, write(shell, other, claim("one", request("3g.20gb") | {"deviceClassName": "mig.drakit.dev"})))
    assert (ran.status, ran.err) == (1, "")


def test_json_lists_the_allocations_and_every_obstacle(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("one", request("3g.20gb")), claim("two", request("7g.40gb", count=2)))
    ran = shell.run("allocate", "-f", slices, "-f", file, "-o", "json")
    answer = json.loads(ran.out)
    assert (ran.status, answer["fits"]) == (1, False)
    first, second = answer["decisions"]
    assert first["claims"][0]["allocation"]["devices"]["results"][0]["device"] == "gpu-0-mig-3g20gb-9-4"
    groups = second["why"]["node-1"][0]["devices"]
    assert sum(len(group["devices"]) for group in groups) == 51


def test_devices_of_allocated_claims_are_taken(shell: command_line.CommandLine, slices: str) -> None:
    result = {"request": "r0", "driver": "gpu.drakit.dev", "pool": "node-1", "device": "gpu-0-mig-3g20gb-9-4"}
    held = claim("held", request("3g.20gb")) | {"status": {"allocation": {"devices": {"results": [result]}}}}
    ran = shell.run("allocate", "-f", slices, "-f", write(shell, held, claim("one", request("3g.20gb"))), "-o", "json")
    (decision,) = json.loads(ran.out)["decisions"]
    assert decision["claims"][0]["allocation"]["devices"]["results"][0]["device"] == "gpu-0-mig-3g20gb-9-0"


def test_the_claims_of_a_pod_are_placed_together_where_the_pod_may_run(shell: command_line.CommandLine, slices: str) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "two", "namespace": "demo"},
        "spec": {"spec": claim("", request("1g.5gb"), request("1g.5gb"))["spec"]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "demo"},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "two"}, {"name": "b", "resourceClaimName": "one"}],
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    node: dict[str, object] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"gpu": "yes"}}}
    asked = [template, pod, claim("one", request("3g.20gb"))]
    ran = shell.run("allocate", "-f", slices, "-f", write(shell, *asked, node), "-o", "json")
    (decision,) = json.loads(ran.out)["decisions"]
    assert (decision["asked"], decision["node"]) == ("pod demo/p", "node-1")
    assert {one["claim"] for one in decision["claims"]} == {"demo/p-a", "demo/one"}
    node["metadata"] = {"name": "node-1"}
    ran = shell.run("allocate", "-f", slices, "-f", write(shell, *asked, node))
    assert ran.status == 1
    assert "lacks the labels gpu=yes of the pod's nodeSelector" in ran.out


def test_a_template_without_pods_is_allocated_once(shell: command_line.CommandLine, slices: str) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "demo"},
        "spec": {"spec": claim("", request("1g.5gb"))["spec"]},
    }
    ran = shell.run("allocate", "-f", slices, "-f", write(shell, template))
    assert ran.status == 0
    assert "template demo/t" in ran.out


def test_a_gate_that_is_off_changes_the_answer(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("one", request("7g.40gb", count=2)), claim("two", request("3g.20gb")))
    assert shell.run("allocate", "-f", slices, "-f", file).status == 1
    assert shell.run("allocate", "-f", slices, "-f", file, "--gate", "DRAPartitionableDevices=false").status == 0


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "no file": (("-f", "/no/such/file"), "/no/such/file: cannot be read"),
    "nothing": ((), "add FILE, -f FILE, or --live"),
    "unknown gate": (("--gate", "DRAFoo=true"), "unknown feature gates DRAFoo"),
    "gate without a state": (("--gate", "DRAResourceSliceMixins"), "write NAME=true or NAME=false"),
    "unknown node": (("--node", "node-9"), "--node: no node 'node-9'; did you mean node-1?"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_status_2_and_one_line(shell: command_line.CommandLine, slices: str, arguments: tuple[str, ...], message: str) -> None:
    given = () if message.startswith("add") else ("-f", slices, "-f", write(shell, claim("one", request("1g.5gb"))))
    ran = shell.run("allocate", *given, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("drakit: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: [", "is not YAML"),
        ("just text", "document 1 (line 1): an object needs apiVersion and kind"),
        (
            "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: r}]}}}",
            "exactly one of",
        ),
        (CLASS, "there is nothing to allocate"),
    ],
)
def test_a_file_that_the_server_would_refuse_is_status_2(shell: command_line.CommandLine, text: str, message: str) -> None:
    file = shell.folder / "bad.yaml"
    file.write_text(text)
    ran = shell.run("allocate", "-f", str(file))
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_slices_classes_and_allocations_are_read_from_a_live_cluster(
    shell: command_line.CommandLine, slices: str, tmp_path: pathlib.Path
) -> None:
    memory = registry.Registry()
    kinds = {"DeviceClass": resources.CLASS, "ResourceSlice": resources.SLICE}
    for one in map(json.loads, pathlib.Path(slices).read_text().splitlines()):
        memory.create(kinds[one["kind"]], one)
    memory.create(resources.NAMESPACE, {"metadata": {"name": "demo"}})
    held = memory.create(resources.CLAIM, as_object(claim("held", request("3g.20gb"))), namespace="demo")
    result: Object = {"request": "r0", "driver": "gpu.drakit.dev", "pool": "node-1", "device": "gpu-0-mig-3g20gb-9-4"}
    memory.update(resources.CLAIM, {**held, "status": {"allocation": {"devices": {"results": [result]}}}}, subresource="status")
    memory.create(resources.CLAIM, as_object(claim("pending", request("7g.40gb", count=2))), namespace="demo")
    with apiserver.ApiServer(memory) as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        live = ("allocate", "--live", "--kubeconfig", str(kubeconfig), "-o", "json")
        own = shell.run(*live, "-f", write(shell, claim("one", request("3g.20gb"))))
        pending = shell.run(*live)
        memory.delete(resources.CLAIM, "pending", namespace="demo")
        idle = shell.run("allocate", "--kubeconfig", str(kubeconfig), "--why")
    (decision,) = json.loads(own.out)["decisions"]
    assert decision["claims"][0]["allocation"]["devices"]["results"][0]["device"] == "gpu-0-mig-3g20gb-9-0"
    assert (idle.status, idle.out) == (0, "no pod and no claim waits for devices\n"), idle.err
    assert (pending.status, [one["asked"] for one in json.loads(pending.out)["decisions"]]) == (1, ["claim demo/pending"])


def as_object(value: dict[str, object]) -> Object:
    made: Object = json.loads(json.dumps(value))
    return made


def test_a_cluster_that_does_not_answer_is_bad_input(shell: command_line.CommandLine) -> None:
    ran = shell.run("allocate", "--live", "--kubeconfig", str(shell.folder / "none"))
    assert (ran.status, ran.out) == (2, "")


SHARED = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: shared%(uid)s}
spec: {selectors: [{cel: {expression: "device.allowMultipleAllocations"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s%(uid)s}
spec:
  driver: nic.example.com
  nodeName: node
  pool: {name: node, generation: 1, resourceSliceCount: 1}
  devices: [{name: nic, allowMultipleAllocations: true, capacity: {bandwidth: {value: 10Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: demo}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: shared, capacity: {requests: {bandwidth: 1Gi}}}}]}}
"""


def test_with_a_gate_off_stored_expressions_compile_and_new_ones_do_not(shell: command_line.CommandLine) -> None:
    file = shell.folder / "shared.yaml"
    file.write_text(SHARED % {"uid": ""})
    new = shell.run("allocate", str(file), "--gate", "DRAConsumableCapacity=false")
    assert (new.status, new.out) == (2, "")
    assert "allowMultipleAllocations" in new.err
    file.write_text(SHARED % {"uid": ", uid: u"})
    stored = shell.run("allocate", str(file), "--gate", "DRAConsumableCapacity=false", "-o", "json")
    assert "ResourceClaim demo/c: spec.devices.requests[0].exactly.capacity is dropped, as by the API server" in stored.err
    assert "ResourceSlice" not in stored.err, "what is stored keeps its fields"
    assert (stored.status, "shareID" in stored.out) == (0, False), "a scheduler without the feature gives the device to one claim"
    shared = shell.run("allocate", str(file), "-o", "json")
    assert (shared.status, "shareID" in shared.out) == (0, True)


def test_an_allocation_for_a_workload_says_that_any_pod_may_use_it(shell: command_line.CommandLine, slices: str) -> None:
    job = {"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "u"}
    wanted = claim("many", request("1g.5gb"))
    wanted["spec"] = {**as_object(wanted["spec"]), "reservedFor": job}  # type: ignore[arg-type]
    file = write(shell, wanted, claim("one", request("1g.5gb")))
    for gate, expected in (("true", [True, None]), ("false", [None, None])):
        ran = shell.run("allocate", slices, file, "-o", "yaml", "--gate", f"DRAReservedForWorkloads={gate}")
        found = [one for decision in yaml.load(ran.out, Loader=yaml.CSafeLoader)["decisions"] for one in decision["claims"]]
        assert [one["allocation"].get("reservedForAnyPod") for one in found] == expected


def members(*names: str, group: str = "g", policy: object = None) -> list[dict[str, object]]:
    """A PodGroup with a claim from a template, and pods that share it and have one of their own besides."""
    spec = claim("x", request("3g.20gb"))["spec"]
    shared, own = ({"name": name, "resourceClaimTemplateName": name} for name in ("shared", "own"))

    def typed(version: str, kind: str, name: str, spec: object) -> dict[str, object]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "demo"}, "spec": spec}

    pod = {
        "containers": [{"name": "main", "image": "a", "resources": {"claims": [{"name": "shared"}, {"name": "own"}]}}],
        "resourceClaims": [shared, own],
        "schedulingGroup": {"podGroupName": group},
    }
    body = {"schedulingPolicy": policy or {"basic": {}}, "resourceClaims": [shared]}
    return [
        typed("resource.k8s.io/v1", "ResourceClaimTemplate", "shared", {"spec": spec}),
        typed("resource.k8s.io/v1", "ResourceClaimTemplate", "own", {"spec": claim("x", request("1g.5gb"))["spec"]}),
        typed("scheduling.k8s.io/v1beta1", "PodGroup", "g", body),
        *(typed("v1", "Pod", name, pod) for name in names),
    ]


WITH_GROUPS = ("--gate", "DRAWorkloadResourceClaims=true", "--gate", "GenericWorkload=true")


def test_the_claim_of_a_group_is_decided_once_for_all_its_pods(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", slices, write(shell, *members("p", "q")), *WITH_GROUPS)
    assert ran.status == 0
    assert [line.split()[:6] for line in ran.out.splitlines()[1:]] == [
        ["demo/g-shared", "node-1", "pod", "demo/p", "r0", "gpu.drakit.dev/node-1/gpu-0-mig-3g20gb-9-4"],
        ["demo/p-own", "node-1", "pod", "demo/p", "r0", "gpu.drakit.dev/node-1/gpu-0-mig-1g5gb-19-3"],
        ["demo/q-own", "node-1", "pod", "demo/q", "r0", "gpu.drakit.dev/node-1/gpu-0-mig-1g5gb-19-2"],
    ]


def test_a_pod_of_a_group_that_no_file_has_does_not_fit(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", slices, write(shell, *members("p", group="h")), *WITH_GROUPS)
    assert ran.status == 1
    assert "pod demo/p does not fit: PodGroup demo/h not found" in ran.out


def test_with_the_gate_off_the_claims_of_a_group_are_said_to_be_dropped(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", slices, write(shell, *members("p")), "--gate", "GenericWorkload=true")
    assert (ran.status, "demo/p-shared" in ran.out) == (0, True)
    assert "spec.resourceClaims is dropped" in ran.err


def test_a_gang_is_said_to_be_decided_pod_by_pod(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", slices, write(shell, *members("p", policy={"gang": {"minCount": 2}})), *WITH_GROUPS)
    assert ran.status == 0
    assert "PodGroup demo/g: gang is ignored: its pods are decided one by one" in ran.err


def test_a_pod_of_a_live_group_uses_the_claim_that_the_group_has(
    shell: command_line.CommandLine, slices: str, tmp_path: pathlib.Path
) -> None:
    memory = registry.Registry(gates=FeatureGates.of({"DRAWorkloadResourceClaims": True}))
    kinds = {"DeviceClass": resources.CLASS, "ResourceSlice": resources.SLICE}
    for one in map(json.loads, pathlib.Path(slices).read_text().splitlines()):
        memory.create(kinds[one["kind"]], one)
    memory.create(resources.NAMESPACE, {"metadata": {"name": "demo"}})
    shared, own, group, pod = members("p")
    stored = memory.create(resources.POD_GROUP, as_object(group), namespace="demo")
    owner = pod_claims.owned_by(resources.POD_GROUP, stored)
    held = as_object(claim("g-shared-1", request("3g.20gb")))
    held["metadata"] = {"name": "g-shared-1", "ownerReferences": [owner]}
    held = memory.create(resources.CLAIM, held, namespace="demo")
    result: Object = {"request": "r0", "driver": "gpu.drakit.dev", "pool": "node-1", "device": "gpu-0-mig-3g20gb-9-4"}
    memory.update(resources.CLAIM, {**held, "status": {"allocation": {"devices": {"results": [result]}}}}, subresource="status")
    statuses: Object = {"resourceClaimStatuses": [{"name": "shared", "resourceClaimName": "g-shared-1"}]}
    memory.update(resources.POD_GROUP, {**stored, "status": statuses}, subresource="status")
    with apiserver.ApiServer(memory) as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        ran = shell.run("allocate", "--kubeconfig", str(kubeconfig), "-o", "json", write(shell, shared, own, pod))
    [decision] = json.loads(ran.out)["decisions"]
    assert (ran.status, [one["claim"] for one in decision["claims"]]) == (0, ["demo/p-own"])
    assert "feature gate DRAWorkloadResourceClaims is taken to be on, because PodGroup demo/g has spec.resourceClaims" in ran.err


SHARED_PARENT = {"constraints": [{"matchAttribute": "gpu.drakit.dev/parentUUID"}]}
HALVES = (request("3g.20gb"), request("3g.20gb"))
LEFT_PENDING = "Kubernetes 1.36 leaves it Pending: it does not release the counters of a device that it tried and rejected"


def test_why_warns_of_a_claim_that_kubernetes_1_36_leaves_pending_though_it_fits(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("small", request("1g.5gb")), claim("two", *HALVES, **SHARED_PARENT))
    ran = shell.run("allocate", slices, file, "--why")
    assert ran.status == 0
    assert "gpu-1-mig-3g20gb-9-0" in ran.out
    [warning] = [line for line in ran.out.splitlines() if line.startswith("warning: ")]
    assert warning.startswith(f"warning: claim demo/two: {LEFT_PENDING}")
    assert "name the GPU with a CEL selector in the first request" in warning
    assert "warning" not in shell.run("allocate", slices, file).out
    decisions = json.loads(shell.run("allocate", slices, file, "-o", "json").out)["decisions"]
    assert [one.get("difference", "")[: len(LEFT_PENDING)] for one in decisions] == ["", LEFT_PENDING]


def test_kubernetes_1_36_reproduces_known_errors(shell: command_line.CommandLine, slices: str) -> None:
    file = write(shell, claim("small", request("1g.5gb")), claim("two", *HALVES, **SHARED_PARENT))
    ran = shell.run("allocate", slices, file, "--why", "--kubernetes", "1.36")
    assert ran.status == 1
    assert "the claims fit, but Kubernetes 1.36 does not find it: it does not release the counters" in ran.out
    assert "warning" not in ran.out
    unknown = shell.run("allocate", slices, file, "--kubernetes", "1.1")
    assert (unknown.status, "--kubernetes: unknown Kubernetes version '1.1'; known are 1.34, 1.35, 1.36" in unknown.err) == (2, True)


def test_a_claim_that_kubernetes_1_36_allocates_the_same_has_no_warning(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", slices, write(shell, claim("small", request("1g.5gb")), claim("big", request("7g.40gb", count=2))), "--why")
    assert ran.status == 1
    assert "1.36" not in ran.out


def test_lint_warns_of_a_claim_that_kubernetes_1_36_leaves_pending(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("lint", slices, write(shell, claim("two", *HALVES, **SHARED_PARENT)))
    assert ran.status == 0
    assert f"spec.devices: while gpu-0-mig-3g20gb-9-4 is taken, {LEFT_PENDING}" in ran.out
    assert "  fix: name the GPU with a CEL selector in the first request" in ran.out
    assert "0 errors, 1 warning" in ran.out


def test_on_kubernetes_1_36_a_sample_that_names_its_gpu_fits_and_the_other_waits(shell: command_line.CommandLine, slices: str) -> None:
    taken, unnamed, named = (
        str(MANIFESTS / "samples" / f"{name}.yaml") for name in ("60-one-partition", "10-mig-partitions", "15-mig-pinned-gpu")
    )
    given = ("allocate", slices, str(MANIFESTS / "gpu" / "deviceclasses.yaml"), taken)
    ran = shell.run(*given, named, "--kubernetes", "1.36")
    assert (ran.status, "gpu-1-mig-1g5gb-19-6" in ran.out, "gpu-1-mig-4g20gb-5-0" in ran.out) == (0, True, True), ran
    ran = shell.run(*given, unnamed, "--kubernetes", "1.36")
    assert (ran.status, "pod drakit-demo/four-partitions does not fit" in ran.out) == (1, True), ran
    assert "1.36" not in shell.run("lint", *given[1:], named).out
    assert "name the GPU with a CEL selector in the first request" in shell.run("lint", *given[1:], unnamed).out


def test_a_profile_that_no_device_has_is_named_with_those_that_there_are(shell: command_line.CommandLine, slices: str) -> None:
    ran = shell.run("allocate", slices, write(shell, claim("typo", request("3g.20gbb"))))
    assert ran.status == 1
    assert "no device here has profile 3g.20gbb: the values of profile are 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb" in ran.out
