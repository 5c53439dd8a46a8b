"""Tokens of service accounts, bound to pods, as a kubelet asks for them."""

from collections.abc import Callable

import pytest

from drakit_cluster.access import users
from drakit_cluster.access.accounts import Accounts
from drakit_cluster.access.tokens import AUDIENCE, Tokens
from drakit_cluster.access.users import User
from drakit_cluster.api import apiserver, registry
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import NODE, POD, SECRET, SELF_REVIEW, SERVICEACCOUNT, TOKEN_REVIEW
from unit.cluster import samples

Connect = Callable[[str], client.ApiClient]
PATH = "/api/v1/namespaces/default/serviceaccounts/driver/token"
KUBELET = User(name="system:node:n1", groups=("system:nodes",))
ADMIN = User(name="root", groups=("system:masters",))


@pytest.fixture
def pod(memory: registry.Registry) -> Object:
    """The pod of a driver on node n1."""
    memory.create(NODE, {"metadata": {"name": "n1"}})
    memory.create(SERVICEACCOUNT, {"metadata": {"name": "driver"}}, namespace="default")
    wanted = samples.pod("driver-x", node="n1")
    json_types.mapping(wanted, "spec")["serviceAccountName"] = "driver"
    return memory.create(POD, wanted)


def bound(pod: Object, **spec: int) -> Object:
    uid = json_types.text(pod, "metadata", "uid")
    reference: Object = {"apiVersion": "v1", "kind": "Pod", "name": json_types.text(pod, "metadata", "name"), "uid": uid}
    return {"spec": {"boundObjectRef": reference, **spec}}


def token_of(answer: Object) -> str:
    return json_types.text(answer, "status", "token")


def test_a_token_names_its_pod_and_node(guarded: apiserver.ApiServer, connect: Connect, memory: registry.Registry, pod: Object) -> None:
    kubelet = connect(guarded.issue_node_token("n1"))
    answer = kubelet._object("POST", PATH, body=bound(pod))
    assert json_types.number(answer, "spec", "expirationSeconds") == 3600
    assert json_types.text(answer, "status", "expirationTimestamp").endswith("Z")
    me = json_types.mapping(connect(token_of(answer)).create(SELF_REVIEW, {}), "status", "userInfo")
    assert me["username"] == "system:serviceaccount:default:driver"
    assert me["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    assert me["uid"] == json_types.text(memory.get(SERVICEACCOUNT, "driver", "default"), "metadata", "uid")
    assert me["extra"] == {
        "authentication.kubernetes.io/node-name": ["n1"],
        "authentication.kubernetes.io/node-uid": [json_types.text(memory.get(NODE, "n1"), "metadata", "uid")],
        "authentication.kubernetes.io/pod-name": ["driver-x"],
        "authentication.kubernetes.io/pod-uid": [json_types.text(pod, "metadata", "uid")],
    }


@pytest.mark.parametrize("gone", ["pod", "account"])
def test_a_token_becomes_invalid_with_its_bound_object(
    guarded: apiserver.ApiServer, connect: Connect, memory: registry.Registry, pod: Object, gone: str
) -> None:
    holder = connect(token_of(connect(guarded.issue_node_token("n1"))._object("POST", PATH, body=bound(pod))))
    assert holder.create(SELF_REVIEW, {})
    if gone == "pod":
        memory.delete(POD, "driver-x", namespace="default", grace_seconds=0)
    else:
        memory.delete(SERVICEACCOUNT, "driver", namespace="default")
        memory.create(SERVICEACCOUNT, {"metadata": {"name": "driver"}}, namespace="default")
    with pytest.raises(errors.UnauthorizedError):
        holder.create(SELF_REVIEW, {})


def test_a_token_expires(memory: registry.Registry, pod: Object) -> None:
    now = [0.0]
    tokens = Tokens(clock=lambda: now[0])
    accounts = Accounts(store=memory.store, tokens=tokens)
    token = token_of(accounts.issue("default", "driver", bound(pod, expirationSeconds=600), ADMIN))
    now[0] = 599.0
    assert tokens.user(f"Bearer {token}").pod_node == "n1"
    now[0] = 600.0
    with pytest.raises(errors.UnauthorizedError):
        tokens.user(f"Bearer {token}")


def test_a_kubelet_gets_tokens_for_its_own_pods_only(memory: registry.Registry, pod: Object) -> None:
    accounts = Accounts(store=memory.store, tokens=Tokens())
    stranger = User(name="system:node:n2", groups=("system:nodes",))
    with pytest.raises(errors.ForbiddenError, match="different node"):
        accounts.issue("default", "driver", bound(pod), stranger)
    with pytest.raises(errors.ForbiddenError, match="not bound"):
        accounts.issue("default", "driver", {"spec": {}}, KUBELET)
    assert accounts.issue("default", "driver", {"spec": {}}, ADMIN)


def test_a_request_that_does_not_fit_is_refused(memory: registry.Registry, pod: Object) -> None:
    accounts = Accounts(store=memory.store, tokens=Tokens())
    memory.create(SERVICEACCOUNT, {"metadata": {"name": "other"}}, namespace="default")
    memory.create(SECRET, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}, namespace="default")
    wrong: Object = bound(pod)
    json_types.mapping(wrong, "spec", "boundObjectRef")["uid"] = "other"
    with pytest.raises(errors.ConflictError, match=r"boundObjectRef\.uid"):
        accounts.issue("default", "driver", wrong, ADMIN)
    with pytest.raises(errors.BadRequestError, match="does not use the service account other"):
        accounts.issue("default", "other", bound(pod), ADMIN)
    with pytest.raises(errors.InvalidError, match="10 minutes"):
        accounts.issue("default", "driver", bound(pod, expirationSeconds=60), ADMIN)
    with pytest.raises(errors.NotFoundError):
        accounts.issue("default", "missing", {"spec": {}}, ADMIN)
    with pytest.raises(errors.BadRequestError, match="Pod, Secret or Node"):
        accounts.issue("default", "driver", {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}}, ADMIN)
    secret: Object = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}}
    assert json_types.text(accounts.issue("default", "driver", secret, ADMIN), "status", "token")
    node: Object = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}}
    assert token_of(accounts.issue("default", "driver", node, ADMIN))


@pytest.mark.parametrize(
    "name, account",
    [
        ("system:serviceaccount:a:b", ("a", "b")),
        ("system:serviceaccount:a", None),
        ("system:serviceaccount::b", None),
        ("system:serviceaccount:a:b:c", None),
        ("ann", None),
    ],
)
def test_names_of_service_accounts_are_read_strictly(name: str, account: tuple[str, str] | None) -> None:
    assert User(name=name).account == account
    extra = {users.NODE_NAME: ("n1",)}
    assert User(name=name, extra=extra).pod_node == ("n1" if account else "")
    assert User(name="system:serviceaccount:a:b", extra={users.NODE_NAME: ("n1", "n2")}).pod_node == ""


def review(api: client.ApiClient, token: str, *audiences: str) -> Object:
    spec: Object = {"token": token} | ({"audiences": [*audiences]} if audiences else {})
    return json_types.mapping(api.create(TOKEN_REVIEW, {"spec": spec}), "status")


def test_a_token_review_reports_the_user_of_a_token(https: client.ApiClient, pod: Object) -> None:
    token = token_of(https._object("POST", PATH, body=bound(pod)))
    found = review(https, token)
    assert (found["authenticated"], found["audiences"]) == (True, [AUDIENCE])
    user = json_types.mapping(found, "user")
    assert user["username"] == "system:serviceaccount:default:driver"
    assert json_types.strings(user, "extra", users.NODE_NAME) == ["n1"]
    assert review(https, "nonsense") == {"user": {}, "error": "invalid bearer token"}
    assert "authenticated" not in review(https, token, "another")
    with pytest.raises(errors.BadRequestError, match="token is required"):
        review(https, "")


def test_a_token_for_another_audience_is_refused(
    guarded: apiserver.ApiServer, connect: Connect, https: client.ApiClient, pod: Object
) -> None:
    body: Object = {"spec": {"audiences": ["vault", "other"]}}
    admin = connect(guarded.issue_token("root", ("system:masters",)))
    answer = admin._object("POST", PATH, body=body)
    assert json_types.strings(answer, "spec", "audiences") == ["vault", "other"]
    with pytest.raises(errors.UnauthorizedError):
        connect(token_of(answer)).create(SELF_REVIEW, {})
    assert review(admin, token_of(answer), "vault", "third")["audiences"] == ["vault"]
    assert "authenticated" not in review(admin, token_of(answer))
    assert "authenticated" not in review(https, token_of(answer), "vault")  # Another server's token.
