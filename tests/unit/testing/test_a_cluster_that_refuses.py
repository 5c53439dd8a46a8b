"""``testing.Cluster`` refuses what the driver's own manifest does not grant, and a call that waits in vain says why."""

import pathlib
import re

import pytest

import drakit
from drakit import families, testing

READY, FAILED = "board.example.com/ready", "board.example.com/failed"
MANIFEST = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: board, namespace: boards}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: board}
rules:
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [VERBS]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [patch]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], verbs: ["associated-node:patch"]}
  - {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch, create, update, delete]}
  - {apiGroups: [""], resources: [nodes], verbs: [get]}
  - {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: board}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: board}
subjects: [{kind: ServiceAccount, name: board, namespace: boards}]
"""


class Board(drakit.Driver[drakit.NoConfig], drakit.Binder[drakit.NoConfig]):
    """A board that is flashed before its pod is bound. ``failure`` is the error of ``bind``."""

    name = "board.example.com"
    failure: str = ""

    def discover(self) -> drakit.Inventory:
        conditions = {"binding_conditions": (READY,), "binding_failure_conditions": (FAILED,)}
        return drakit.Inventory.of([drakit.Device(name="board-0", **conditions)])  # type: ignore[arg-type] # tuples of texts

    def bind(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        if self.failure:
            raise drakit.HardwareError("flash", self.failure)

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        return drakit.Prepared(edits=drakit.Edits(env={"BOARD": "0"}))


class Broken(Board):
    failure = "no bitstream"


class Plain(drakit.Driver[drakit.NoConfig]):
    """Has no devices, and implements no protocol."""

    name = "plain.example.com"

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory()

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        return drakit.Prepared()


def manifest(folder: pathlib.Path, verbs: str) -> pathlib.Path:
    file = folder / "rbac.yaml"
    file.write_text(MANIFEST.replace("VERBS", verbs))
    return file


def run_a_pod(cluster: testing.Cluster, seconds: float) -> testing.ContainerView:
    cluster.wait_published(1)
    cluster.apply(testing.device_class("board", driver=Board.name))
    cluster.apply(testing.claim("mine", device_class="board"), testing.pod("p", claims=["mine"]))
    return cluster.wait_running("p", seconds=seconds)


def test_a_binder_without_its_rights_is_refused_at_once_with_the_rule_to_add(tmp_path: pathlib.Path) -> None:
    file = manifest(tmp_path, "get")
    with pytest.raises(AssertionError) as refused, testing.Cluster(Board, rbac=file):
        pass
    assert str(refused.value) == (
        f"{file} does not grant what board.example.com needs to bind devices with binding conditions before their pods are bound; "
        'add a rule to its ClusterRole: {apiGroups: ["resource.k8s.io"], resources: [resourceclaims], verbs: [list, watch]}'
    )


def test_a_driver_that_only_publishes_needs_no_right_of_a_binder(tmp_path: pathlib.Path) -> None:
    with testing.Cluster(Plain, rbac=manifest(tmp_path, "get")) as cluster:
        cluster.wait_published(0)


def test_a_timeout_names_what_a_claim_waits_for_and_the_last_error_of_bind() -> None:
    with testing.Cluster(Broken) as cluster, pytest.raises(TimeoutError) as waited:
        run_a_pod(cluster, seconds=3)
    text = str(waited.value)
    assert text.startswith("timed out after 3 s waiting for pod p to run\n  pod default/p: Pending")
    assert f"claim default/mine: allocated node-1/board-0; waits for {READY}" in text
    assert re.search(r"log: .*binding failed.*flash: no bitstream", text), text


def test_a_binder_with_its_rights_runs(tmp_path: pathlib.Path) -> None:
    with testing.Cluster(Board, rbac=manifest(tmp_path, "get, list, watch")) as cluster:
        assert run_a_pod(cluster, seconds=30).env["BOARD"] == "0"


def test_the_doctor_checks_the_rights_of_a_binder_and_not_those_of_others() -> None:
    def verbs_on_claims(make: type[drakit.Driver[drakit.NoConfig]]) -> set[str]:
        rights = families.rights(families.DriverFamily(make), None)
        return {verb for right in rights if right.path == "resourceclaims" and right.needed for verb in right.verbs}

    assert verbs_on_claims(Board) == {"get", "list", "watch"}
    assert verbs_on_claims(Plain) == {"get"}


def test_the_doctor_checks_the_status_right_of_drivers_of_cluster_pools() -> None:
    def verbs_on_driver(make: type[drakit.Driver[drakit.NoConfig]]) -> set[str]:
        rights = families.rights(families.DriverFamily(make), None)
        return {verb for right in rights if right.subresource == "driver" and right.name == make.name for verb in right.verbs}

    class Shared(Plain):
        def cluster_device(self, pool: str, name: str) -> drakit.Device | None:
            return None

    assert verbs_on_driver(Plain) == {"associated-node:patch"}
    assert verbs_on_driver(Shared) == {"associated-node:patch", "arbitrary-node:patch"}
