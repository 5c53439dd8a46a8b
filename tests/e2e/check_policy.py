"""What a stolen token of a driver or of the publisher can do to ResourceSlices: the shipped policies on a real API server, with real tokens.

The accounts are given every right on ResourceSlices here, so that what is refused is refused by the policies and not by RBAC. That RBAC itself lets
nobody patch slices or delete collections of them is checked first.
"""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit.core import errors
from drakit.core.records import thaw
from drakit.kube import client
from e2e import accounts

NODE, OTHER = "drakit-rights-a", "drakit-rights-b"
pytestmark = pytest.mark.real

FAMILIES = ("gpu", "nic", "tpu")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
FORBIDDEN = 403

Object = dict[str, Any]


class Token:
    """Requests with one token."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self._connection = client.connect(kubeconfig, seconds=15)

    def ask(self, method: str, path: str, body: Object | None = None, content: str = "application/json", **query: str) -> Object:
        return thaw(self._connection.request(method, path, body=body, content_type=content, query=query))  # type: ignore[return-value]

    def close(self) -> None:
        self._connection.close()


Attempt = Callable[[Token], object]


@pytest.fixture(scope="module")
def installed(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[accounts.Installed]:
    server = accounts.Server.of(pathlib.Path(pytestconfig.getoption("--kubeconfig")).absolute())
    with accounts.installed(server, tmp_path_factory.mktemp("tokens"), (NODE, OTHER)) as made:
        yield made


@pytest.fixture(scope="module")
def generous(installed: accounts.Installed, request: pytest.FixtureRequest) -> accounts.Installed:
    """Every account has every right on slices; the policies hold for all of them by now."""
    name = accounts.own("everything")
    kind: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rules = [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}]
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:serviceaccounts:{accounts.NAMESPACE}"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    items = [
        kind | {"kind": "ClusterRole", "rules": rules},
        kind | {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [group]},
    ]
    request.addfinalizer(lambda: installed.server.remove(items))  # noqa: PT021 - also where the policies do not come
    installed.server.apply(items)
    for account in (*(f"drakit-{family}" for family in FAMILIES), "drakit-publisher"):
        token = Token(installed.of_pod(account, NODE))
        wrong = slice_of("drakit-rights-probe", "wrong.example.com", NODE)
        accounts.wait(f"the policy for {account}", functools.partial(is_limited, token, wrong))
        token.close()
    return installed


def is_limited(token: Token, item: Object) -> bool:
    """Whether a policy refuses a slice."""
    try:
        token.ask("POST", SLICES, item, dryRun="All")
    except errors.ApiError as error:
        return "ValidatingAdmissionPolicy" in str(error)
    return False


@pytest.fixture
def slices(installed: accounts.Installed) -> Iterator[Callable[[Object], Object]]:
    """Stores slices as an administrator; all of them are gone afterwards."""
    made = []

    def store(item: Object) -> Object:
        made.append(item["metadata"]["name"])
        return installed.server.ask("POST", SLICES, item)

    yield store
    for name in made:
        with contextlib.suppress(errors.ApiError):
            installed.server.ask("DELETE", f"{SLICES}/{name}")


def token_of(installed: accounts.Installed, account: str, node: str = NODE) -> Iterator[Token]:
    token = Token(installed.of_pod(account, node))
    yield token
    token.close()


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stolen(generous: accounts.Installed, family: str) -> Iterator[Token]:
    """The token of a driver's pod on ``NODE``."""
    yield from token_of(generous, f"drakit-{family}")


@pytest.fixture
def publisher(generous: accounts.Installed) -> Iterator[Token]:
    yield from token_of(generous, "drakit-publisher")


def slice_of(name: str, driver: str, node: str = "", *, pool: str = "") -> Object:
    """A slice without devices, of a node or of the cluster."""
    where: Object = {"nodeName": node} if node else {"allNodes": True}
    spec = {"driver": driver, **where, "pool": {"name": pool or node or "tpus", "generation": 1, "resourceSliceCount": 1}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def changes(made: Object) -> dict[str, Attempt]:
    """Every way to write a slice that exists."""
    name = made["metadata"]["name"]
    bare = {key: made[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": name, "labels": {"a": "b"}}}
    labelled = made | {"metadata": made["metadata"] | {"labels": {"a": "b"}}}
    force = {"fieldManager": "thief", "force": "true"}
    return {
        "update": lambda token: token.ask("PUT", f"{SLICES}/{name}", labelled),
        "patch": lambda token: token.ask("PATCH", f"{SLICES}/{name}", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        "apply": lambda token: token.ask("PATCH", f"{SLICES}/{name}", bare, APPLY, **force),
        "delete": lambda token: token.ask("DELETE", f"{SLICES}/{name}"),
        "deletecollection": lambda token: token.ask("DELETE", SLICES, fieldSelector=f"metadata.name={name}"),
    }


def creating(new: Object) -> Attempt:
    return lambda token: token.ask("POST", SLICES, new)


def refused(token: Token, attempt: Attempt, account: str, why: str) -> None:
    with pytest.raises(errors.ApiError) as error:
        attempt(token)
    assert error.value.status == FORBIDDEN
    assert f"ValidatingAdmissionPolicy '{accounts.own(account)}'" in str(error.value)
    assert why in str(error.value)


def is_stored(installed: accounts.Installed, made: Object) -> bool:
    name = made["metadata"]["name"]
    found: Object = installed.server.ask("GET", f"{SLICES}/{name}")
    return bool(found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"])


@pytest.mark.parametrize("account", [*(f"drakit-{family}" for family in FAMILIES), "drakit-publisher"])
def test_rbac_alone_lets_no_account_patch_slices_or_delete_collections(installed: accounts.Installed, account: str) -> None:
    kubeconfig = installed.of_pod(account, NODE)
    role = next(one for one in installed.roles() if one["metadata"]["name"] == accounts.own(account))
    granted = {right.verb for right in accounts.rights([role]) if right.resource == "resourceslices"}
    for verb in ("get", "list", "watch", "create", "update", "delete", "patch", "deletecollection"):
        right = accounts.Right(
            role="", rule=0, group="resource.k8s.io", resource="resourceslices", subresource="", verb=verb, name="", namespace=""
        )
        assert accounts.may(kubeconfig, right) == (verb in granted)
    assert not granted & {"patch", "deletecollection"}


def test_a_driver_writes_the_slices_of_its_own_node(stolen: Token, family: str) -> None:
    driver = f"{family}.drakit.dev"
    made = stolen.ask("POST", SLICES, slice_of(f"drakit-rights-own-{family}", driver, NODE))
    probe = stolen.ask("POST", SLICES, slice_of(f"drakit-rights-probe-{family}", driver, NODE, pool=f"{NODE}/probe"))
    for way, attempt in changes(made).items():
        if way not in ("update", "delete"):
            attempt(stolen)
        if way == "deletecollection":
            made = stolen.ask("POST", SLICES, slice_of(f"drakit-rights-own-{family}", driver, NODE))
    changes(made)["update"](stolen)
    changes(made)["delete"](stolen)
    changes(probe)["delete"](stolen)


def test_a_stolen_token_changes_no_slice_of_another_node(
    generous: accounts.Installed, stolen: Token, family: str, slices: Callable[[Object], Object]
) -> None:
    driver, account = f"{family}.drakit.dev", f"drakit-{family}"
    theirs, mine = slices(slice_of("drakit-rights-theirs", driver, OTHER)), slices(slice_of("drakit-rights-mine", driver, NODE))
    why = f"a pod on the node {NODE} writes ResourceSlices of this node only"
    for attempt in (*changes(theirs).values(), creating(slice_of("drakit-rights-new", driver, OTHER))):
        refused(stolen, attempt, account, why)
    # Neither does it take a slice of another node over, nor give one of its own away. The field is immutable besides.
    for into, spec in ((theirs, mine["spec"]), (mine, theirs["spec"])):
        moved = into | {"spec": spec}
        with pytest.raises(errors.ApiError) as error:
            stolen.ask("PUT", f"{SLICES}/{into['metadata']['name']}", moved)
        assert error.value.status in (FORBIDDEN, 422)
    assert is_stored(generous, theirs)
    assert is_stored(generous, mine)


def test_a_stolen_token_changes_no_pool_of_the_cluster_or_of_another_node(
    generous: accounts.Installed, stolen: Token, family: str, slices: Callable[[Object], Object]
) -> None:
    driver, account = f"{family}.drakit.dev", f"drakit-{family}"
    theirs = slices(slice_of("drakit-rights-cluster", driver))
    for attempt in (*changes(theirs).values(), creating(slice_of("drakit-rights-new", driver))):
        refused(stolen, attempt, account, "of this node only")
    for pool in (OTHER, f"{NODE}1", "cluster"):
        refused(
            stolen,
            creating(slice_of("drakit-rights-new", driver, NODE, pool=pool)),
            account,
            f"writes the pools {NODE} and {NODE}/... only",
        )
    assert is_stored(generous, theirs)


def test_a_stolen_token_changes_no_slice_of_another_driver(
    generous: accounts.Installed, stolen: Token, family: str, slices: Callable[[Object], Object]
) -> None:
    account, why = f"drakit-{family}", f"this account writes ResourceSlices of the driver {family}.drakit.dev only"
    for driver in ("gpu.nvidia.com", *(f"{other}.drakit.dev" for other in FAMILIES if other != family)):
        theirs = slices(slice_of(f"drakit-rights-{driver}", driver, NODE))
        for attempt in (*changes(theirs).values(), creating(slice_of("drakit-rights-new", driver, NODE))):
            refused(stolen, attempt, account, why)
        assert is_stored(generous, theirs)


def test_a_token_that_names_no_node_writes_nothing(generous: accounts.Installed, family: str, slices: Callable[[Object], Object]) -> None:
    driver, account = f"{family}.drakit.dev", f"drakit-{family}"
    made = slices(slice_of("drakit-rights-mine", driver, NODE))
    token = Token(generous.token(account))
    for attempt in (*changes(made).values(), creating(slice_of("drakit-rights-new", driver, NODE))):
        refused(token, attempt, account, "this token names no node")
    token.close()
    assert is_stored(generous, made)


def test_a_token_bound_to_a_node_object_writes_as_that_node(generous: accounts.Installed, family: str) -> None:
    driver, account = f"{family}.drakit.dev", f"drakit-{family}"
    token = Token(generous.token(account, {"apiVersion": "v1", "kind": "Node", "name": OTHER}))
    refused(token, creating(slice_of("drakit-rights-new", driver, NODE)), account, f"a pod on the node {OTHER} writes")
    made = token.ask("POST", SLICES, slice_of("drakit-rights-new", driver, OTHER))
    changes(made)["delete"](token)
    token.close()


def test_the_publisher_writes_pools_of_the_cluster_and_of_its_driver_only(
    generous: accounts.Installed, publisher: Token, slices: Callable[[Object], Object]
) -> None:
    made = publisher.ask("POST", SLICES, slice_of("drakit-rights-own", "tpu.drakit.dev"))
    made = changes(made)["update"](publisher)  # type: ignore[assignment]
    changes(made)["delete"](publisher)
    of_node = slices(slice_of("drakit-rights-node", "tpu.drakit.dev", NODE))
    for attempt in (*changes(of_node).values(), creating(slice_of("drakit-rights-new", "tpu.drakit.dev", NODE))):
        refused(publisher, attempt, "drakit-publisher", "belong to no node only")
    of_other = slices(slice_of("drakit-rights-other", "gpu.drakit.dev"))
    for attempt in (*changes(of_other).values(), creating(slice_of("drakit-rights-new", "gpu.drakit.dev"))):
        refused(publisher, attempt, "drakit-publisher", "of the driver tpu.drakit.dev only")
    for pool in (NODE, f"{NODE}/probe", "tpus-x"):
        attempt = creating(slice_of("drakit-rights-new", "tpu.drakit.dev", pool=pool))
        refused(publisher, attempt, "drakit-publisher", "writes the pools tpus and tpus-N only")
    assert is_stored(generous, of_node)
    assert is_stored(generous, of_other)


def test_the_policies_hold_for_every_version_that_the_server_has(generous: accounts.Installed, stolen: Token, family: str) -> None:
    served: Object = generous.server.ask("GET", "/apis/resource.k8s.io")
    for version in [one["version"] for one in served["versions"]]:
        found = generous.server.ask("GET", f"/apis/resource.k8s.io/{version}")
        if "resourceslices" not in {one["name"] for one in found["resources"]}:
            continue
        item = slice_of("drakit-rights-new", f"{family}.drakit.dev", OTHER) | {"apiVersion": f"resource.k8s.io/{version}"}
        path = f"/apis/resource.k8s.io/{version}/resourceslices"
        refused(stolen, lambda token, path=path, item=item: token.ask("POST", path, item), f"drakit-{family}", "of this node only")  # type: ignore[misc]


def test_a_token_ends_with_its_pod(generous: accounts.Installed) -> None:
    token = Token(generous.of_pod("drakit-gpu", OTHER))
    token.ask("GET", SLICES)
    generous.server.kubectl("delete", "pod", f"drakit-gpu-{OTHER}", "-n", accounts.NAMESPACE, "--force", "--grace-period=0")

    def is_over() -> bool:
        try:
            token.ask("GET", SLICES)
        except errors.ApiError as error:
            return error.status == 401
        return False

    accounts.wait("the end of the token", is_over)
    token.close()
