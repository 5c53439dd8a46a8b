"""An API server of any Kubernetes version over real HTTP that only lists: with chosen objects, statuses and answers for each kind."""

import contextlib
import http.server
import json
import pathlib
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drakit_cluster.objects.json_types import Json, Object

GROUP = "resource.k8s.io"
CORE = ("events", "nodes", "pods")
_BATCH = ("cronjobs", "jobs")
_CLAIMS = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
RULES: Mapping[str, tuple[str, ...]] = {
    "1.34": ("v1alpha3",),
    "1.35": ("v1alpha3",),
    "1.36": ("v1beta2",),
    "1.37": ("v1",),
    "1.38": ("v1",),
}
"""The API versions at which a server serves DeviceTaintRules, if it serves them."""


@dataclass(frozen=True, kw_only=True)
class StubApi:
    """``objects`` are the lists by plural, ``statuses`` the HTTP statuses of plurals that fail, ``answers`` whole answers by plural."""

    version: str
    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, Json] = field(default_factory=dict)
    serves_rules: bool = True
    discovery: int = 200

    def answer(self, path: str, query: Mapping[str, str]) -> tuple[int, Json]:
        """Return status and body for a path; of a list the page that the query asks for.

        A user without a right gets 403 also at API versions that are not served, as from Kubernetes.
        """
        if path == "/version":
            return 200, {"gitVersion": f"v{self.version}.1"}
        parts = path.strip("/").split("/")
        if parts[:2] == ["apis", GROUP] and len(parts) in (2, 3):
            return (self.discovery, _status(self.discovery)) if self.discovery != 200 else self._discovered(*parts[2:])
        plural, version = parts[-1], parts[-2]
        if status := self.statuses.get(plural):
            return status, _status(status)
        is_workload = parts[:3] == ["apis", "batch" if plural in _BATCH else "apps", "v1"] and plural in self.objects
        is_other = (parts[:2] == ["api", "v1"] and plural in CORE) or is_workload
        if not is_other and plural not in self._served().get(version, ()):
            return 404, _status(404)
        items: list[Json] = list(self.objects.get(plural, ()))
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(items))
        metadata: Json = {"continue": str(end)} if end < len(items) else {}
        return 200, self.answers.get(plural, {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[start:end]})

    def _served(self) -> dict[str, list[str]]:
        served: dict[str, list[str]] = {"v1": list(_CLAIMS)}
        for version in RULES[self.version] if self.serves_rules else ():
            served.setdefault(version, []).append("devicetaintrules")
        return served

    def _discovered(self, version: str = "") -> tuple[int, Json]:
        served = self._served()
        if not version:
            return 200, {"kind": "APIGroup", "name": GROUP, "versions": [{"version": name} for name in served]}
        if version not in served:
            return 404, _status(404)
        return 200, {"kind": "APIResourceList", "resources": [{"name": plural} for plural in served[version]]}


def _status(code: int) -> Json:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": "Forbidden" if code == 403 else "NotFound", "message": "no"}


@contextlib.contextmanager
def serving(api: StubApi, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Serve the API; yield the path of a kubeconfig for it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            status, body = api.answer(path, dict(urllib.parse.parse_qsl(query)))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            kubeconfig = folder / "stub-kubeconfig"
            cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
            user = {"name": "u", "user": {"token": "t"}}
            config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": [user]}
            kubeconfig.write_text(json.dumps(config | {"current-context": "c"}))
            kubeconfig.chmod(0o600)
            yield kubeconfig
        finally:
            server.shutdown()
            thread.join()
