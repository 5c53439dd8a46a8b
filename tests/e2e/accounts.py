"""The accounts, rights and policies of the overlays under names of their own, so that an installed drakit is not disturbed, and tokens of them."""

import collections
import contextlib
import copy
import dataclasses
import http
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from drakit.core import errors
from drakit.core.records import thaw
from drakit.kube import client

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = "drakit-system"
NAMESPACE = "drakit-rights"
MPS_TEMPLATE = "drakit-mps"
FOLDERS = ("daemonset/overlays/mock", "examples/tpu/deploy")
_WORDS = {"Role": "roles", "ClusterRole": "clusterroles", "RoleBinding": "rolebindings", "ClusterRoleBinding": "clusterrolebindings"}
_POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_KINDS = ("Namespace", "ServiceAccount", "PodTemplate", *_WORDS, *_POLICIES)
_SECONDS = 30.0
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def shipped() -> list[dict[str, Any]]:
    """Return accounts, roles and bindings of the overlay mock and of examples/tpu, and the policies about slices, as kubectl renders them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in FOLDERS:
        ran = subprocess.run(["kubectl", "kustomize", str(ROOT / folder)], capture_output=True, text=True, check=True)
        items = [item for item in yaml.safe_load_all(ran.stdout) if item["kind"] in _KINDS]
        found |= {(item["kind"], item["metadata"]["name"]): item for item in items}
    names = {name for kind, name in found if kind == "ServiceAccount"}
    # Others are about pods of the driver: they admit MPS daemons of its own image alone, and no pod of these checks has one.
    return [item for (kind, name), item in found.items() if kind not in _POLICIES or name in names]


def renamed(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects in another namespace; those of the cluster are named after it."""
    changed: list[dict[str, Any]] = json.loads(json.dumps(items).replace(SHIPPED, NAMESPACE))
    for item in changed:
        if item["kind"] in ("ClusterRole", "ClusterRoleBinding", *_POLICIES):
            item["metadata"]["name"] = own(item["metadata"]["name"])
        if item["kind"] == "ClusterRoleBinding":
            item["roleRef"]["name"] = own(item["roleRef"]["name"])
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            item["spec"]["policyName"] = own(item["spec"]["policyName"])
    return changed


def own(name: str) -> str:
    """Return the name under which these checks install an object of the cluster."""
    return f"{NAMESPACE}-{name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """The API server under test, as its administrator uses it."""

    kubeconfig: pathlib.Path
    connection: client.Client

    @classmethod
    def of(cls, kubeconfig: pathlib.Path) -> "Server":
        """Return the server of a kubeconfig."""
        return cls(kubeconfig=kubeconfig, connection=client.connect(kubeconfig, seconds=30))

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints; raise AssertionError with its words where it fails."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        ran = subprocess.run(["kubectl", *words], env=environment, input=stdin, capture_output=True, text=True, check=False)
        assert not check or ran.returncode == 0, f"kubectl {' '.join(words)}: {ran.stderr}"
        return ran.stdout

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """Return the answer to one request; raise ApiError."""
        return thaw(self.connection.request(method, path, body=body, query=query))  # type: ignore[return-value]

    def is_there(self, path: str, item: Mapping[str, Any]) -> bool:
        """Create an object unless it exists, and return whether it exists now; an account that is new to admission is refused at first."""
        try:
            self.ask("POST", path, item)
        except errors.ApiError as error:
            return error.status == http.HTTPStatus.CONFLICT
        return True

    def apply(self, items: list[dict[str, Any]]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(items))

    def remove(self, items: list[dict[str, Any]]) -> None:
        """Delete objects and wait until they are gone."""
        self.kubectl("delete", "--ignore-not-found", "--wait", "-f", "-", stdin=yaml.safe_dump_all(items))


def wait(what: str, probe: Callable[[], Any], *, seconds: float = _SECONDS) -> Any:
    """Return what ``probe`` returns once that is true; raise AssertionError when it does not come in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {seconds:g} s")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installed:
    """What was installed; tokens and kubeconfigs go into ``folder``."""

    server: Server
    folder: pathlib.Path
    items: list[dict[str, Any]]

    def token(self, account: str, bound: Mapping[str, str] | None = None) -> pathlib.Path:
        """Return a kubeconfig with a new token of an account, bound to an object unless ``bound`` is None."""
        spec: dict[str, Any] = {"spec": {"expirationSeconds": 7200} | ({"boundObjectRef": dict(bound)} if bound else {})}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        made = self.server.ask("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **spec})
        found = yaml.safe_load(self.server.kubectl("config", "view", "--raw", "--minify", "--flatten"))
        found["users"] = [{"name": "account", "user": {"token": made["status"]["token"]}}]
        found["contexts"][0]["context"]["user"] = "account"
        file = self.folder / f"{account}-{(bound or {}).get('name', 'unbound')}.kubeconfig"
        file.write_text(yaml.safe_dump(found))
        file.chmod(0o600)
        return file

    def of_pod(self, account: str, node: str) -> pathlib.Path:
        """Return a kubeconfig with the token that a pod of an account has on a node. Nothing runs in the pod."""
        name = f"{account}-{node}"
        spec = {"serviceAccountName": account, "nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        wait(f"pod {name}", lambda: self.server.is_there(f"/api/v1/namespaces/{NAMESPACE}/pods", pod))
        return self.token(account, {"apiVersion": "v1", "kind": "Pod", "name": name})

    def roles(self) -> list[dict[str, Any]]:
        """Return the roles that are installed."""
        return [item for item in self.items if item["kind"] in ("Role", "ClusterRole")]

    def account_of(self, role: str) -> str:
        """Return the account that a role is bound to."""
        (found,) = {
            subject["name"]
            for item in self.items
            if item["kind"].endswith("RoleBinding") and item["roleRef"]["name"] == role
            for subject in item["subjects"]
        }
        return str(found)

    @contextlib.contextmanager
    def without(self, role: dict[str, Any], rule: int, verb: str) -> Iterator[None]:
        """Take one verb of one rule away, until the block ends."""
        lessened = copy.deepcopy(role)
        verbs = lessened["rules"][rule]["verbs"]
        verbs.remove(verb)
        if not verbs:
            del lessened["rules"][rule]
        self._replace(lessened)
        try:
            yield
        finally:
            self._replace(role)

    def _replace(self, role: dict[str, Any]) -> None:
        place = f"/namespaces/{NAMESPACE}" if role["kind"] == "Role" else ""
        path = f"{_RBAC}{place}/{_WORDS[role['kind']]}/{role['metadata']['name']}"
        self.server.ask("PUT", path, role)


def may(kubeconfig: pathlib.Path, right: "Right") -> bool:
    """Return whether an account has a right, by the server's own word."""
    attributes = {
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "verb": right.verb,
        "name": right.name,
    }
    review: dict[str, Any] = {"spec": {"resourceAttributes": attributes | {"namespace": right.namespace}}}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    connection = client.connect(kubeconfig, seconds=10)
    try:
        answer = thaw(connection.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=kind | review))
    finally:
        connection.close()
    return bool(answer["status"]["allowed"])  # type: ignore[index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Right:
    """One verb of one rule of a role."""

    role: str
    rule: int
    group: str
    resource: str
    subresource: str
    verb: str
    name: str
    namespace: str

    @property
    def path(self) -> str:
        """The resource as RBAC writes it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        return f"{self.role.removeprefix(own(''))}: {self.verb} {self.path}"


def rights(roles: list[dict[str, Any]]) -> list[Right]:
    """Return every verb of every rule of some roles."""
    return [
        Right(
            role=role["metadata"]["name"],
            rule=index,
            group=group,
            resource=resource.partition("/")[0],
            subresource=resource.partition("/")[2],
            verb=verb,
            name=rule.get("resourceNames", [""])[0],
            namespace=role["metadata"].get("namespace", ""),
        )
        for role in roles
        for index, rule in enumerate(role["rules"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@contextlib.contextmanager
def installed(server: Server, folder: pathlib.Path, nodes: tuple[str, ...]) -> Iterator[Installed]:
    """Install everything, with Node objects that no kubelet serves, and remove it again."""
    items = renamed(shipped())
    made = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in nodes]
    counted = collections.Counter(item["kind"] for item in items)
    assert counted["ServiceAccount"] == counted["ValidatingAdmissionPolicy"] == counted["ValidatingAdmissionPolicyBinding"] > 0
    # A pod of these checks has no kubelet that would end it.
    server.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0", check=False)
    server.remove([*items, *made])
    try:
        server.apply([*items, *made])
        yield Installed(server=server, folder=folder, items=items)
    finally:
        server.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0", check=False)
        server.remove([*items, *made])
