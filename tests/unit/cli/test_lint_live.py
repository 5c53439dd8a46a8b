"""``drakit lint --live`` checks the objects of a cluster, and reads nothing that is secret."""

import json

import pytest

from drakit_cluster.objects import features
from drakit_cluster.objects.json_types import Object
from drakit_tools import live_lint
from fakes import command_line, stub_api
from fakes.stub_api import StubApi

SECRET = "swordfish"  # noqa: S105 # It is none: the output is searched for it.
TIME = "2026-11-29T08:00:00Z"
INCOMPLETE = "is 2, but the cluster has 1 slice of pool x.example.com/n: no device of an incomplete pool is allocated"
CLASS: Object = {
    "metadata": {"name": "x", "uid": "x"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "x.example.com"'}}]},
}


def request(device_class: str) -> Object:
    return {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": device_class}}]}}


def metadata(name: str, *, kind: str = "", owner: str = "") -> Object:
    made: Object = {"name": name, "namespace": "demo", "uid": name, "annotations": {"last-applied": SECRET}, "deletionTimestamp": TIME}
    owners: list[Object] = [{"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": True}] if owner else []
    return {**made, "ownerReferences": [*owners]}


def spec(template: str, **more: object) -> dict[str, object]:
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}, "newField": 1}
    container |= {"env": [{"name": "PASSWORD", "value": SECRET}], "args": [SECRET], "command": SECRET}
    return {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}], **more}


def template(name: str, device_class: str) -> Object:
    return {"metadata": metadata(name), "spec": {"spec": request(device_class)}}


def workload(name: str, pod: object) -> dict[str, object]:
    labels = {"app": name, "env": "prod"}
    template = {"metadata": {"labels": labels, "annotations": {"a": SECRET}}, "spec": pod}
    return {"metadata": metadata(name), "spec": {"selector": {"matchLabels": labels}, "template": template}}


OBJECTS: object = {
    "nodes": [{"metadata": {"name": "n", "uid": "n"}}],
    "resourceslices": [
        {
            "metadata": {**metadata("s", kind="Node", owner="n"), "namespace": ""},
            "spec": {"driver": "x.example.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}},
        }
    ],
    "deviceclasses": [CLASS],
    "resourceclaims": [{"metadata": metadata("p-gpu", kind="Pod", owner="p"), "spec": request("gone")}],
    "resourceclaimtemplates": [template("good", "x"), template("bad", "y")],
    "pods": [
        {"metadata": metadata("p"), "spec": spec("lost")},
        {"metadata": metadata("web-1", kind="Deployment", owner="web"), "spec": spec("lost")},
        {"metadata": metadata("plain"), "spec": {"containers": [{"name": "C_", "image": "i"}]}},
        {"metadata": metadata("ended"), "spec": spec("lost"), "status": {"phase": "Succeeded"}},
    ],
    "jobs": [{**workload("over", spec("lost")), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}],
    "deployments": [workload("web", spec("missing", restartPolicy="Never")), workload("fine", spec("good"))],
    "secrets": [{"metadata": metadata("s"), "data": {"a": SECRET}}],
}


def lint(shell: command_line.CommandLine, api: StubApi, *options: str) -> command_line.Result:
    with stub_api.serving(api, shell.folder) as kubeconfig:
        return shell.run("lint", "--kubeconfig", str(kubeconfig), *options)


def test_mistakes_of_a_clusters_objects_are_found_once_and_without_secrets(shell: command_line.CommandLine) -> None:
    api = StubApi(version="1.36", objects=OBJECTS)  # type: ignore[arg-type] # JSON that is written as Python's.
    ran = lint(shell, api, "-o", "json")
    assert ran.status == 1
    assert {(one["object"], one["field"], one["message"]) for one in json.loads(ran.out)} == {
        ("ResourceClaimTemplate demo/bad", "spec.spec.devices.requests[0].exactly.deviceClassName", "DeviceClass y is not in the cluster"),
        ("ResourceSlice s", "spec.pool.resourceSliceCount", INCOMPLETE),
        ("Pod demo/p", "spec.resourceClaims[0].resourceClaimTemplateName", "ResourceClaimTemplate demo/lost is not in the cluster"),
        (
            "Deployment demo/web",
            "spec.template.spec.resourceClaims[0].resourceClaimTemplateName",
            "ResourceClaimTemplate demo/missing is not in the cluster",
        ),
        ("Deployment demo/web", "spec.template.spec.restartPolicy", 'Unsupported value: "Never": supported values: "Always"'),
    }
    assert {(one["file"], one["line"], tuple(one["kubernetes"])) for one in json.loads(ran.out)} == {(None, None, ("1.36",))}
    shown = lint(shell, api)
    assert "error: Deployment demo/web\n" in shown.out
    assert ("; or create it\n" in shown.out, "these files" in shown.out, "to the files" in shown.out) == (True, False, False)
    assert SECRET not in ran.out + ran.err + shown.out + shown.err


def test_what_may_be_secret_is_not_among_what_is_checked(shell: command_line.CommandLine) -> None:
    with stub_api.serving(StubApi(version="1.36", objects=OBJECTS), shell.folder) as kubeconfig:  # type: ignore[arg-type] # As above.
        cluster = live_lint.read(kubeconfig, [], [features.FeatureGates()], ())
    bodies = json.dumps([document.body for document in cluster.documents])
    assert ("demo" in bodies, SECRET in bodies) == (True, False)


@pytest.mark.parametrize("kind, plural", [("ResourceClaimTemplate", "resourceclaimtemplates"), ("DeviceClass", "deviceclasses")])
def test_what_may_not_be_listed_is_not_called_missing(shell: command_line.CommandLine, kind: str, plural: str) -> None:
    file = shell.folder / "class.json"
    file.write_text(json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **CLASS}))
    objects: dict[str, object] = OBJECTS  # type: ignore[assignment] # JSON that is written as Python's.
    assert f"{kind} " in lint(shell, StubApi(version="1.36", objects=objects), str(file)).out  # type: ignore[arg-type]
    ran = lint(shell, StubApi(version="1.36", objects=objects, statuses={plural: 403}), str(file))  # type: ignore[arg-type]
    assert f"{plural} may not be listed" in " ".join(ran.err.split())
    assert f"{kind} " not in ran.out.replace(f"error: {kind}", "")


def test_a_long_list_is_read_page_by_page(shell: command_line.CommandLine) -> None:
    objects = {"deviceclasses": [{**CLASS, "metadata": {"name": f"x-{number}", "uid": f"x-{number}"}} for number in range(1001)]}
    ran = lint(shell, StubApi(version="1.37", objects=objects))  # type: ignore[arg-type]
    assert ran.out.splitlines()[-1] == "1001 objects: 0 errors, 0 warnings"


def test_kinds_that_may_not_be_listed_are_named_and_the_others_are_checked(shell: command_line.CommandLine) -> None:
    objects: dict[str, object] = {"resourceclaimtemplates": [template("bad", "y")], "deviceclasses": [CLASS]}
    ran = lint(shell, StubApi(version="1.37", objects=objects, statuses={"pods": 403, "resourceslices": 403}))  # type: ignore[arg-type]
    assert "DeviceClass y is not in the cluster" in ran.out
    notes = " ".join(ran.err.split())
    for plural, name in (("pods", "pods"), ("resourceslices", "resourceslices.resource.k8s.io")):
        refused = f"{plural} may not be listed (403) and are not considered, so they are not checked"
        assert f"{refused}: allow this user to list {name}" in notes


@pytest.mark.parametrize("options", [("--live",), ("--live", "--kubernetes", "1.34,1.37")])
def test_an_object_of_a_file_replaces_that_of_the_cluster(shell: command_line.CommandLine, options: tuple[str, ...]) -> None:
    file = shell.folder / "file.json"
    file.write_text(json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", **template("bad", "x")}))
    objects: dict[str, object] = {"resourceclaimtemplates": [template("bad", "y")], "deviceclasses": [CLASS]}
    ran = lint(shell, StubApi(version="1.37", objects=objects), str(file), *options)  # type: ignore[arg-type]
    assert (ran.status, ran.out.splitlines()[0]) == (0, "2 objects: 0 errors, 0 warnings"), ran.out
    assert "ResourceClaimTemplate demo/bad is that of the files, not that of the cluster" in ran.err


def test_a_file_without_a_namespace_replaces_an_object_of_the_default_one(shell: command_line.CommandLine) -> None:
    made = workload("web", spec("good"))
    file = shell.folder / "file.json"
    file.write_text(json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", **made, "metadata": {"name": "web"}}))
    objects = {"deployments": [{**made, "metadata": {**metadata("web"), "namespace": "default"}}]}
    ran = lint(shell, StubApi(version="1.37", objects=objects), str(file))  # type: ignore[arg-type]
    assert "Deployment default/web is that of the files, not that of the cluster" in ran.err
