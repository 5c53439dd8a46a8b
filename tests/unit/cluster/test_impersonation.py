"""Acting as somebody else: kubectl --as, for those who may."""

import httpx
import pytest

from drakit_cluster.api import apiserver, registry, tls
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CONFIGMAP, SELF_REVIEW
from unit.cluster.test_roles import grant, rule

ACCOUNT = "system:serviceaccount:default:driver"
Headers = list[tuple[str, str]]


def ask(server: apiserver.ApiServer, token: str, headers: Headers, method: str = "GET", path: str = "") -> httpx.Response:
    trusted = tls.client_context(server.ca_pem)
    with httpx.Client(
        base_url=server.url, verify=trusted, trust_env=False, headers=[("Authorization", f"Bearer {token}"), *headers]
    ) as http:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"} if method == "POST" else None
        return http.request(method, path or CONFIGMAP.path("default"), json=body)


def who(server: apiserver.ApiServer, token: str, *headers: tuple[str, str]) -> Object:
    answer: Object = ask(server, token, [*headers], "POST", SELF_REVIEW.path()).json()
    return json_types.mapping(answer, "status", "userInfo")


@pytest.fixture
def admin(guarded: apiserver.ApiServer) -> str:
    return guarded.issue_token("root", ("system:masters",))


def test_it_is_the_other_who_is_judged(guarded: apiserver.ApiServer, memory: registry.Registry, admin: str) -> None:
    assert ask(guarded, admin, [("Impersonate-User", "bob")]).status_code == 403
    grant(memory, "bob", rule("list", "configmaps", group=""))
    assert ask(guarded, admin, [("Impersonate-User", "bob")]).status_code == 200


def test_the_other_has_the_groups_that_are_named_and_those_that_come_by_themselves(guarded: apiserver.ApiServer, admin: str) -> None:
    assert who(guarded, admin, ("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")) == {
        "username": "bob",
        "groups": ["a", "b", "system:authenticated"],
    }
    assert who(guarded, admin, ("Impersonate-User", ACCOUNT))["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    named = who(guarded, admin, ("Impersonate-User", "bob"), ("Impersonate-Uid", "7"), ("Impersonate-Extra-example.com%2fnode", "n1"))
    assert named == {"username": "bob", "uid": "7", "groups": ["system:authenticated"], "extra": {"example.com/node": ["n1"]}}


@pytest.mark.parametrize(
    "headers, missing",
    [
        ([("Impersonate-User", "bob")], "users"),
        ([("Impersonate-User", ACCOUNT)], "serviceaccounts"),
        ([("Impersonate-User", "ann"), ("Impersonate-Group", "system:masters")], "groups"),
        ([("Impersonate-User", "ann"), ("Impersonate-Uid", "7")], "uids"),
        ([("Impersonate-User", "ann"), ("Impersonate-Extra-node", "n1")], "userextras/node"),
    ],
)
def test_each_part_of_it_needs_its_right(guarded: apiserver.ApiServer, memory: registry.Registry, headers: Headers, missing: str) -> None:
    grant(memory, "alice", rule("impersonate", "users", group="", names="ann"), rule("list", "configmaps", group=""))
    refused = ask(guarded, guarded.issue_token("alice"), headers)
    assert refused.status_code == 403
    assert f'cannot impersonate resource "{missing}"' in refused.json()["message"]


def test_without_a_user_the_rest_is_refused(guarded: apiserver.ApiServer, admin: str) -> None:
    refused = ask(guarded, admin, [("Impersonate-Group", "system:masters")])
    assert refused.status_code == 400
    assert "Impersonate-User" in refused.json()["message"]
