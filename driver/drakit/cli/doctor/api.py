"""Checks of the API server: whether it answers, which versions it serves, and whether the driver has the rights that it needs."""

import http
from collections.abc import Iterator, Mapping, Sequence

from drakit import families
from drakit import settings as values
from drakit.cli import composition
from drakit.core import errors, records
from drakit.core.advanced import Finding, Verdict
from drakit.core.slices import reconcile, resource_slice
from drakit.families import Right
from drakit.kube import access_reviews, client, slices
from drakit.node import timing

TOPIC = "api server"
OLDEST = (1, 34)
NEWEST = (1, 37)
_RIGHTS = "docs/reference/rbac.md lists every right"
_REFUSALS = frozenset({http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNPROCESSABLE_ENTITY})


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check what the driver needs of the API server."""
    try:
        api = client.connect(settings.api.kubeconfig, seconds=min(settings.api.timeout, 5.0))
    except errors.SettingsError as error:
        if settings.mock.machine and not settings.node.pod_uid and not client.is_kubeconfig_given(settings.api.kubeconfig):
            fix = "add --no-api to leave the API server out, or --kubeconfig FILE to check one"
            yield Finding.warning(TOPIC, "configuration", f"not checked: {error}", fix)
            return
        yield Finding.failed(TOPIC, "configuration", str(error), "add --kubeconfig FILE, or run in a pod with a service account")
        return
    try:
        yield from _examine(api, settings)
    finally:
        api.close()


def _examine(api: client.Client, settings: values.Settings) -> Iterator[Finding]:
    try:
        version = api.request("GET", "/version")
    except errors.ApiError as error:
        yield Finding.failed(TOPIC, api.server, str(error), _fix(error, "check the address, and that this host can reach it"))
        return
    yield version_finding(api.server, *version_of(version))
    yield _group(api)
    served = _served(settings)
    own = (right for family in served for right in families.rights(family.kind, family.options))
    for right in dict.fromkeys((*families.EVERY_DRIVERS, *own)):
        yield _right(api, right)
    node = composition.node_name(settings) if settings.node.name else ""
    found, labels = _node(api, node)
    yield found
    if found.verdict is Verdict.OK:
        # In a pod, the driver runs on this node already.
        for family in served if settings.mock.machine is None and not settings.node.pod_uid else ():
            if placing := family.kind.placing_labels():
                yield of_labels(node, labels, family.name, placing)
        for family in served:
            yield _slice(api, family.spec.driver_name, node)


def _served(settings: values.Settings) -> Sequence[composition.NodeFamily]:
    """Return this node's families; empty if there are none, which the check of devices reports."""
    try:
        return composition.families(settings)
    except errors.SettingsError:
        return ()


def version_of(answer: Mapping[str, records.Json]) -> tuple[str, tuple[int, int] | None]:
    """Return the name and the numbers of a server's version. The numbers are None for a version that is not one of Kubernetes."""
    digits = ["".join(char for char in str(answer.get(part, "")) if char.isdigit()) for part in ("major", "minor")]
    return f"{answer.get('gitVersion', 'unknown')}", (int(digits[0]), int(digits[1])) if all(digits) else None


def version_finding(server: str, name: str, number: tuple[int, int] | None) -> Finding:
    """Return whether drakit supports a server's version."""
    if number is None:
        return Finding.unknown(TOPIC, server, f"answers, version {name}, which is not a Kubernetes version")
    if number < OLDEST:
        return Finding.failed(TOPIC, server, f"version {name} is too old: resource.k8s.io/v1 needs 1.34", "upgrade the cluster")
    if number > NEWEST:
        return Finding.warning(
            TOPIC, server, f"version {name} is newer than the versions that drakit supports", "check for a newer version of drakit"
        )
    return Finding.ok(TOPIC, server, f"answers, version {name}")


def _group(api: client.Client) -> Finding:
    try:
        api.request("GET", "/apis/resource.k8s.io/v1")
    except errors.ApiError as error:
        fix = "enable the API group resource.k8s.io (it is on by default from 1.34)"
        return Finding.failed(TOPIC, "resource.k8s.io/v1", str(error), _fix(error, fix))
    return Finding.ok(TOPIC, "resource.k8s.io/v1", "is served")


def _right(api: client.Client, right: Right) -> Finding:
    try:
        refused = [verb for verb in right.verbs if not access_reviews.may(api, right.attributes(verb))]
    except errors.ApiError as error:
        return Finding.unknown(TOPIC, right.path, f"cannot check this right: {error}")
    if not refused:
        return Finding.ok(TOPIC, right.path, f"may {', '.join(right.verbs)}")
    verbs = ", ".join(refused)
    fix = f"grant {verbs} on {right.path} to the driver's service account; {_RIGHTS}"
    return (Finding.failed if right.needed else Finding.warning)(TOPIC, right.path, f"may not {verbs}, which is needed {right.why}", fix)


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


def of_labels(node: str, labels: Mapping[str, records.Json], family: str, placing: Mapping[str, str | None]) -> Finding:
    """Check that a node with the family's hardware has a label by which the manifests place its driver."""
    subject = f"labels of node {node}"
    present = [key for key, value in placing.items() if key in labels and value in {None, labels[key]}]
    if present:
        return Finding.ok(TOPIC, subject, f"{present[0]} places the driver of {family} on this node")
    message = f"the DaemonSet of the driver of {family} selects nodes by labels of which this node has none, so no driver pod runs here"
    fix = f"kubectl label node {node} drakit.dev/{family}=true; docs/howto/run-on-a-cluster.md lists the other labels"
    return Finding.warning(TOPIC, subject, message, fix)


def _node(api: client.Client, name: str) -> tuple[Finding, Mapping[str, records.Json]]:
    """Return the finding about the node's name, and the node's labels."""
    if not name:
        why, fix = "node.name is not set, so no device can be published", "add --node NAME, or set DRAKIT_NODE__NAME"
        return Finding.failed(TOPIC, "node", why, fix), {}
    try:
        node = api.request("GET", f"/api/v1/nodes/{name}")
    except errors.ApiError as error:
        fix = _fix(error, "set node.name to the name that kubectl get nodes shows", right="get on nodes")
        return Finding.failed(TOPIC, f"node {name}", str(error), fix), {}
    metadata = node.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return Finding.ok(TOPIC, f"node {name}", "exists"), labels if isinstance(labels, Mapping) else {}


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
            return Finding.failed(TOPIC, subject, f"cannot be published: {error}", fix)
        return Finding.unknown(TOPIC, subject, f"cannot check whether it can be published: {error}")
    return Finding.ok(TOPIC, subject, "can be published (tried with dryRun=All)")
