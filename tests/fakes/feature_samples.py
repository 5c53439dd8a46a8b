"""The YAML samples of two public texts: KEP-5075 and the concepts page of dynamic resource allocation.

``NAME.seed.yaml`` is a sample as it stands there. What it leaves out ("...") is filled in here, in words that change nothing else.
``NAME.yaml`` is there where Kubernetes 1.36 refuses the filled sample: the mended form.
"""

import importlib
import pathlib
import re
import textwrap
from dataclasses import dataclass

from typer import testing

from drakit_cluster import manifests
from drakit_cluster.client.api import Api
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object

FOLDER = pathlib.Path(__file__).parents[1] / "scenario" / "features" / "samples"
_HEAD = "apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n"
_POOL = "  nodeName: worker-1\n  pool:\n    name: worker-1\n    generation: 1\n    resourceSliceCount: 1\n"
_CLAIM_SPEC = """\
spec:
  devices:
    requests:
    - name: nic
      exactly:
        deviceClassName: qos-aware-shared.device.x-k8s.io
"""
_DEVICE = """\
spec:
{pool}  driver: guaranteed-cni.dra.networking.x-k8s.io
  devices:
  - name: eth1
    allowMultipleAllocations: true
    capacity:
      bandwidth:
        value: "10Gi"
{policy}          default: "1Mi"
"""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample. ``fills`` are replacements of what is left out, each once; ``frame`` is put around it, indented by ``indent``.

    ``field`` and ``fix`` are what linting says of it as it stands, with its gaps filled; "" for what Kubernetes takes.
    """

    name: str
    fills: tuple[tuple[str, str], ...] = ()
    frame: str = ""
    indent: int = 0
    field: str = ""
    fix: str = ""

    @property
    def seed(self) -> str:
        """The sample as it stands in its text."""
        return (FOLDER / f"{self.name}.seed.yaml").read_text("utf-8")

    @property
    def original(self) -> str:
        """The sample with what it leaves out, and with its mistakes."""
        text = textwrap.indent(self.seed, " " * self.indent)
        for left_out, filled in self.fills:
            assert left_out in text, f"{self.name}: {left_out!r} is not in the sample"
            text = text.replace(left_out, filled, 1)
        return self.frame.format(sample=text) if self.frame else text

    @property
    def is_mended(self) -> bool:
        """Whether there is a mended form."""
        return (FOLDER / f"{self.name}.yaml").exists()

    @property
    def applied(self) -> str:
        """What Kubernetes 1.36 takes."""
        return (FOLDER / f"{self.name}.yaml").read_text("utf-8") if self.is_mended else self.original


def _headed(kind: str, name: str, rest: str = "") -> tuple[str, str]:
    return f"kind: {kind}\n...\n", _HEAD.format(kind=kind, name=name) + rest


KEP_5075 = (
    Sample(name="kep-5075-class-selector", frame=_HEAD.format(kind="DeviceClass", name="shared") + "spec:\n{sample}", indent=2),
    Sample(
        name="kep-5075-slice-with-capacity",
        fills=(_headed("ResourceSlice", "eth1-slice"), ("spec:\n", f"spec:\n{_POOL}")),
        field="spec.devices[0].basic",
        fix="move its fields to the device",
    ),
    Sample(name="kep-5075-claim-with-capacity", fills=(_headed("ResourceClaim", "nic-5gi"),)),
    Sample(
        name="kep-5075-claim-status",
        fills=(
            _headed("ResourceClaim", "nic", _CLAIM_SPEC),
            ("        ...\n", "        request: nic\n        driver: guaranteed-cni.dra.networking.x-k8s.io\n        pool: worker-1\n"),
            ("      ...\n", "      driver: guaranteed-cni.dra.networking.x-k8s.io\n      pool: worker-1\n"),
        ),
        field="is not YAML",
        fix="devices: nothing above is indented by 1: write 2",
    ),
    Sample(
        name="kep-5075-claim-with-distinct-attribute",
        fills=(_headed("ResourceClaim", "macvlans"),),
        field="spec.devices.constraints[0].distinctAttribute",
        fix="write DOMAIN/interfaceName",
    ),
    Sample(
        name="kep-5075-policy-strategy",
        fills=(("strategy: ...", "strategy: AlwaysConsumed"),),
        frame=_HEAD.format(kind="ResourceSlice", name="strategy-slice") + _DEVICE.format(pool=_POOL, policy="{sample}"),
        indent=8,
        field="spec.devices[0].capacity[bandwidth].requestPolicy.strategy",
        fix="known are default, validRange, validValues, or remove it",
    ),
)
CONCEPTS = (
    Sample(name="concepts-prioritized-list"),
    Sample(name="concepts-cat-slice", field="spec.devices[0].attributes[cat].boolean", fix="write bool"),
    Sample(name="concepts-pod-with-cats", fills=(("  ...\n", "  containers:\n  - name: main\n    image: registry.example.com/cats\n"),)),
    Sample(name="concepts-admin-access", field="spec.devices.requests[0].adminAccess", fix="label the Namespace"),
    Sample(name="concepts-extended-resource-class"),
    Sample(name="concepts-partitionable-slice", field="spec", fix="move sharedCounters to a separate slice"),
    Sample(name="concepts-consumable-slice"),
    Sample(name="concepts-bandwidth-template", field="spec.spec.devices.requests[0].exactly", fix="write one object"),
    Sample(
        name="concepts-consumed-capacity-status",
        fills=(
            (
                "kind: ResourceClaim\n...\n",
                "kind: ResourceClaim\nmetadata:\n  name: bandwidth\n"
                + _CLAIM_SPEC.replace("nic", "req-0").replace("qos-aware-shared.device.x-k8s.io", "resource.example.com"),
            ),
            (
                "        device: eth1\n",
                "        device: eth1\n        request: req-0\n        driver: dra.example.com\n        pool: pool\n",
            ),
        ),
    ),
    Sample(name="concepts-taint-rule"),
    Sample(
        name="concepts-binding-conditions-slice",
        field="spec.nodeSelector.accelerator-type",
        fix="matchExpressions: [{key: accelerator-type, operator: In, values: [high-performance]}]",
    ),
)
ALL = (*KEP_5075, *CONCEPTS)
BY_NAME = {sample.name: sample for sample in ALL}


def load(name: str) -> list[Object]:
    """Return the objects of a sample as they are applied."""
    return [one.body for one in manifests.read(name, BY_NAME[name].applied)]


def apply(api: Api, name: str, namespace: str = "default") -> list[Object]:
    """Create the objects of a sample, status and all; return them as stored."""
    return [_apply(api, json_types.copy_object(body), namespace) for body in load(name)]


def _apply(api: Api, body: Object, namespace: str) -> Object:
    resource = next(one for one in resources.SERVED if (one.api_version, one.kind) == (body["apiVersion"], body["kind"]))
    status = body.pop("status", None)
    made = api.create(resource, body, namespace=namespace if resource.namespaced else "")
    return made if status is None else api.update(resource, made | {"status": status}, subresource="status")


def is_part(part: Json, whole: Json) -> bool:
    """Say whether all that ``part`` says is in ``whole`` too."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and is_part(value, whole[name]) for name, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(is_part, part, whole))
    return part == whole


def lint(text: str, folder: pathlib.Path) -> tuple[int, str]:
    """Let ``drakit lint`` judge a sample; return its exit status and what it printed."""
    file = folder / "original.yaml"
    file.write_text(text, "utf-8")
    ran = testing.CliRunner().invoke(importlib.import_module("drakit.cli.app").app, ["lint", "-f", str(file)])
    return ran.exit_code, ran.output


def blocks_of(seed: str) -> list[str] | None:
    """Return the YAML blocks of the text that the samples are from; None where that text is not at hand."""
    file = FOLDER.parents[4] / "shared" / "seeds" / seed
    if not file.exists():
        return None
    found = re.findall(r"^ *```yaml\n(.*?)^ *```$", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]
