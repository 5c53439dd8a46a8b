"""A mistake in a template has the file and the line at which it is, in lint and in allocate, also where pods are made of the template."""

import json

import pytest

from fakes import command_line

DEPLOYMENT = """# a comment
apiVersion: v1
kind: Service
metadata: {name: s}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      hostNetwork: false
      containers:
      - name: c
        image: x
        resources:
          limits:
            cpu: 1
          claims:
          - name: g
      resourceClaims:
      - name: g
        resourceClaimTemplateName: t
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: t
spec:
  spec:
    devices:
      requests:
      - name: r
        exactly:
          deviceClassName: nic.drakit.dev
          count: 1
"""


def broken(shell: command_line.CommandLine, old: str, new: str) -> tuple[str, int]:
    """Return the file with one change, and the line of the change."""
    assert DEPLOYMENT.count(old) == 1
    file = shell.folder / "web.yaml"
    file.write_text(DEPLOYMENT.replace(old, new))
    return str(file), DEPLOYMENT[: DEPLOYMENT.index(old)].count("\n") + 1


REFUSED = {
    "a field of the pod": ("hostNetwork: false", "hostNetwork: 7", "Deployment web: spec.template.spec.hostNetwork"),
    "a container's name": ("name: c\n", "name: C_x\n", "Deployment web: spec.template.spec.containers[0].name"),
    "an entry without a claim": (
        "          - name: g\n",
        "          - name: h\n",
        "Deployment web: spec.template.spec.containers[0].resources.claims[0].name",
    ),
    "a claim template": ("count: 1", "count: 0", "ResourceClaimTemplate default/t: spec.spec.devices.requests[0].exactly.count"),
}


@pytest.mark.parametrize("old, new, where", REFUSED.values(), ids=REFUSED)
def test_a_mistake_in_a_template_has_its_line(shell: command_line.CommandLine, old: str, new: str, where: str) -> None:
    file, line = broken(shell, old, new)
    found = json.loads(shell.run("lint", file, "-o", "json").out)
    assert (line, where.rpartition(" ")[2]) in {(finding["line"], finding["field"]) for finding in found}
    ran = shell.run("allocate", file)
    error = " ".join(ran.err.split())
    assert (ran.status, f"{file}:{line}, {where}: " in error, "see drakit lint" in error) == (2, True, False), error


def test_an_unknown_class_of_an_extended_resource_has_the_line_of_the_limit(shell: command_line.CommandLine) -> None:
    file, line = broken(shell, "cpu: 1", "deviceclass.resource.kubernetes.io/foo: 1")
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "fog"}, "spec": {}}
    (finding,) = json.loads(shell.run("lint", file, shell.write("class", device_class), "-o", "json").out)
    field = "spec.template.spec.containers[0].resources.limits[deviceclass.resource.kubernetes.io/foo]"
    assert (finding["line"], finding["field"], finding["fix"]) == (line, field, "write fog")


def test_requests_beside_devices_are_to_be_moved_into_them(shell: command_line.CommandLine) -> None:
    file, line = broken(shell, "    devices:\n      requests:", "    devices:\n    requests:")
    (finding,) = json.loads(shell.run("lint", file, "-o", "json").out)
    assert (finding["line"], finding["field"], finding["fix"]) == (line + 1, "spec.spec.requests", "move it into spec.spec.devices")


def test_a_claim_that_requests_nothing_is_a_warning_and_has_a_row(shell: command_line.CommandLine) -> None:
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "none"}, "spec": {"devices": {}}}
    file = shell.write("claim", claim)
    (finding,) = json.loads(shell.run("lint", file, "-o", "json").out)
    assert (finding["severity"], finding["message"], finding["fix"]) == (
        "warning",
        "requests no devices, so its pods get none",
        "add spec.devices.requests",
    )
    assert "requests no devices" in shell.run("allocate", file).out


@pytest.mark.parametrize("kind, field", [("ResourceClaimTemplate", "spec.devices"), ("ResourceClaim", "spec.spec")])
def test_a_claim_whose_requests_are_in_the_wrong_place_has_no_second_finding(
    shell: command_line.CommandLine, kind: str, field: str
) -> None:
    devices = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    spec = {"spec": devices, "devices": {}} if kind == "ResourceClaim" else {"spec": {}, **devices}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "c"}, "spec": spec}
    (finding,) = json.loads(shell.run("lint", shell.write("claim", body), "-o", "json").out)
    assert (finding["severity"], finding["field"], finding["message"]) == ("error", field, "unknown field")


def test_a_template_of_another_language_is_no_reason_to_name_helm(shell: command_line.CommandLine) -> None:
    file = shell.folder / "rule.yaml"
    file.write_text('kind: PrometheusRule\nsummary: "{{ $labels.node }}"\nspec: [\n')
    for command in ("lint", "allocate"):
        ran = shell.run(command, str(file))
        assert (ran.status, "is not YAML" in ran.err, "Helm" in ran.err) == (2, True, False), ran.err


@pytest.mark.parametrize("text", ["{{- if .Values.gpu }}\nkind: Pod\n{{- end }}\n", 'kind: Pod\nmetadata:\n  name: {{ include "x" . }}\n'])
def test_a_template_of_helm_is_named_as_one(shell: command_line.CommandLine, text: str) -> None:
    file = shell.folder / "pod.yaml"
    file.write_text(text)
    for command in ("lint", "allocate"):
        ran = shell.run(command, str(file))
        assert ran.status == 2
        assert "if this is a template of Helm, check what helm template CHART writes" in " ".join(ran.err.split())


def test_a_folder_may_have_charts_and_files_of_others_which_are_named(shell: command_line.CommandLine) -> None:
    chart, folder = shell.folder / "all" / "deploy", shell.folder / "all"
    (chart / "templates").mkdir(parents=True)
    (chart / "templates" / "objects.yaml").write_text("kind: {{ .Values.kind }}\n")
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: c\nversion: 1.0.0\n")
    only_chart = shell.run("lint", str(chart))
    assert (only_chart.status, "is a Helm chart; check what it makes: helm template" in only_chart.err) == (2, True), only_chart.err
    for name in ("values.yaml", "values.schema.json"):
        (chart / name).write_text('{"image": "x"}\n')
    (chart / "web.yaml").write_text(DEPLOYMENT)
    for name in ("compose.yaml", "patch.yaml"):
        (folder / name).write_text("- op: remove\n" if name == "patch.yaml" else "services: {}\n")
    ran = shell.run("lint", str(folder), "-o", "json")
    said = " ".join(ran.err.split())
    assert (ran.status, ran.out) == (0, "[]\n")
    assert f"skipped: templates and values of the Helm chart {chart}; check what helm template {chart} writes" in said
    assert f"skipped: 2 files without Kubernetes objects: {folder}/compose.yaml, {folder}/patch.yaml" in said
    (folder / "claim.yaml").write_text("apiVersion: resource.k8s.io/v1\nmetadata: {name: c}\n")
    for given in (folder, folder / "compose.yaml"):
        refused = shell.run("lint", str(given))
        assert (refused.status, "an object needs apiVersion and kind, and this has no" in refused.err) == (2, True), refused.err
