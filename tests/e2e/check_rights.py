"""Every right of every shipped role is needed: taken away alone on a real API server, something is refused, and log and doctor name it.

The driver runs as a process with a real token of its account, on a node that only the API server knows, and is called as a kubelet would call it.
``docs/reference/rbac.md`` has the results as a table.
"""

import contextlib
import copy
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit.core import errors
from e2e import accounts, process

NODE = "drakit-rights-n"
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]

MACHINES = {"gpu": "dgx-a100-40gb-2gpu", "nic": "dgx-a100-40gb-2gpu", "tpu": "tpu-v5e-8x8"}
TPU_NODES = [NODE, *(f"{NODE}{number}" for number in range(2, 17))]
ONE_NODE_TPU = "tpu-2x2-1"
PARTITIONS = ("gpu-0-mig-1g5gb-19-0", "gpu-0-mig-1g5gb-19-1")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{accounts.NAMESPACE}/resourceclaims"
EVENTS = f"/api/v1/namespaces/{accounts.NAMESPACE}/events"
PODS = f"/api/v1/namespaces/{accounts.NAMESPACE}/pods"
MPS = {"apiVersion": "gpu.drakit.dev/v1", "kind": "MigConfig", "sharing": {"strategy": "MPS"}}
PUBLISHER = "drakit-publisher"

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """One account at work: its token, its node and the folder of its state."""

    installed: accounts.Installed
    account: str
    folder: pathlib.Path
    verb: str = ""
    """What is taken away."""

    @property
    def family(self) -> str:
        return self.account.removeprefix("drakit-") if self.account != PUBLISHER else "tpu"

    @property
    def driver(self) -> str:
        return f"{self.family}.drakit.dev"

    @property
    def kubeconfig(self) -> pathlib.Path:
        return self.installed.of_pod(self.account, NODE)

    def run(self) -> contextlib.AbstractContextManager[process.Process]:
        """Start the driver, or the publisher."""
        machine = ("--mock", MACHINES[self.family], *(("--set", f"tpu.nodes={TPU_NODES}") if self.family == "tpu" else ()))
        if self.account == PUBLISHER:
            terms = ("--set", f"election.namespace={accounts.NAMESPACE}", "--set", "election.identity=checks")
            return process.running(self.kubeconfig, self.folder, "publish", "tpu", *machine, *terms)
        words = ("run", "--family", self.family, *machine, "--node", NODE, "--folder", str(self.folder))
        return process.running(self.kubeconfig, self.folder, *words, environment={"DRAKIT_NODE__POD_UID": self.pod_uid(), **self.settings})

    @property
    def settings(self) -> dict[str, str]:
        """Variables that the manifests set for the account's driver."""
        return {"DRAKIT_GPU__MPS_TEMPLATE": f"{accounts.NAMESPACE}/{accounts.MPS_TEMPLATE}"} if self.family == "gpu" else {}

    def pod_uid(self) -> str:
        """Return the UID of the pod that the token is bound to."""
        return str(self.ask("GET", f"{PODS}/{self.account}-{NODE}")["metadata"]["uid"])

    def doctor(self) -> list[dict[str, str]]:
        """Return what the doctor says of the API server."""
        return process.doctor(self.kubeconfig, self.folder, NODE, self.family, MACHINES[self.family], self.settings)

    def ask(self, method: str, path: str, body: Object | None = None, **query: str) -> Object:
        return self.installed.server.ask(method, path, body, **query)

    def slices(self) -> list[Object]:
        """Return what is published of this account's."""
        node = "" if self.account == PUBLISHER else NODE
        found = self.ask("GET", SLICES, fieldSelector=f"spec.driver={self.driver},spec.nodeName={node}")
        return [one for one in found["items"] if not one["spec"]["pool"]["name"].endswith("/probe")]

    def published(self) -> list[Object]:
        """Wait for the slices."""

        def whole() -> list[Object]:
            found = self.slices()
            return found if found and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"] else []

        return list(accounts.wait(f"slices of {self.account}", whole))

    def claim(self, name: str, *devices: str, parameters: Object | None = None) -> Object:
        """Store a claim that has these devices of the node's pool, or of the cluster's, as the scheduler would, and its allocation."""
        requests = [{"name": f"r{index}", "exactly": {"deviceClassName": "none"}} for index, _ in enumerate(devices)]
        config = [{"opaque": {"driver": self.driver, "parameters": parameters}}] if parameters else []
        item = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": accounts.NAMESPACE},
            "spec": {"devices": {"requests": requests, **({"config": config} if config else {})}},
        }
        made = self.ask("POST", CLAIMS, item)
        pool = "tpus" if self.family == "tpu" else NODE
        shared = (
            {"shareID": "11111111-2222-4333-8444-555555555555", "consumedCapacity": {"bandwidth": "1G"}} if self.family == "nic" else {}
        )
        results = [
            {"request": f"r{index}", "driver": self.driver, "pool": pool, "device": device, **shared}
            for index, device in enumerate(devices)
        ]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
        if self.family == "tpu":
            term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
        allocated = {"results": results, **({"config": [{"source": "FromClaim", **config[0]}]} if config else {})}
        made["status"] = {"allocation": {"devices": allocated, "nodeSelector": {"nodeSelectorTerms": [term]}}}
        return self.ask("PUT", f"{CLAIMS}/{name}/status", made)


@pytest.fixture(scope="module")
def installed(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[accounts.Installed]:
    server = accounts.Server.of(pathlib.Path(pytestconfig.getoption("--kubeconfig")).absolute())
    with accounts.installed(server, tmp_path_factory.mktemp("tokens"), (NODE,)) as made:
        yield made


@pytest.fixture
def at(installed: accounts.Installed, tmp_path: pathlib.Path) -> Iterator[Callable[[str], Place]]:
    """Gives each account a clean place: no slices, no claims, no events, no state."""
    used: list[Place] = []

    def place(account: str) -> Place:
        made = Place(installed=installed, account=account, folder=pathlib.Path(f"/tmp/dr-{os.getpid()}"))
        used.append(made)
        clear(made)
        return made

    yield place
    for one in used:
        clear(one)


def clear(place: Place) -> None:
    shutil.rmtree(place.folder, ignore_errors=True)
    for one in place.slices():
        with contextlib.suppress(errors.ApiError):
            place.ask("DELETE", f"{SLICES}/{one['metadata']['name']}")
    for path in (CLAIMS, EVENTS, f"/apis/coordination.k8s.io/v1/namespaces/{accounts.NAMESPACE}/leases"):
        place.ask("DELETE", path)


def device(place: Place) -> str:
    """Return the name of a device of an account."""
    if place.family == "tpu":
        return ONE_NODE_TPU
    found = [one for item in place.published() for one in item["spec"].get("devices", [])]
    return str(found[0]["name"])


def edit(item: Object) -> Object:
    """Return a slice with a change that its owner undoes."""
    changed = copy.deepcopy(item)
    for one in changed["spec"].get("devices", [])[:1]:
        one.setdefault("attributes", {})["edited.example.com/by"] = {"string": "somebody"}
    if not changed["spec"].get("devices"):
        changed["spec"]["pool"]["resourceSliceCount"] += 1
    return changed


TakeAway = Callable[[], None]
Exercise = Callable[[Place, TakeAway], Object]

# Each function makes an account use one right, takes that right away before, and returns what the log says.


def start(place: Place, take_away: TakeAway) -> Object:
    take_away()
    with place.run() as running:
        return running.logged("403", f" {place.verb} ")


def undo_an_edit(place: Place, take_away: TakeAway) -> Object:
    with place.run() as running:
        item = place.published()[0]
        take_away()
        place.ask("PUT", f"{SLICES}/{item['metadata']['name']}", edit(item))
        return running.logged("403", f" {place.verb} ")


def remove_a_slice(place: Place, take_away: TakeAway) -> Object:
    """A slice of a pool that the driver does not have."""
    where = {"allNodes": True} if place.account == PUBLISHER else {"nodeName": NODE}
    name, pool = f"{accounts.NAMESPACE}-left", {"name": f"{NODE}/left", "generation": 1, "resourceSliceCount": 1}
    left = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}}
    with place.run() as running:
        place.published()
        take_away()
        place.ask("POST", SLICES, left | {"spec": {"driver": place.driver, "pool": pool, **where}})
        try:
            return running.logged("403", f" {place.verb} ")
        finally:
            place.ask("DELETE", f"{SLICES}/{name}")


def prepare(place: Place, take_away: TakeAway) -> Object:
    with place.run() as running:
        place.published()
        take_away()
        assert "403" in running.prepare(place.driver, place.claim("c", device(place)))
        return running.logged("403", f" {place.verb} ")


def report_a_failure(place: Place, take_away: TakeAway) -> Object:
    """A claim that cannot be prepared, which its status is to say."""
    with place.run() as running:
        place.published()
        take_away()
        wrong = {"apiVersion": "wrong.example.com/v1", "kind": "Wrong"}
        assert running.prepare(place.driver, place.claim("c", device(place), parameters=wrong))
        return running.logged("resourceclaims/", "rror")


def warn_a_user(place: Place, take_away: TakeAway) -> Object:
    """Of two partitions in a claim: a program sees only one of them."""
    with place.run() as running:
        place.published()
        take_away()
        assert not running.prepare(place.driver, place.claim("c", *PARTITIONS))
        return running.logged("403", f" {place.verb} ")


def warn_a_user_again(place: Place, take_away: TakeAway) -> Object:
    """In a later life of the driver, which finds the event of the earlier one."""
    with place.run() as running:
        place.published()
        claim = place.claim("c", *PARTITIONS)
        assert not running.prepare(place.driver, claim)
        accounts.wait("an event", lambda: place.ask("GET", EVENTS)["items"])
        assert not running.unprepare(place.driver, claim)
    take_away()
    with place.run() as running:
        assert not running.prepare(place.driver, claim)
        return running.logged("403", f" {place.verb} ")


def lose_the_journal(place: Place, take_away: TakeAway) -> Object:
    with place.run() as running:
        place.published()
        assert not running.prepare(place.driver, place.claim("c", device(place)))
    take_away()
    for file in (place.folder / "plugins" / place.driver).glob("*.db*"):
        file.unlink()
    with place.run() as running:
        return running.logged("403", f" {place.verb} ")


def renew_the_lease(place: Place, take_away: TakeAway) -> Object:
    with place.run() as running:
        place.published()
        take_away()
        return running.logged("403", f" {place.verb} ")


def run_an_mps_daemon(place: Place, take_away: TakeAway) -> Object:
    """For a claim: its pod is looked for, and made from the template with the image of the driver's own pod."""
    with place.run() as running:
        place.published()
        take_away()
        assert "403" in running.prepare(place.driver, place.claim("c", PARTITIONS[0], parameters=MPS))
        return running.logged("403", place.verb, "claim")


def remove_a_pod(place: Place, take_away: TakeAway) -> Object:
    """An MPS daemon's, which an earlier life of the driver left."""
    labels = {"drakit.dev/driver": place.driver}
    left = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "drakit-mps-left", "labels": labels}}
    place.ask("POST", PODS, left | {"spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]}})
    take_away()
    try:
        with place.run() as running:
            return running.logged("403", f" {place.verb} ", "MPS pod not deleted")
    finally:
        place.ask("DELETE", f"{PODS}/drakit-mps-left", gracePeriodSeconds="0")


EXERCISES: dict[tuple[str, str], Exercise] = {
    ("resourceslices", "list"): start,
    ("resourceslices", "watch"): start,
    ("resourceslices", "create"): start,
    ("resourceslices", "update"): undo_an_edit,
    ("resourceslices", "delete"): remove_a_slice,
    ("nodes", "get"): start,
    ("resourceclaims", "get"): prepare,
    ("resourceclaims", "list"): lose_the_journal,
    ("resourceclaims/status", "patch"): report_a_failure,
    ("resourceclaims/driver", "associated-node:patch"): report_a_failure,
    ("resourceclaims/driver", "arbitrary-node:patch"): report_a_failure,
    ("events", "create"): warn_a_user,
    ("events", "patch"): warn_a_user_again,
    ("pods", "create"): run_an_mps_daemon,
    ("pods", "get"): run_an_mps_daemon,
    ("pods", "list"): run_an_mps_daemon,
    ("pods", "delete"): remove_a_pod,
    ("podtemplates", "get"): run_an_mps_daemon,
    ("leases", "get"): start,
    ("leases", "create"): start,
    ("leases", "update"): renew_the_lease,
}


def cases() -> list[accounts.Right]:
    """Every right, but those that a mock machine never makes its driver use: the NIC's events."""
    roles = [item for item in accounts.renamed(accounts.shipped()) if item["kind"] in ("Role", "ClusterRole")]
    return [right for right in accounts.rights(roles) if (right.role, right.resource) != (accounts.own("drakit-nic"), "events")]


@pytest.mark.parametrize("right", cases(), ids=str)
def test_a_right_that_is_taken_away_is_missed_and_named(
    installed: accounts.Installed, at: Callable[[str], Place], right: accounts.Right
) -> None:
    role = next(
        one for one in installed.roles() if one["metadata"]["name"] == right.role and (one["kind"] == "Role") == bool(right.namespace)
    )
    place = dataclasses.replace(at(installed.account_of(right.role)), verb=right.verb)
    kubeconfig = place.kubeconfig
    with contextlib.ExitStack() as stack:

        def take_away() -> None:
            stack.enter_context(installed.without(role, right.rule, right.verb))
            accounts.wait(f"{right} missing", lambda: not accounts.may(kubeconfig, right))

        entry = EXERCISES[right.path, right.verb](place, take_away)
        reported = [] if place.account == PUBLISHER else place.doctor()
    found = next((one for one in reported if one["verdict"] in ("failed", "warning") and right.verb in one["message"]), {})
    assert right.resource in str(entry)
    assert right.verb in str(entry)
    if place.account != PUBLISHER:
        assert found["subject"] == f"{right.path} {right.name}".strip()
        assert found["message"].startswith(f"may not {right.verb}, which is needed ")
        assert (
            found["fix"]
            == f"grant {right.verb} on {found['subject']} to the driver's service account; docs/reference/rbac.md lists every right"
        )
    accounts.wait(f"{right} given back", lambda: accounts.may(kubeconfig, right))
