"""The cluster under test: requests as plain JSON, kubectl where it does more than one request, and waits that end in evidence."""

import dataclasses
import http
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import urllib3

from drakit.core import errors
from drakit.core.errors import ApiError
from drakit.core.records import thaw
from drakit.kube import access, client
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object

__all__ = ["Api", "ApiError", "WaitError"]

_Found = TypeVar("_Found")
_SECONDS, _KUBECTL_SECONDS = 30, 180
_APPLY_TYPE = "application/merge-patch+json"
_LINES_OF_LOG = 25
_EVENTS_SHOWN = 25

_GROUPS = {
    "v1": "/api/v1",
    "apps/v1": "/apis/apps/v1",
    "rbac.authorization.k8s.io/v1": "/apis/rbac.authorization.k8s.io/v1",
    "resource.k8s.io/v1": "/apis/resource.k8s.io/v1",
}
_KINDS = {
    "Pod": ("v1", "pods", True),
    "Node": ("v1", "nodes", False),
    "Event": ("v1", "events", True),
    "Namespace": ("v1", "namespaces", False),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "ConfigMap": ("v1", "configmaps", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "ControllerRevision": ("apps/v1", "controllerrevisions", True),
    "ResourceClaim": ("resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", "resourceclaimtemplates", True),
    "ResourceSlice": ("resource.k8s.io/v1", "resourceslices", False),
    "DeviceClass": ("resource.k8s.io/v1", "deviceclasses", False),
}
NOT_FOUND = 404


class WaitError(AssertionError):
    """Something that did not come in time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Api:
    """The API server that ``kubeconfig`` names. ``seconds`` is how long a wait lasts at most, ``pause`` how long between two looks."""

    kubeconfig: pathlib.Path
    seconds: float
    pause: float
    connection: client.Client
    server: access.Access

    @classmethod
    def of(cls, kubeconfig: pathlib.Path, *, seconds: float, pause: float) -> "Api":
        """Return the API server of a kubeconfig."""
        connection, server = client.connect(kubeconfig, seconds=_SECONDS), access.of_kubeconfig(str(kubeconfig))
        return cls(kubeconfig=kubeconfig, seconds=seconds, pause=pause, connection=connection, server=server)

    def request(
        self, method: str, path: str, *, body: Object | None = None, query: Mapping[str, str] | None = None, content: str = ""
    ) -> Object:
        """Return the JSON object that answers one request; raise ApiError."""
        found = thaw(self.connection.request(method, path, query=query, body=body, content_type=content or "application/json"))
        return json_types.mapping(json_types.copy(found))  # type: ignore[arg-type]

    def create(self, item: Object, *, dry_run: bool = False) -> Object:
        """Create an object, with its keys in order as kubectl sends them, and return it as it was stored; raise ApiError."""
        path = collection(json_types.text(item, "kind"), json_types.text(item, "metadata", "namespace"))
        body = json.loads(json.dumps(item, sort_keys=True))
        return self.request("POST", path, body=body, query={"dryRun": "All"} if dry_run else None)

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """Return one object; raise ApiError."""
        return self.request("GET", f"{collection(kind, namespace)}/{name}")

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return one object, None where there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects of a kind, of all namespaces unless one is given."""
        query = {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        found = self.request("GET", collection(kind, namespace), query=query)
        return json_types.objects(found, "items")

    def delete(self, kind: str, name: str, namespace: str = "", *, grace: int | None = None) -> None:
        """Ask for the end of an object; one that is gone is fine."""
        query = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        try:
            self.request("DELETE", f"{collection(kind, namespace)}/{name}", query=query)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def merge(self, kind: str, name: str, patch: Object, namespace: str = "") -> Object:
        """Change an object by a merge patch and return it."""
        return self.request("PATCH", f"{collection(kind, namespace)}/{name}", body=patch, content=_APPLY_TYPE)

    def wait(self, what: str, probe: Callable[[], _Found | None], *, seconds: float | None = None) -> _Found:
        """Return what ``probe`` returns once that is true. An API server that does not answer is asked again. Raise WaitError."""
        limit = seconds or self.seconds
        deadline, trouble = time.monotonic() + limit, ""
        while time.monotonic() < deadline:
            try:
                found = probe()
            except ApiError as error:
                if error.status and error.status != NOT_FOUND:
                    raise
                found, trouble = None, f" ({error})"
            if found:
                return found
            time.sleep(self.pause)
        raise WaitError(f"{what} did not come within {limit:g} s{trouble}")

    def wait_gone(self, kind: str, name: str, namespace: str = "", *, seconds: float | None = None) -> None:
        """Wait until there is no such object."""
        self.wait(f"the end of {kind} {name}", lambda: self.find(kind, name, namespace) is None, seconds=seconds)

    def kubectl(self, *words: str, check: bool = True, stdin: str | None = None) -> str:
        """Return what kubectl prints; raise AssertionError with its words where it fails."""
        ran = subprocess.run(
            ["kubectl", *words],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_SECONDS,
            check=False,
        )
        assert not check or ran.returncode == 0, f"kubectl {' '.join(words)}: {ran.stderr}"
        return ran.stdout

    def log(self, pod: str, namespace: str, container: str) -> str:
        """Return what a container printed so far; empty where it has not started."""
        address = f"{self.server.server}{collection('Pod', namespace)}/{pod}/log"
        try:
            answer = self.server.pools.request(
                "GET", address, fields={"container": container}, headers=self.server.identity(), timeout=_SECONDS, retries=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(str(error)) from error
        return answer.data.decode(errors="replace") if answer.status == http.HTTPStatus.OK else ""

    def version(self) -> str:
        """Return the server's version."""
        return json_types.text(self.request("GET", "/version"), "gitVersion")

    def evidence(self, *namespaces: str) -> str:
        """Return what a person needs to see why a check failed: pods, claims and events of the namespaces, and the log of drakit."""
        lines: list[str] = []
        try:
            for namespace in namespaces:
                lines += [f"-- {namespace}", *(_of_pod(pod) for pod in self.list("Pod", namespace))]
                lines += [_of_claim(claim) for claim in self.list("ResourceClaim", namespace)]
                lines += [_of_event(event) for event in self.list("Event", namespace)[-_EVENTS_SHOWN:]]
        except errors.ApiError as error:
            lines.append(str(error))
        return "\n".join(lines)


def collection(kind: str, namespace: str = "") -> str:
    """Return the path of a kind's objects, in one namespace or in all."""
    version, plural, namespaced = _KINDS[kind]
    return f"{_GROUPS[version]}/namespaces/{namespace}/{plural}" if namespaced and namespace else f"{_GROUPS[version]}/{plural}"


def _of_pod(pod: Object) -> str:
    status = json_types.mapping(pod, "status")
    waits = [
        f"{json_types.text(one, 'name')}: {json_types.text(one, 'state', kind, 'reason')} {json_types.text(one, 'state', kind, 'message')}"
        for one in json_types.objects(status, "containerStatuses")
        for kind in ("waiting", "terminated")
        if json_types.mapping(one, "state", kind)
    ]
    unmet = [
        json_types.text(one, "message") for one in json_types.objects(status, "conditions") if json_types.text(one, "status") != "True"
    ]
    return f"pod {json_types.text(pod, 'metadata', 'name')} {json_types.text(status, 'phase')} {'; '.join((*waits, *filter(None, unmet)))}"


def _of_claim(claim: Object) -> str:
    results = json_types.objects(claim, "status", "allocation", "devices", "results")
    devices = ", ".join(f"{json_types.text(one, 'request')}={json_types.text(one, 'device')}" for one in results)
    users = ", ".join(json_types.text(one, "name") for one in json_types.objects(claim, "status", "reservedFor"))
    return f"claim {json_types.text(claim, 'metadata', 'name')} has [{devices}] for [{users}]"


def _of_event(event: Object) -> str:
    about = f"{json_types.text(event, 'involvedObject', 'kind')} {json_types.text(event, 'involvedObject', 'name')}"
    return f"event {json_types.text(event, 'reason')} {about}: {json_types.text(event, 'message')}"
