"""``drakit lint`` judges objects by each other: what the server takes and what is a mistake all the same, each with its field and its mend."""

import json
from collections.abc import Mapping

import pytest

from drakit.inputs import documents
from fakes import command_line

DRIVER = "gpu.example.com"
POD_UID = "00000000-0000-4000-8000-000000000009"
SHARE = "5cf8db2d-06c0-4d70-9a51-e59b25b2c16c"

Case = tuple[tuple[object, ...], str, str, str, str]
"""Objects, then severity, field, a part of the message, and a part of the fix."""


def typed(kind: str, name: str, spec: object, version: str = "resource.k8s.io/v1", **more: object) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


def published(*devices: Mapping[str, object], node: str = "n", pool: str = "n", count: int = 1, **more: object) -> dict[str, object]:
    named = {"name": pool, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": node, "pool": named, "devices": list(devices), **more}
    return typed("ResourceSlice", f"{pool}-{node}-{len(devices)}", spec)


def device(name: str, **fields: object) -> dict[str, object]:
    return {"name": name, "attributes": {"type": {"string": "gpu"}}, **fields}


def attributes(**values: str) -> dict[str, object]:
    return {name: {"string": value} for name, value in values.items()}


def shared(name: str) -> dict[str, object]:
    return device(name, allowMultipleAllocations=True, capacity={"bandwidth": {"value": "10G"}})


CLASS = typed("DeviceClass", "gpu", {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]})


def claim(*requests: Mapping[str, object], name: str = "c", status: object = None, **fields: object) -> dict[str, object]:
    listed = [{"name": f"r{number}", "exactly": {"deviceClassName": "gpu", **request}} for number, request in enumerate(requests or [{}])]
    made = typed("ResourceClaim", name, {"devices": {"requests": listed, **fields}})
    return made if status is None else made | {"status": status}


def held(*results: Mapping[str, object], name: str = "c", **status: object) -> dict[str, object]:
    """A claim to which these were allocated."""
    full = [{"request": "r0", "driver": DRIVER, "pool": "n", **result} for result in results]
    return claim(name=name, status={"allocation": {"devices": {"results": full}}, **status})


def rule(selector: object, effect: str = "NoSchedule") -> dict[str, object]:
    spec = {"taint": {"key": "example.com/bad", "value": "x", "effect": effect}}
    return typed("DeviceTaintRule", "rule", spec if selector is None else {"deviceSelector": selector, **spec}, "resource.k8s.io/v1alpha3")


def pod(entry: Mapping[str, object], *used: Mapping[str, object], kind: str = "Pod", name: str = "p") -> dict[str, object]:
    spec = {
        "resourceClaims": [{"name": "gpu", **entry}],
        "containers": [{"name": "main", "image": "registry.example.com/a", "resources": {"claims": list(used)}}],
    }
    return typed(kind, name, spec, "v1") if kind == "Pod" else typed(kind, name, {"template": {"spec": spec}}, "apps/v1")


def node(name: str, **labels: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


ONE = published(device("d0"))
TEMPLATE = typed("ResourceClaimTemplate", "t", {"spec": {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": "gpu"}}]}}})
USE = {"name": "gpu"}
RESULT = "status.allocation.devices.results[0]"

RULES: dict[str, Case] = {
    "a rule without a selector": ((ONE, rule(None)), "warning", "spec.deviceSelector", "selects no device", "or {} for every device"),
    "a rule for everything": (
        (ONE, rule({}, "NoExecute")),
        "warning",
        "spec.deviceSelector",
        "selects every device of the cluster: every pod that uses a device",
        "add driver, pool or device",
    ),
    "a pool without its driver": ((ONE, rule({"pool": "n"})), "warning", "spec.deviceSelector.pool", "in every driver", "add driver: NAME"),
    "a device without its pool": (
        (ONE, rule({"driver": DRIVER, "device": "d0"})),
        "warning",
        "spec.deviceSelector.device",
        "in every pool",
        "add pool: NAME",
    ),
    "a driver that nobody is": (
        (ONE, rule({"driver": "gpx.example.com"})),
        "warning",
        "spec.deviceSelector.driver",
        "none of the 1 devices has driver gpx.example.com",
        f"write {DRIVER}",
    ),
    "a device that is not there": (
        (published(device("d0"), device("d1")), rule({"driver": DRIVER, "pool": "n", "device": "d7"})),
        "warning",
        "spec.deviceSelector.device",
        "has device d7: the rule taints nothing",
        "known are d0, d1",
    ),
    "an effect in small letters": (
        (rule({"driver": DRIVER}, "noschedule"),),
        "error",
        "spec.taint.effect",
        "Unsupported value",
        "write NoSchedule",
    ),
    "no effect": ((rule({"driver": DRIVER}, ""),), "error", "spec.taint.effect", "Required value", "write one of NoExecute"),
    "a taint of a rule that nobody tolerates": (
        (ONE, CLASS, rule({"driver": DRIVER}), claim()),
        "warning",
        "spec.devices.requests[0].exactly.tolerations",
        "does not tolerate example.com/bad=x:NoSchedule",
        "add {key: example.com/bad, operator: Exists, effect: NoSchedule}",
    ),
    "a taint of the driver that nobody tolerates": (
        (published(device("d0", taints=[{"key": "example.com/bad", "effect": "NoExecute"}])), CLASS, claim()),
        "warning",
        "spec.devices.requests[0].exactly.tolerations",
        "does not tolerate example.com/bad:NoExecute",
        "operator: Exists",
    ),
}
GIVEN: dict[str, Case] = {
    "an id that is none": (
        (published(shared("nic")), held({"device": "nic", "shareID": "A-1"})),
        "error",
        f"{RESULT}.shareID",
        "Invalid value",
        "change it",
    ),
    "a request that is not the claim's": (
        (ONE, held({"device": "d0", "request": "q"})),
        "error",
        f"{RESULT}.request",
        "must be the name of a request",
        "change it",
    ),
    "a status that matches no device of the allocation": (
        (ONE, held({"device": "d0"}, devices=[{"driver": DRIVER, "pool": "n", "device": "d1"}])),
        "error",
        "status.devices[0]",
        "must be an allocated device in the claim",
        "change it",
    ),
}


def workload(
    kind: str, path: str, version: str = "apps/v1", *, name: str = "w", entry: str = "gpu", **pod_fields: object
) -> dict[str, object]:
    """An object with a pod spec at a path."""
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": entry}]}}
    inner: object = {"containers": [container], "resourceClaims": [{"name": entry, "resourceClaimTemplateName": "t"}], **pod_fields}
    for step in reversed(path.split(".")):
        inner = {step.removesuffix("[0]"): [inner] if step.endswith("[0]") else inner}
    assert isinstance(inner, dict)
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **inner}


USERS: dict[str, Case] = {
    "a template that is not there": (
        (TEMPLATE, pod({"resourceClaimTemplateName": "u"}, USE)),
        "warning",
        "spec.resourceClaims[0].resourceClaimTemplateName",
        "ResourceClaimTemplate default/u is not in these files",
        "known are t; or add it to the files",
    ),
    "a template where there is none": (
        (claim(), pod({"resourceClaimTemplateName": "t"}, USE)),
        "warning",
        "spec.resourceClaims[0].resourceClaimTemplateName",
        "ResourceClaimTemplate default/t is not in these files",
        "add it to the files",
    ),
    "a template where a claim is meant": (
        (TEMPLATE, pod({"resourceClaimName": "t"}, USE)),
        "warning",
        "spec.resourceClaims[0].resourceClaimName",
        "ResourceClaim default/t is not in these files",
        "it is a ResourceClaimTemplate: write resourceClaimTemplateName",
    ),
    "a template of another namespace": (
        ({**TEMPLATE, "metadata": {"name": "t", "namespace": "lab"}}, pod({"resourceClaimTemplateName": "t"}, USE)),
        "warning",
        "spec.resourceClaims[0].resourceClaimTemplateName",
        "ResourceClaimTemplate default/t is not in these files",
        "it is in namespace lab",
    ),
    "a claim that no container uses": (
        (TEMPLATE, pod({"resourceClaimTemplateName": "t"})),
        "warning",
        "spec.resourceClaims[0]",
        "no container uses gpu",
        "add resources: {claims: [{name: gpu}]}",
    ),
    "a request that the claim has not": (
        (TEMPLATE, pod({"resourceClaimTemplateName": "t"}, {"name": "gpu", "request": "r"})),
        "warning",
        "spec.containers[0].resources.claims[0].request",
        "the claim has no request r",
        "write r0",
    ),
    "a name that the pod has not, in a workload": (
        (TEMPLATE, pod({"resourceClaimTemplateName": "t"}, {"name": "gpx"}, kind="Deployment")),
        "error",
        "spec.template.spec.containers[0].resources.claims[0].name",
        "must be one of spec.template.spec.resourceClaims",
        "write gpu",
    ),
    "an entry with the source of Kubernetes 1.30": (
        (TEMPLATE, pod({"source": {"resourceClaimTemplateName": "t"}}, USE)),
        "error",
        "spec.resourceClaims[0].source",
        "unknown field",
        "move resourceClaimTemplateName out of source",
    ),
    "a misspelt field of a container": (
        (TEMPLATE, workload("Deployment", "spec.template.spec", containers=[{"name": "c", "imag": "i", "resources": {"claims": [USE]}}])),
        "error",
        "spec.template.spec.containers[0].imag",
        "unknown field",
        "write image",
    ),
    "a misspelt field of a pod": (
        (TEMPLATE, {**pod({"resourceClaimTemplateName": "t"}, USE), "spec": {"containers": [{"name": "c"}], "resourceClaim": []}}),
        "error",
        "spec.resourceClaim",
        "unknown field",
        "write resourceClaims",
    ),
    "an entry that is no label": (
        (TEMPLATE, workload("Deployment", "spec.template.spec", entry="My_GPU")),
        "error",
        "spec.template.spec.resourceClaims[0].name",
        "must be lower-case letters",
        "write my-gpu",
    ),
    "an entry without a claim": (
        (TEMPLATE, pod({}, USE)),
        "error",
        "spec.resourceClaims[0]",
        "exactly one of resourceClaimName or resourceClaimTemplateName",
        "add resourceClaimName: NAME, or resourceClaimTemplateName: NAME",
    ),
    "a workload whose name is none": (
        (TEMPLATE, workload("Job", "spec.template.spec", name="My_Job")),
        "error",
        "metadata.name",
        "must be",
        "my-job",
    ),
    "a misspelt field of a workload": (
        (typed("Deployment", "d", {"replica": 2, "selector": {}, "template": {}}, "apps/v1", status={"newer": 1}),),
        "error",
        "spec.replica",
        "unknown field",
        "write replicas",
    ),
    "a misspelt field of a rollout": (
        (typed("DaemonSet", "d", {"updateStrategy": {"rollingUpdate": {"maxSurg": 1}}, "template": {}}, "apps/v1"),),
        "error",
        "spec.updateStrategy.rollingUpdate.maxSurg",
        "unknown field",
        "write maxSurge",
    ),
    "a template without the labels of the selector": (
        (
            typed(
                "StatefulSet",
                "s",
                {"selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "b"}}}},
                "apps/v1",
            ),
        ),
        "error",
        "spec.template.metadata.labels",
        "`selector` does not match template `labels`",
        'write the labels of spec.selector.matchLabels: {"app": "a"}',
    ),
    "a misspelt kind of workload": (
        (typed("Deploymnt", "d", {}, "apps/v1"),),
        "warning",
        "kind",
        "unknown kind; did you mean Deployment?",
        "write Deployment",
    ),
    "a kind that was removed": (
        ({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClass", "metadata": {"name": "old"}},),
        "error",
        "kind",
        "resource.k8s.io has no kind ResourceClass",
        "write DeviceClass",
    ),
}
TEMPLATES = {
    "Deployment": ("apps/v1", "spec.template.spec"),
    "Job": ("batch/v1", "spec.template.spec"),
    "CronJob": ("batch/v1", "spec.jobTemplate.spec.template.spec"),
    "DaemonSet": ("apps/v1", "spec.template.spec"),
    "StatefulSet": ("apps/v1", "spec.template.spec"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "spec.replicatedJobs[0].template.spec.template.spec"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "spec.leaderWorkerTemplate.workerTemplate.spec"),
    "PyTorchJob": ("kubeflow.org/v1", "spec.pytorchReplicaSpecs.Worker.template.spec"),
    "RayCluster": ("ray.io/v1", "spec.workerGroupSpecs[0].template.spec"),
}
"""By kind: its version, and the path of a pod spec."""
DEMAND: dict[str, Case] = {
    "both kinds of one constraint": (
        (claim({}, {}, constraints=[{"matchAttribute": f"{DRIVER}/type", "distinctAttribute": f"{DRIVER}/type"}]),),
        "warning",
        "spec.devices.constraints[0].distinctAttribute",
        "is ignored beside matchAttribute",
        "write two constraints",
    ),
    "a match that nothing satisfies": (
        (
            published(device("d0", attributes=attributes(parent="a")), device("d1", attributes=attributes(parent="b"))),
            CLASS,
            claim({"count": 2}, constraints=[{"matchAttribute": f"{DRIVER}/parent"}]),
        ),
        "warning",
        "spec.devices",
        "it would fit without the constraint matchAttribute gpu.example.com/parent",
        "drakit allocate --why",
    ),
    "a distinction that nothing satisfies": (
        (published(device("d0"), device("d1")), CLASS, claim({"count": 2}, constraints=[{"distinctAttribute": f"{DRIVER}/type"}])),
        "warning",
        "spec.devices",
        "fits on no node, even if nothing is allocated; on n: request r0 needs 2 devices, 1 available",
        "drakit allocate --why",
    ),
    "all of too many": (
        (published(*(device(f"d{number}") for number in range(33))), CLASS, claim({"allocationMode": "All"})),
        "warning",
        "spec.devices.requests[0].exactly.allocationMode",
        "requests all, but 33 devices are selected, and a claim gets at most 32",
        "select fewer",
    ),
    "more than any node has": (
        (published(device("d0")), published(device("d0"), device("d1"), node="m", pool="m"), CLASS, claim({"count": 3})),
        "warning",
        "spec.devices.requests[0].exactly.count",
        "requests 3, but node m has the most with 2 devices",
        "write at most 2",
    ),
    "a count beside all": (
        (claim({"allocationMode": "All", "count": 2}),),
        "error",
        "spec.devices.requests[0].exactly.count",
        'must not be specified when allocationMode is "All"',
        "remove count, or write allocationMode: ExactCount",
    ),
    "a selector that fails on some": (
        (
            published(device("d0"), *(device(f"d{number}", attributes=attributes(kind="x")) for number in range(1, 6))),
            CLASS,
            claim({"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].type == "gpu"'}}]}),
        ),
        "error",
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        f"fails on 5 of 6 devices, first {DRIVER}/n/d1, {DRIVER}/n/d2, {DRIVER}/n/d3 and 2 more: no such key: type",
        "check that the attribute exists",
    ),
    "a part of a device that is not shared": (
        (
            published(device("d0", capacity={"memory": {"value": "40Gi"}})),
            CLASS,
            claim({"capacity": {"requests": {"memory": "4Gi"}}}),
        ),
        "warning",
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "requests 4Gi, but no device that it selects is shared: the claim gets a whole one",
        "allowMultipleAllocations: true",
    ),
    "two classes for one extended resource": (
        (
            {**CLASS, "spec": {"extendedResourceName": "example.com/gpu"}},
            {**CLASS, "metadata": {"name": "other"}, "spec": {"extendedResourceName": "example.com/gpu"}},
        ),
        "warning",
        "spec.extendedResourceName",
        "example.com/gpu is also the name in DeviceClass gpu",
        "a different name",
    ),
}
SUPPLY: dict[str, Case] = {
    "a node that is not there": ((ONE, node("m")), "warning", "spec.nodeName", "Node n is not in these files", "known are m"),
    "partitions that no counter connects": (
        (published(device("gpu", attributes=attributes(uuid="U")), device("part", attributes=attributes(uuid="P", parentUUID="U"))),),
        "warning",
        "spec.devices[1]",
        "is a part of gpu by its attributes, but consumes no counter of it",
        "consume from one counter set",
    ),
    "a maximum above the value": (
        (
            published(
                device(
                    "nic",
                    allowMultipleAllocations=True,
                    capacity={"bandwidth": {"value": "10G", "requestPolicy": {"default": "1G", "validRange": {"min": "1G", "max": "40G"}}}},
                )
            ),
        ),
        "error",
        "spec.devices[0].capacity[bandwidth].requestPolicy.validRange.max",
        "at most 10G, the capacity's value",
        "write at most 10G",
    ),
    "one object twice": ((CLASS, CLASS), "error", "", "already exists", "give each a different name"),
}
ALL = {**RULES, **GIVEN, **USERS, **DEMAND, **SUPPLY}


def lint(shell: command_line.CommandLine, objects: tuple[object, ...], *options: str) -> list[dict[str, object]]:
    file = shell.folder / "objects.yaml"
    file.write_text(documents.dump_all(objects))
    found: list[dict[str, object]] = json.loads(shell.run("lint", str(file), "-o", "json", *options).out)
    return found


@pytest.mark.parametrize("objects, severity, field, text, fix", ALL.values(), ids=ALL)
def test_a_mismatch_between_objects_names_its_field_and_the_fix(
    shell: command_line.CommandLine, objects: tuple[object, ...], severity: str, field: str, text: str, fix: str
) -> None:
    found = [one for one in lint(shell, objects) if one["field"] == field and text in str(one["message"])]
    assert len(found) == 1, lint(shell, objects)
    assert found[0]["severity"] == severity
    assert fix in str(found[0]["fix"])


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_pods_of_a_workload_are_linted_as_pods_are(shell: command_line.CommandLine, kind: str) -> None:
    version, path = TEMPLATES[kind]
    ending = {"restartPolicy": "Never"} if version == "batch/v1" else {}
    assert lint(shell, (TEMPLATE, workload(kind, path, version, **ending))) == []
    wrong = workload(kind, path, version, resourceClaims=[{"name": "My_GPU", "resourceClaimTemplateNam": "t"}])
    found = {str(one["field"]).removeprefix(f"{path}."): str(one["fix"]) for one in lint(shell, (TEMPLATE, wrong))}
    assert found["resourceClaims[0].resourceClaimTemplateNam"].startswith("write resourceClaimTemplateName")
    assert found["resourceClaims[0].name"] == "write my-gpu"
    assert "containers[0].resources.claims[0].name" in found
    missing = workload(kind, path, version, **ending)
    assert "is not in these files" in str(lint(shell, ({**TEMPLATE, "metadata": {"name": "u"}}, missing))[0]["message"])


def test_a_restart_policy_that_the_kind_does_not_allow_is_an_error(shell: command_line.CommandLine) -> None:
    policies = [("Deployment", "Never"), ("DaemonSet", "OnFailure"), ("StatefulSet", "Always"), ("Job", ""), ("CronJob", "Always")]
    policies += [("Job", "never"), ("Pod", "always"), ("Job", "OnFailure")]
    kinds = {**TEMPLATES, "Pod": ("v1", "spec")}
    objects = [
        workload(kind, kinds[kind][1], kinds[kind][0], name=f"w{place}", restartPolicy=policy)
        for place, (kind, policy) in enumerate(policies)
    ]
    running, ending = "remove it: the pods run until they are deleted", "write restartPolicy: Never or restartPolicy: OnFailure"
    expected = [
        ("Deployment w0", 'Unsupported value: "Never": supported values: "Always"', running),
        ("DaemonSet w1", 'Unsupported value: "OnFailure": supported values: "Always"', running),
        ("Job w3", 'Required value: valid values: "OnFailure", "Never"', ending),
        ("CronJob w4", 'Required value: valid values: "OnFailure", "Never"', ending),
        ("Job w5", 'Unsupported value: "never": supported values: "OnFailure", "Never"', "write Never"),
        ("Pod default/w6", 'Unsupported value: "always": supported values: "Always", "OnFailure", "Never"', "write Always"),
    ]
    found = lint(shell, (TEMPLATE, *objects))
    assert [(one["object"], one["message"], str(one["fix"]).partition(";")[0]) for one in found] == expected
    assert all(str(one["field"]).endswith("spec.restartPolicy") for one in found)


_CLAIMING = {
    "containerConcurrency": 1,
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "u"}],
    "containers": [{"image": "i", "resources": {"claims": [{"name": "gpu"}, {"name": "net"}]}}],
}
UNKNOWN_KINDS: dict[str, tuple[str, dict[str, object], str]] = {
    "Rollout": ("argoproj.io/v1alpha1", {"template": {"spec": _CLAIMING}}, "spec.template.spec"),
    "Service": ("serving.knative.dev/v1", {"template": {"spec": _CLAIMING}}, "spec.template.spec"),
    "Job": ("batch.volcano.sh/v1alpha1", {"tasks": [{"template": {"spec": _CLAIMING}}]}, "spec.tasks[0].template.spec"),
}


@pytest.mark.parametrize("kind", UNKNOWN_KINDS)
def test_claims_of_an_unknown_kind_are_checked_and_its_other_fields_are_not(shell: command_line.CommandLine, kind: str) -> None:
    version, spec, path = UNKNOWN_KINDS[kind]
    found = lint(shell, (TEMPLATE, {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}))
    assert [one["field"] for one in found] == [
        f"{path}.containers[0].resources.claims[1].name",
        f"{path}.resourceClaims[0].resourceClaimTemplateName",
    ]


def test_an_unknown_kind_without_claims_is_skipped(shell: command_line.CommandLine) -> None:
    spec: object = {"template": {"spec": {"containers": [{"imagee": "i"}]}}}
    file = shell.folder / "objects.yaml"
    file.write_text(documents.dump({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "w"}, "spec": spec}))
    assert "skipped: Rollout w" in shell.run("lint", str(file)).err


RIGHT: dict[str, tuple[object, ...]] = {
    "a rule that selects": (published(device("d0"), device("d1")), rule({"driver": DRIVER, "pool": "n", "device": "d1"}, "NoExecute")),
    "a taint that is tolerated": (
        published(device("d0", taints=[{"key": "k", "effect": "NoExecute"}])),
        CLASS,
        claim({"tolerations": [{"key": "k", "operator": "Exists"}]}),
    ),
    "an allocation": (
        ONE,
        {**pod({"resourceClaimName": "c"}, USE), "metadata": {"name": "p", "uid": POD_UID}},
        held({"device": "d0"}, reservedFor=[{"resource": "pods", "name": "p", "uid": POD_UID}]),
    ),
    "two shares": (
        published(shared("nic")),
        held({"device": "nic", "shareID": POD_UID, "consumedCapacity": {"bandwidth": "6G"}}, name="a"),
        held({"device": "nic", "shareID": SHARE, "consumedCapacity": {"bandwidth": "4G"}}, name="b"),
    ),
    "a deployment": (TEMPLATE, pod({"resourceClaimTemplateName": "t"}, USE, kind="Deployment")),
    "names that are known elsewhere": (pod({"resourceClaimTemplateName": "t"}, USE),),
    "a node that is there": (ONE, node("n")),
    "a pod whose claim was made of a template that is gone": (
        claim(),
        {**pod({"resourceClaimTemplateName": "t"}, USE), "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}},
    ),
    "a claim that fits": (ONE, CLASS, claim()),
    "an admin's look at a device in use": (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "default", "labels": {"resource.kubernetes.io/admin-access": "true"}},
        },
        ONE,
        held({"device": "d0"}, name="a"),
        held({"device": "d0", "adminAccess": True}, name="b"),
    ),
}


@pytest.mark.parametrize("objects", RIGHT.values(), ids=RIGHT)
def test_matching_objects_have_no_finding(shell: command_line.CommandLine, objects: tuple[object, ...]) -> None:
    assert lint(shell, objects if CLASS in objects else (*objects, CLASS)) == []


def test_an_object_that_is_refused_is_not_missing_too(shell: command_line.CommandLine) -> None:
    bad_template = {**TEMPLATE, "metadata": {"name": "u"}, "spec": {"spec": {"devices": {"requests": [{"name": "R"}]}}}}
    bad_class = typed("DeviceClass", "other", {"selectors": [{"cel": {"expression": "true &&"}}]})
    found = lint(
        shell, (CLASS, bad_class, TEMPLATE, bad_template, pod({"resourceClaimTemplateName": "u"}, USE), claim({"deviceClassName": "other"}))
    )
    assert {str(one["object"]) for one in found} == {"DeviceClass other", "ResourceClaimTemplate default/u"}


PODS_IN_GROUPS = ("--gate", "GenericWorkload=true")
GROUP_CLAIMS = ("--gate", "DRAWorkloadResourceClaims=true", *PODS_IN_GROUPS)


def group(template: str = "t") -> dict[str, object]:
    entries = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return typed("PodGroup", "g", {"schedulingPolicy": {"basic": {}}, "resourceClaims": entries}, "scheduling.k8s.io/v1beta1")


def member(entry: Mapping[str, object], name: str = "g") -> dict[str, object]:
    made = pod(entry, USE)
    made["spec"]["schedulingGroup"] = {"podGroupName": name}  # type: ignore[index]
    return made


SAME = {"resourceClaimTemplateName": "t"}


@pytest.mark.parametrize(
    "objects, wanted",
    [
        ((TEMPLATE, group(), member(SAME)), []),
        (
            (TEMPLATE, group(), member(SAME, "h")),
            [("spec.schedulingGroup.podGroupName", "PodGroup default/h is not in these files", "g")],
        ),
        (
            (TEMPLATE, group("u"), member(SAME, "g")),
            [
                ("spec.resourceClaims[0].resourceClaimTemplateName", "ResourceClaimTemplate default/u is not in these files", "t"),
                ("spec.resourceClaims[0]", "does not use the group's claim", "write resourceClaimTemplateName: u"),
            ],
        ),
    ],
    ids=["right", "a group that no file has", "another template"],
)
def test_a_pod_and_its_group_are_compared(
    shell: command_line.CommandLine, objects: tuple[object, ...], wanted: list[tuple[str, str, str]]
) -> None:
    found = lint(shell, objects, *GROUP_CLAIMS)
    assert [one["field"] for one in found] == [field for field, _, _ in wanted]
    for finding, (_, text, fix) in zip(found, wanted, strict=True):
        assert (finding["severity"], text in str(finding["message"]), fix in str(finding["fix"])) == ("warning", True, True), finding


def test_lint_evaluates_derived_attributes_on_the_devices_that_the_request_selects(shell: command_line.CommandLine) -> None:
    device_slice = published(device("a", attributes=attributes(slot="1")), device("b", attributes=attributes(other="1")))
    derived = {"name": "derived/slot", "expression": f'device.attributes["{DRIVER}"].slot'}
    asked = claim({"derivedAttributes": [derived]}, constraints=[{"matchAttribute": "derived/slot"}])
    [found] = lint(shell, (CLASS, device_slice, asked), "--gate", "DRADerivedAttributes=true")
    assert (found["severity"], found["field"]) == ("error", "spec.devices.requests[0].exactly.derivedAttributes[0].expression")
    assert str(found["message"]).startswith("fails on 1 of 2 devices, ")
    guarded = {**derived, "expression": f'device.attributes["{DRIVER}"].?slot.orValue("none")'}
    asked = claim({"derivedAttributes": [guarded]}, constraints=[{"matchAttribute": "derived/slot"}])
    assert lint(shell, (CLASS, device_slice, asked), "--gate", "DRADerivedAttributes=true") == []


def test_lint_warns_that_a_groups_claims_are_dropped_with_the_gate_off(shell: command_line.CommandLine) -> None:
    [found] = lint(shell, (TEMPLATE, group(), member(SAME)), *PODS_IN_GROUPS)
    assert (found["severity"], found["field"]) == ("warning", "spec.resourceClaims")
    assert "feature gate DRAWorkloadResourceClaims is off" in str(found["message"])


def test_kinds_that_have_nothing_to_do_with_devices_are_named_as_skipped(shell: command_line.CommandLine) -> None:
    file = shell.folder / "objects.yaml"
    file.write_text(documents.dump_all([CLASS, typed("Service", "web", {}, "v1"), typed("Role", "r", {}, "rbac.authorization.k8s.io/v1")]))
    outcome = shell.run("lint", str(file))
    assert (outcome.status, outcome.out) == (0, "1 object: 0 errors, 0 warnings\n")
    assert outcome.err.splitlines()[-1] == f"drakit: skipped: Service web ({file}:11), Role r ({file}:17)"


def test_lint_notes_that_selectors_were_not_compared_with_devices(shell: command_line.CommandLine) -> None:
    classes, slices = shell.folder / "classes.yaml", shell.folder / "slices.yaml"
    classes.write_text(documents.dump(CLASS))
    slices.write_text(shell.on_node("slices", "-o", "yaml").out)
    assert shell.run("lint", str(classes)).err.startswith("drakit: selectors were not compared with devices: no file has ResourceSlices")
    assert shell.run("lint", str(classes), str(slices)).err == ""


def test_drakits_own_classes_need_not_be_in_the_files(shell: command_line.CommandLine) -> None:
    claims, slices = shell.folder / "claims.yaml", shell.folder / "slices.yaml"
    asked = claim({"deviceClassName": "mig.drakit.dev", "count": 99}, {"deviceClassName": "fast"}, {"deviceClassName": "gpu.nvidia.com"})
    claims.write_text(documents.dump(asked))
    slices.write_text(shell.on_node("slices", "-o", "yaml").out)
    outcome = shell.run("lint", str(claims), str(slices), "-o", "json")
    assert outcome.err == "drakit: DeviceClass mig.drakit.dev is not in the files; drakit's own is used\n"
    count, unknown, of_nvidia = json.loads(outcome.out)
    assert count["message"].startswith("requests 99, but ")
    assert unknown["message"] == "DeviceClass fast is not in these files"
    assert of_nvidia["fix"] == "write gpu.drakit.dev"
    assert unknown["fix"] == "known are gpu.drakit.dev, mig.drakit.dev, nic.drakit.dev; or add it to the files"


def test_the_same_mistake_in_many_places_is_shown_once(shell: command_line.CommandLine) -> None:
    file = shell.folder / "slice.yaml"
    file.write_text(documents.dump(published(*({"name": f"d{number}", "basic": {}} for number in range(4)))))
    outcome = shell.run("lint", str(file)).out.splitlines()
    assert outcome[1:] == [
        "  spec.devices[0].basic: unknown field",
        "  and 3 more times, last at spec.devices[3].basic",
        "  fix: resource.k8s.io/v1 has no basic: move its fields to the device",
        "1 object: 4 errors, 0 warnings",
    ]


@pytest.mark.parametrize(
    "gpu, nic, fix",
    [
        ({"root": "x", "roots": "a", "rack": "1"}, {"roots": "b", "rack": "1"}, f"write {DRIVER}/rack"),
        (
            {"root": "x", "roots": "a"},
            {"roots": "b"},
            "remove the constraint: some lack it, and these requests have no other attribute with a common value",
        ),
        (
            {"roots": "a"},
            {"roots": "b"},
            "remove the constraint: none of these devices has it, and these requests have no other attribute with a common value",
        ),
    ],
)
def test_a_match_is_mended_only_with_an_attribute_that_can_hold(
    shell: command_line.CommandLine, gpu: dict[str, str], nic: dict[str, str], fix: str
) -> None:
    devices = [device("d0", attributes=attributes(type="gpu", **gpu)), device("d1", attributes=attributes(type="nic", **nic))]
    requests = [{"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].type == "{kind}"'}}]} for kind in ("gpu", "nic")]
    asked = claim(*requests, constraints=[{"matchAttribute": f"{DRIVER}/root"}])
    found = lint(shell, (published(*devices), CLASS, asked))
    assert {finding["fix"] for finding in found} == {fix}


def test_a_capacity_where_no_device_has_any_is_to_be_removed(shell: command_line.CommandLine) -> None:
    [found] = lint(shell, (published(device("d0")), CLASS, claim({"capacity": {"requests": {"memory": "1Gi"}}})))
    assert found["fix"] == "remove it: there is none to name"
