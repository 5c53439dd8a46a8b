"""Checks of the API server: whether it answers, which versions it serves, and whether the driver has the rights that it needs."""

import dataclasses
import http
from collections.abc import Iterator, Mapping, Sequence

from drakit import settings as values
from drakit.cli import composition
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import errors, records
from drakit.core.slices import reconcile, resource_slice
from drakit.kube import client, slices, transport
from drakit.node import timing

TOPIC = "api server"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OLDEST = (1, 34)
NEWEST = (1, 37)
_RIGHTS = "docs/reference/rbac.md lists every right"
_REFUSALS = frozenset({http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNPROCESSABLE_ENTITY})
_SEVERAL_NODES = frozenset({"tpu"})
"""Families whose devices are allocated to several nodes. They send no events."""
GPU_LABELS: Mapping[str, str | None] = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
    "nvidia.com/gpu.present": "true",
    "cloud.google.com/gke-accelerator": None,
    "kubernetes.azure.com/accelerator": "nvidia",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "drakit.dev/gpu": "true",
}
"""The node labels of which the manifests need one to place the GPU driver, with their values; None stands for any value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Right:
    """A right that the driver uses. Without one that is not ``needed``, the driver works with restrictions.

    ``name`` limits the right to one object. An empty ``namespace`` means all namespaces.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    subresource: str = ""
    needed: bool = True
    why: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def path(self) -> str:
        """Return the resource as RBAC writes it, followed by the object's name, if any."""
        path = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{path} {self.name}" if self.name else path


def rights(drivers: Mapping[str, str], mps_template: str | None = None) -> Sequence[Right]:
    """Return the rights that the manifests grant. ``drivers`` has driver names by family; ``mps_template`` is the setting of that name."""
    group = "resource.k8s.io"
    return (
        Right(group=group, resource="resourceclaims", verbs=("get",), why="to prepare claims"),
        Right(group=group, resource="resourceclaims", verbs=("list",), needed=False, why="to restore a lost journal"),
        Right(group=group, resource="resourceslices", verbs=("list", "watch", "create", "update", "delete"), why="to publish devices"),
        Right(group="", resource="nodes", verbs=("get",), why="to make the node the owner of its slices"),
        Right(
            group=group,
            resource="resourceclaims",
            subresource="status",
            verbs=("patch",),
            needed=False,
            why="to write device status into claims",
        ),
        *(
            Right(
                group=group,
                resource="resourceclaims",
                subresource="driver",
                verbs=("arbitrary-node:patch" if family in _SEVERAL_NODES else "associated-node:patch",),
                needed=False,
                why="to write device status into claims, from Kubernetes 1.36 on",
                name=name,
            )
            for family, name in drivers.items()
        ),
        *(
            (Right(group="", resource="events", verbs=("create", "patch"), needed=False, why="to report errors to users as events"),)
            if drivers.keys() - _SEVERAL_NODES
            else ()
        ),
        *(_mps_rights(mps_template) if mps_template and "gpu" in drivers else ()),
    )


def _mps_rights(template: str) -> Sequence[Right]:
    namespace, _, name = template.partition("/")
    why = "to run MPS daemons in pods"
    return (
        Right(group="", resource="pods", verbs=("create", "get", "list", "delete"), needed=False, why=why, namespace=namespace),
        Right(group="", resource="podtemplates", verbs=("get",), needed=False, why=why, name=name, namespace=namespace),
    )


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check what the driver needs of the API server."""
    try:
        api = client.connect(settings.api.kubeconfig, seconds=min(settings.api.timeout, 5.0))
    except errors.SettingsError as error:
        yield finding.failed(TOPIC, "configuration", str(error), "add --kubeconfig FILE, or run in a pod with a service account")
        return
    try:
        yield from _examine(api, settings)
    finally:
        api.close()


def _examine(api: client.Client, settings: values.Settings) -> Iterator[Finding]:
    try:
        version = api.request("GET", "/version")
    except errors.ApiError as error:
        yield finding.failed(TOPIC, api.server, str(error), _fix(error, "check the address, and that this host can reach it"))
        return
    yield _version(api.server, f"{version.get('gitVersion', 'unknown')}", (str(version.get("major", "")), str(version.get("minor", ""))))
    yield _group(api)
    drivers = _drivers(settings)
    for right in rights(drivers, settings.gpu.mps_template):
        yield _right(api, right)
    node = composition.node_name(settings) if settings.node.name else ""
    found, labels = _node(api, node)
    yield found
    if found.verdict is finding.Verdict.OK:
        # In a pod, the driver runs on this node already.
        if "gpu" in drivers and settings.mock.machine is None and not settings.node.pod_uid:
            yield of_labels(node, labels)
        for driver in drivers.values():
            yield _slice(api, driver, node)


def _drivers(settings: values.Settings) -> Mapping[str, str]:
    """Return the names of this node's drivers by family; empty if there are none, which the check of devices reports."""
    try:
        return {family.name: family.spec.driver_name for family in composition.families(settings)}
    except errors.SettingsError:
        return {}


def _version(server: str, name: str, parts: tuple[str, str]) -> Finding:
    digits = ["".join(char for char in part if char.isdigit()) for part in parts]
    if not all(digits):
        return finding.unknown(TOPIC, server, f"answers, version {name}, which is not a Kubernetes version")
    number = (int(digits[0]), int(digits[1]))
    if number < OLDEST:
        return finding.failed(TOPIC, server, f"version {name} is too old: resource.k8s.io/v1 needs 1.34", "upgrade the cluster")
    if number > NEWEST:
        return finding.warning(
            TOPIC, server, f"version {name} is newer than the versions that drakit supports", "check for a newer version of drakit"
        )
    return finding.ok(TOPIC, server, f"answers, version {name}")


def _group(api: client.Client) -> Finding:
    try:
        api.request("GET", "/apis/resource.k8s.io/v1")
    except errors.ApiError as error:
        fix = "enable the API group resource.k8s.io (it is on by default from 1.34)"
        return finding.failed(TOPIC, "resource.k8s.io/v1", str(error), _fix(error, fix))
    return finding.ok(TOPIC, "resource.k8s.io/v1", "is served")


def _right(api: client.Client, right: Right) -> Finding:
    try:
        refused = [verb for verb in right.verbs if not _may(api, right, verb)]
    except errors.ApiError as error:
        return finding.unknown(TOPIC, right.path, f"cannot check this right: {error}")
    if not refused:
        return finding.ok(TOPIC, right.path, f"may {', '.join(right.verbs)}")
    verbs = ", ".join(refused)
    fix = f"grant {verbs} on {right.path} to the driver's service account; {_RIGHTS}"
    return (finding.failed if right.needed else finding.warning)(TOPIC, right.path, f"may not {verbs}, which is needed {right.why}", fix)


def _may(api: client.Client, right: Right, verb: str) -> bool:
    asked: dict[str, records.Json] = {
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "verb": verb,
        "name": right.name,
        "namespace": right.namespace,
    }
    body: transport.Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    status = api.request("POST", REVIEWS, body=body).get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def _fix(error: errors.ApiError, otherwise: str, *, right: str = "") -> str:
    """Return the fix for an error: for a 401 the credentials, for a 403 the missing ``right``, else ``otherwise``."""
    match error.status:
        case http.HTTPStatus.UNAUTHORIZED:
            return "renew the token or the kubeconfig: the server does not accept these credentials"
        case http.HTTPStatus.FORBIDDEN:
            return (
                f"grant {right} to the driver's service account; {_RIGHTS}"
                if right
                else f"grant the service account the missing right; {_RIGHTS}"
            )
    return otherwise


def of_labels(node: str, labels: Mapping[str, records.Json]) -> Finding:
    """Check that a node with GPUs has a label by which the manifests place the GPU driver."""
    subject = f"labels of node {node}"
    placing = [key for key, value in GPU_LABELS.items() if key in labels and value in {None, labels[key]}]
    if placing:
        return finding.ok(TOPIC, subject, f"{placing[0]} places the GPU driver on this node")
    message = "the DaemonSet of the GPU driver selects nodes by labels of which this node has none, so no driver pod runs here"
    fix = f"kubectl label node {node} drakit.dev/gpu=true; docs/howto/run-on-a-cluster.md lists the other labels"
    return finding.warning(TOPIC, subject, message, fix)


def _node(api: client.Client, name: str) -> tuple[Finding, Mapping[str, records.Json]]:
    """Return the finding about the node's name, and the node's labels."""
    if not name:
        why, fix = "node.name is not set, so no device can be published", "add --node NAME, or set DRAKIT_NODE__NAME"
        return finding.failed(TOPIC, "node", why, fix), {}
    try:
        node = api.request("GET", f"/api/v1/nodes/{name}")
    except errors.ApiError as error:
        fix = _fix(error, "set node.name to the name that kubectl get nodes shows", right="get on nodes")
        return finding.failed(TOPIC, f"node {name}", str(error), fix), {}
    metadata = node.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return finding.ok(TOPIC, f"node {name}", "exists"), labels if isinstance(labels, Mapping) else {}


def _slice(api: client.Client, driver: str, node: str) -> Finding:
    """Check with a dry run that the API server and its admission policies accept a slice of this driver and node."""
    subject, pool = f"slice of {driver}", resource_slice.Pool(name=node, generation=1, count=1)
    spec = resource_slice.SliceSpec(driver=driver, node=node, pool=pool, page=resource_slice.Page())
    prefix = reconcile.generate_name(0, resource_slice.INDEX_WIDTH_MIN, driver, node)
    try:
        slices.ApiSlices(api, driver=driver, node=node, clock=timing.SystemClock()).try_create(
            resource_slice.Create(index=0, prefix=prefix, spec=spec)
        )
    except errors.ApiError as error:
        if error.status in _REFUSALS:
            fix = "change the policy or role that refuses it; docs/reference/rbac.md lists drakit's policies and rights"
            return finding.failed(TOPIC, subject, f"cannot be published: {error}", fix)
        return finding.unknown(TOPIC, subject, f"cannot check whether it can be published: {error}")
    return finding.ok(TOPIC, subject, "can be published (tried with dryRun=All)")
