"""Validating admission policies, above all the one that keeps drivers to the slices of their own node."""

from collections.abc import Callable

import httpx
import pytest

from drakit_cluster.access import users
from drakit_cluster.admission import expressions
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types, labels
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import ADMISSION_BINDING, ADMISSION_POLICY, CLASS, CONFIGMAP, NAMESPACE, SLICE
from unit.cluster import samples

Connect = Callable[[str], client.ApiClient]
DRIVER = "system:serviceaccount:drivers:gpu"
RULES: list[Json] = [
    {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1", "v1beta1", "v1beta2"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
    }
]
OWN_SLICES: Object = {
    "failurePolicy": "Fail",
    "matchConstraints": {"resourceRules": RULES},
    "matchConditions": [{"name": "isDriver", "expression": f'request.userInfo.username == "{DRIVER}"'}],
    "variables": [
        {
            "name": "userNodeName",
            "expression": 'request.userInfo.extra[?"authentication.kubernetes.io/node-name"][0].orValue("")',
        },
        {
            "name": "objectNodeName",
            "expression": '(request.operation == "DELETE" ? oldObject : object).spec.?nodeName.orValue("")',
        },
    ],
    "validations": [
        {"expression": 'variables.userNodeName != ""', "message": "no node association found for user"},
        {
            "expression": "variables.userNodeName == variables.objectNodeName",
            "messageExpression": '"this user running on node \'" + variables.userNodeName + "\' may not modify slices of others"',
        },
    ],
}


def install(memory: registry.Registry, policy: Object, *actions: str, **binding: Json) -> None:
    memory.create(ADMISSION_POLICY, {"metadata": {"name": "guard"}, "spec": policy})
    spec: Object = {"policyName": "guard", "validationActions": list(actions or ("Deny",)), **binding}
    memory.create(ADMISSION_BINDING, {"metadata": {"name": "guard-b"}, "spec": spec})


def driver(server: apiserver.ApiServer, node: str) -> client.ApiClient:
    extra = {users.NODE_NAME: (node,)} if node else {"authentication.kubernetes.io/credential-id": ("JTI=1",)}
    token = server.issue_token(DRIVER, ("system:masters",), extra=extra)
    return client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token)


def test_a_driver_writes_the_slices_of_its_own_node_only(server: apiserver.ApiServer, memory: registry.Registry) -> None:
    install(memory, OWN_SLICES)
    other = memory.create(SLICE, samples.slice_("other", nodeName="n2"))
    with driver(server, "n1") as mine:
        made = mine.create(SLICE, samples.slice_("mine"))
        mine.update(SLICE, made)
        attempts: list[Callable[[], object]] = [
            lambda: mine.create(SLICE, samples.slice_("x", nodeName="n2")),
            lambda: mine.create(SLICE, samples.slice_("x", nodeName=None, allNodes=True)),
            lambda: mine.update(SLICE, other),
            lambda: mine.patch(SLICE, "other", {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE),
            lambda: mine.delete(SLICE, "other"),
            lambda: mine.delete_collection(SLICE, field_selector="spec.nodeName=n2"),
        ]
        for attempt in attempts:
            with pytest.raises(errors.InvalidError) as refused:
                attempt()
            text = "ValidatingAdmissionPolicy 'guard' with binding 'guard-b' denied request: this user running on node 'n1'"
            assert text in refused.value.message
        mine.delete(SLICE, "mine")
    assert [json_types.text(one, "metadata", "name") for one in memory.list(SLICE).items] == ["other"]


def test_a_driver_without_a_node_writes_nothing_and_others_are_unaffected(
    server: apiserver.ApiServer, memory: registry.Registry, https: client.ApiClient
) -> None:
    install(memory, OWN_SLICES)
    with driver(server, "") as lost, pytest.raises(errors.InvalidError, match="no node association found for user"):
        lost.create(SLICE, samples.slice_())
    assert https.create(SLICE, samples.slice_("by-admin", nodeName="n2"))
    assert memory.create(SLICE, samples.slice_("by-the-cluster", nodeName="n3"))


def simple(expression: str, **more: Json) -> Object:
    rules: list[Json] = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
    return {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression, **more}]}


def test_the_message_names_the_expression_where_the_policy_has_none(https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, simple("object.metadata.name != 'bad'"))
    with pytest.raises(errors.InvalidError, match=r"failed expression: object\.metadata\.name != 'bad'"):
        https.create(CLASS, {"metadata": {"name": "bad"}, "spec": {}})
    assert https.create(CLASS, {"metadata": {"name": "good"}, "spec": {}})


@pytest.mark.parametrize("reason, kind", [("Forbidden", errors.ForbiddenError), ("Unauthorized", errors.UnauthorizedError)])
def test_a_validation_chooses_its_reason(
    https: client.ApiClient, memory: registry.Registry, reason: str, kind: type[errors.ApiError]
) -> None:
    install(memory, simple("false", reason=reason))
    with pytest.raises(kind, match="denied request"):
        https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_an_error_counts_as_the_failure_policy_says(https: client.ApiClient, memory: registry.Registry, policy: str) -> None:
    install(memory, simple("object.spec.missing == 1") | {"failurePolicy": policy})
    if policy == "Ignore":
        assert https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
        return
    with pytest.raises(errors.InvalidError, match="resulted in error: no such key: missing"):
        https.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})


def test_a_warning_lets_the_write_pass(raw: httpx.Client, memory: registry.Registry) -> None:
    install(memory, simple("false", message="think again"), "Warn")
    answer = raw.post(CLASS.path(), json={"metadata": {"name": "x"}, "spec": {}})
    assert answer.status_code == 201
    assert "think again" in answer.headers["warning"]


def test_selectors_limit_a_policy(https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, simple("false"), matchResources={"namespaceSelector": {"matchLabels": {"strict": "yes"}}})
    made: Object = {"metadata": {"name": "a"}}
    assert https.create(CONFIGMAP, made, namespace="default")
    memory.patch(NAMESPACE, "default", {"metadata": {"labels": {"strict": "yes"}}}, kind=PatchKind.MERGE)
    with pytest.raises(errors.InvalidError):
        https.create(CONFIGMAP, {"metadata": {"name": "b"}}, namespace="default")
    assert https.create(CONFIGMAP, made, namespace="kube-system")


def test_a_policy_cannot_prevent_its_own_deletion(https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, simple("false"))
    assert https.delete(ADMISSION_BINDING, "guard-b")
    assert https.delete(ADMISSION_POLICY, "guard")


@pytest.mark.parametrize(
    "change, field, text",
    [
        ({"validations": [{"expression": "object.x =="}]}, "spec.validations[0].expression", "Syntax error"),
        (
            {"validations": [{"expression": "authorizer.path('/x').check('get').allowed()"}]},
            "spec.validations[0].expression",
            "undeclared reference to 'authorizer'",
        ),
        ({"variables": [{"name": "a", "expression": "nothing"}]}, "spec.variables[0].expression", "undeclared reference to 'nothing'"),
        ({"matchConditions": [{"name": "a", "expression": "("}]}, "spec.matchConditions[0].expression", "Syntax error"),
        ({"paramKind": {"apiVersion": "v1"}}, "spec.paramKind.kind", "Required value"),
        ({"matchConstraints": {}}, "spec.matchConstraints.resourceRules", "Required value"),
        ({"failurePolicy": "Perhaps"}, "spec.failurePolicy", "Unsupported value"),
        ({"validations": []}, "spec.validations", "at least one item"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_by_field(memory: registry.Registry, change: Object, field: str, text: str) -> None:
    with pytest.raises(errors.InvalidError) as refused:
        memory.create(ADMISSION_POLICY, {"metadata": {"name": "x"}, "spec": OWN_SLICES | change})
    (cause,) = refused.value.details.causes
    assert cause.field == field
    assert text in cause.message


@pytest.mark.parametrize(
    "change, field",
    [
        ({"validationActions": []}, "spec.validationActions"),
        ({"validationActions": ["Deny", "Warn"]}, "spec.validationActions"),
        ({"validationActions": ["Shout"]}, "spec.validationActions[0]"),
        ({"paramRef": {"parameterNotFoundAction": "Deny"}}, "spec.paramRef"),
        ({"paramRef": {"name": "x", "selector": {}, "parameterNotFoundAction": "Deny"}}, "spec.paramRef.name"),
        ({"paramRef": {"name": "x"}}, "spec.paramRef.parameterNotFoundAction"),
        ({"paramRef": {"name": "x", "parameterNotFoundAction": "Warn"}}, "spec.paramRef.parameterNotFoundAction"),
    ],
)
def test_a_binding_that_cannot_work_is_refused_by_field(memory: registry.Registry, change: Object, field: str) -> None:
    spec: Object = {"policyName": "guard", "validationActions": ["Deny"]}
    with pytest.raises(errors.InvalidError) as refused:
        memory.create(ADMISSION_BINDING, {"metadata": {"name": "x"}, "spec": spec | change})
    assert [cause.field for cause in refused.value.details.causes] == [field]


def test_defaults_are_those_of_kubernetes(memory: registry.Registry) -> None:
    spec = {key: value for key, value in OWN_SLICES.items() if key != "failurePolicy"}
    made = memory.create(ADMISSION_POLICY, {"metadata": {"name": "x"}, "spec": spec})
    assert json_types.text(made, "spec", "failurePolicy") == "Fail"
    constraints = json_types.mapping(made, "spec", "matchConstraints")
    assert (constraints["matchPolicy"], constraints["objectSelector"], constraints["namespaceSelector"]) == ("Equivalent", {}, {})
    assert json_types.text(made, "spec", "matchConstraints", "resourceRules", 0, "scope") == "*"
    assert json_types.number(made, "metadata", "generation") == 1


def test_variables_are_evaluated_on_use_and_errors_reach_the_user() -> None:
    scope: dict[str, Json] = {"object": {"a": 1}}
    variables = expressions.Variables({"bad": "object.b", "good": "object.a + 1", "twice": "variables.good * 2"}, scope)
    known = scope | {"variables": variables}
    assert expressions.compiled("variables.twice == 4 || variables.bad == 1").verdict(known) is True
    with pytest.raises(expressions.ExpressionError, match="'bad' fails to evaluate: no such key: b"):
        expressions.compiled("variables.bad == 1").verdict(known)
    with pytest.raises(expressions.ExpressionError, match="no such key: other"):
        expressions.compiled("variables.other").value(known)
    with pytest.raises(expressions.ExpressionError, match="neither true nor false"):
        expressions.compiled("1 + 1").verdict(known)
    with pytest.raises(expressions.ExpressionError, match="undeclared reference to 'device'"):
        expressions.compiled("device.x")


@pytest.mark.parametrize(
    "requirement, chosen",
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
        ({"key": "a", "operator": "Wish"}, False),
    ],
)
def test_label_selectors_follow_their_operators(requirement: Json, chosen: bool) -> None:  # noqa: FBT001
    assert labels.selects({"matchExpressions": [requirement]}, {"metadata": {"labels": {"a": "1"}}}) is chosen
