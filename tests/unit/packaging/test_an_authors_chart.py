"""The Helm chart that ``drakit new`` writes renders the project's own manifests, and its schema knows every value to the leaf."""

import copy
import functools
import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fakes import helm_values, kube_schema, manifests

pytestmark = [
    manifests.needs_kubectl,
    pytest.mark.skipif(shutil.which("helm") is None, reason="helm renders the chart and is not installed"),
]
CHART = "examples/hello/deploy"
PROJECT = "hello-driver"
HELM_LABELS = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}
VALUES: dict[str, Any] = yaml.load((manifests.ROOT / CHART / "values.yaml").read_text(), Loader=yaml.CSafeLoader)
WEBHOOK = ("--set", "webhook.enabled=true")


def helm(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["helm", *arguments], cwd=manifests.ROOT, input=text, capture_output=True, text=True, check=False)


@functools.cache
def template(*arguments: str, namespace: str = PROJECT) -> list[Any]:
    run = helm("template", PROJECT, CHART, "--namespace", namespace, *arguments)
    assert run.returncode == 0, run.stderr
    return [item for item in yaml.load_all(run.stdout, Loader=yaml.CSafeLoader) if item is not None]


def rendered(values: object) -> "subprocess.CompletedProcess[str]":
    return helm("template", PROJECT, CHART, "--values", "-", text=json.dumps(values))


def by_name(objects: list[Any]) -> dict[tuple[str, str], Any]:
    """Return objects by kind and name, without the labels that only Helm sets, and without the namespace, which Helm does not create."""
    for item in (objects := copy.deepcopy(objects)):
        item["metadata"]["labels"] = {key: text for key, text in item["metadata"].get("labels", {}).items() if key not in HELM_LABELS}
    return {(item["kind"], item["metadata"]["name"]): item for item in objects if item["kind"] != "Namespace"}


def pod_of(objects: list[Any], kind: str) -> Any:
    (found,) = [item for item in objects if item["kind"] == kind]
    return found["spec"]["template"]["spec"]


def test_the_chart_renders_the_objects_of_the_kustomization() -> None:
    assert by_name(template()) == by_name(manifests.example("hello"))
    assert by_name(template(*WEBHOOK)) == by_name(manifests.example_with_webhook("hello"))


def test_every_object_is_what_the_api_server_takes() -> None:
    for item in template(*WEBHOOK):
        kube_schema.validate(item)
    linted = helm("lint", "--strict", CHART)
    assert linted.returncode == 0, linted.stdout


def test_the_namespace_of_the_release_is_the_namespace_of_every_reference() -> None:
    text = yaml.safe_dump_all(template(*WEBHOOK, namespace="elsewhere"))
    assert "elsewhere" in text
    assert not re.search(f"namespace: {PROJECT}$|serviceaccount:{PROJECT}:", text, re.MULTILINE)
    (policy,) = [item for item in template(namespace="elsewhere") if item["kind"] == "ValidatingAdmissionPolicy"]
    assert policy["spec"]["matchConditions"][0]["expression"].endswith(f'"system:serviceaccount:elsewhere:{PROJECT}"')


def test_every_value_reaches_the_pods() -> None:
    values = {
        "image": {"repository": "registry.example.com:5000/hello", "tag": "2.0.0"},
        "imagePullSecrets": ["pull"],
        "env": {"HELLO_FOLDER": "/boards", "DRAKIT_LOG__FORMAT": "text", "DRAKIT_PUBLISH__RESCAN": 5},
        "nodeSelector": {"example.com/boards": "true"},
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "webhook": {"enabled": True, "caBundle": "YQ=="},
    }
    assert values.keys() == VALUES.keys()
    run = rendered(values)
    assert run.returncode == 0, run.stderr
    objects = list(yaml.load_all(run.stdout, Loader=yaml.CSafeLoader))
    pod, hook = pod_of(objects, "DaemonSet"), pod_of(objects, "Deployment")
    (container,), plain = pod["containers"], pod_of(template(), "DaemonSet")["containers"][0]
    assert {one["containers"][0]["image"] for one in (pod, hook)} == {"registry.example.com:5000/hello:2.0.0"}
    assert [one["imagePullSecrets"] for one in (pod, hook)] == [[{"name": "pull"}]] * 2
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert len(env) == len(container["env"]), "no variable is set twice"
    assert env == {entry["name"]: entry.get("value") for entry in plain["env"]} | {
        "HELLO_FOLDER": "/boards",
        "DRAKIT_LOG__FORMAT": "text",
        "DRAKIT_PUBLISH__RESCAN": "5",
    }
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "example.com/boards": "true"}
    assert pod["tolerations"] == values["tolerations"]
    assert container["resources"] == {"requests": plain["resources"]["requests"], "limits": {"memory": "1Gi"}}
    (configuration,) = [item for item in objects if item["kind"] == "ValidatingWebhookConfiguration"]
    assert {entry["clientConfig"]["caBundle"] for entry in configuration["webhooks"]} == {"YQ=="}


def at(path: str, value: object) -> object:
    """Return values with this one at a path such as ``image.tag``, where ``[]`` is the only element of a list."""
    for step in reversed(path.split(".")):
        value = {step.removesuffix("[]"): [value] if step.endswith("[]") else value}
    return value


WRONG: list[tuple[str, object]] = [
    *((f"{path}mispelt", "x") for path in ("", "image.", "tolerations[].", "resources.", "webhook.")),
    ("image", "hello"),
    ("image.repository", ""),
    ("image.repository", "Hello World"),
    ("image.repository", "hello:0.1"),
    ("image.tag", "a b"),
    ("image.tag", 1),
    ("imagePullSecrets[]", {"name": "a"}),
    ("imagePullSecrets[]", "A B"),
    ("imagePullSecrets", "a"),
    ("env.FOLDER", "/x"),
    ("env.HELLO_FOLDER", ["/x"]),
    ("env.HELLO_FOLDER", {"value": "/x"}),
    ("nodeSelector.a", 1),
    ("nodeSelector", ["a"]),
    ("tolerations", {}),
    ("tolerations[].operator", "Exist"),
    ("tolerations[].effect", "noschedule"),
    ("tolerations[].key", 1),
    ("tolerations[].value", True),
    ("tolerations[].tolerationSeconds", "1"),
    ("resources.limits.memory", "1 Gi"),
    ("resources.requests.memory", True),
    ("resources.requests.Memory", 1),
    ("resources.limits", "1Gi"),
    ("webhook.enabled", "yes"),
    ("webhook.caBundle", "-----BEGIN CERTIFICATE-----"),
    ("webhook", True),
]


def merged(values: Any, more: Any) -> Any:
    """Return values with more of them, at other paths."""
    if isinstance(values, list):
        return [merged(*values, *more)]
    return {**values, **{key: merged(values[key], value) if key in values else value for key, value in more.items()}}


@functools.cache
def refusals() -> dict[int, str]:
    """Return what helm says to each wrong value, by its number. It gets as many of them at once as are in different objects."""
    said: dict[int, str] = {}
    for numbers in helm_values.apart([path for path, _ in WRONG]):
        run = rendered(functools.reduce(merged, (at(*WRONG[number]) for number in numbers)))
        assert run.returncode == 1
        assert "values don't meet the specifications of the schema" in run.stderr
        said |= dict.fromkeys(numbers, run.stderr)
    return said


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[path for path, _ in WRONG])
def test_a_wrong_value_is_refused_by_its_path(number: int) -> None:
    place, _, name = ("/" + WRONG[number][0].replace("[]", "/0").replace(".", "/")).rpartition("/")
    # A name that is not allowed is reported at the object that has it.
    lines = refusals()[number].splitlines()
    assert [line for line in lines if f"at '{place}/{name}'" in line or (f"at '{place}'" in line and f"'{name}'" in line)], lines


def leaves(schema: Any, definitions: Any) -> Iterator[Any]:
    """Yield every schema below one, without those that have parts."""
    schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if schema.get("type") == "object":
        assert schema.get("additionalProperties") is False or "type" in schema["additionalProperties"], "an unknown key is refused"
        parts = [*schema.get("properties", {}).values(), *schema.get("patternProperties", {}).values()]
        for part in (*parts, *([schema["additionalProperties"]] if schema["additionalProperties"] else [])):
            yield from leaves(part, definitions)
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], definitions)
    else:
        yield schema


def test_the_schema_knows_the_type_of_every_leaf() -> None:
    schema = json.loads((manifests.ROOT / CHART / "values.schema.json").read_text())
    found = list(leaves(schema, schema["definitions"]))
    assert len(found) > 10
    assert [leaf for leaf in found if "type" not in leaf and "enum" not in leaf] == []
    assert schema["properties"].keys() == VALUES.keys()


def test_a_manifest_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    shutil.copytree(manifests.ROOT / CHART, tmp_path / "deploy")
    (tmp_path / "deploy" / "policy.yaml").unlink()
    run = helm("template", PROJECT, str(tmp_path / "deploy"))
    assert run.returncode == 1
    assert "policy.yaml is missing beside Chart.yaml" in run.stderr


def test_the_rights_of_the_chart_are_those_of_the_manifest(tmp_path: pathlib.Path) -> None:
    shutil.copytree(manifests.ROOT / CHART, tmp_path / "deploy")
    rbac = tmp_path / "deploy" / "rbac.yaml"
    rbac.write_text(rbac.read_text().replace("    verbs: [get]\n", "    verbs: [get, list, watch]\n", 1))
    run = helm("template", PROJECT, str(tmp_path / "deploy"))
    (role,) = [
        item
        for item in yaml.load_all(run.stdout, Loader=yaml.CSafeLoader)
        if item["kind"] == "ClusterRole" and item["metadata"]["name"] == PROJECT
    ]
    assert role["rules"][0]["verbs"] == ["get", "list", "watch"], "a Binder's rights are written once"


def test_the_package_of_the_chart_has_no_sample(tmp_path: pathlib.Path) -> None:
    packed = helm("package", CHART, "--destination", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    (package,) = tmp_path.iterdir()
    listed = subprocess.run(["tar", "-tzf", package], capture_output=True, text=True, check=True).stdout.split()
    assert f"{PROJECT}/rbac.yaml" in listed
    assert not {f"{PROJECT}/{name}" for name in ("sample.yaml", "kustomization.yaml", "namespace.yaml")} & set(listed)
    assert helm("template", PROJECT, str(package), "--namespace", PROJECT).stdout.count("\nkind: ") == len(template())
