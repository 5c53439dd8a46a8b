"""Shapes of what guards writes: validating admission policies, their bindings, and webhooks."""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import ANY, INTEGER, STRING, ListOf, Shape, Struct

_STRINGS = ListOf(item=STRING)
_RULE: dict[str, Shape] = {"operations": _STRINGS, "apiGroups": _STRINGS, "apiVersions": _STRINGS, "resources": _STRINGS, "scope": STRING}
_RULES = ListOf(item=Struct(fields=_RULE | {"resourceNames": _STRINGS}))
_MATCH = Struct(
    fields={
        "namespaceSelector": meta.LABEL_SELECTOR,
        "objectSelector": meta.LABEL_SELECTOR,
        "resourceRules": _RULES,
        "excludeResourceRules": _RULES,
        "matchPolicy": STRING,
    }
)


def _expressions(*more: str) -> Struct:
    return Struct(fields={"name": STRING, "expression": STRING} | dict.fromkeys(more, STRING), required=("expression",))


_CONDITIONS = ListOf(item=_expressions(), keys=("name",), merge_key="name")
_VALIDATIONS = ListOf(
    item=Struct(fields={"expression": STRING, "message": STRING, "reason": STRING, "messageExpression": STRING}, required=("expression",))
)
_POLICY_SPEC = Struct(
    fields={
        "paramKind": Struct(fields={"apiVersion": STRING, "kind": STRING}, atomic=True),
        "matchConstraints": _MATCH,
        "validations": _VALIDATIONS,
        "failurePolicy": STRING,
        "auditAnnotations": ListOf(item=Struct(fields={"key": STRING, "valueExpression": STRING})),
        "matchConditions": _CONDITIONS,
        "variables": ListOf(item=_expressions(), keys=("name",), merge_key="name"),
    }
)
_POLICY_STATUS = Struct(
    fields={"observedGeneration": INTEGER, "typeChecking": ANY, "conditions": ListOf(item=meta.CONDITION, keys=("type",))}
)
POLICY = meta.kind({"spec": _POLICY_SPEC, "status": _POLICY_STATUS}, required=("spec",))
_PARAM_REF = Struct(
    fields={"name": STRING, "namespace": STRING, "selector": meta.LABEL_SELECTOR, "parameterNotFoundAction": STRING}, atomic=True
)
BINDING = meta.kind(
    {
        "spec": Struct(
            fields={"policyName": STRING, "paramRef": _PARAM_REF, "matchResources": _MATCH, "validationActions": _STRINGS},
            required=("policyName",),
        )
    },
    required=("spec",),
)
_CLIENT = Struct(
    fields={
        "url": STRING,
        "caBundle": STRING,
        "service": Struct(fields={"namespace": STRING, "name": STRING, "path": STRING, "port": INTEGER}),
    }
)
_WEBHOOK = Struct(
    fields={
        "name": STRING,
        "clientConfig": _CLIENT,
        "rules": ListOf(item=Struct(fields=_RULE)),
        "failurePolicy": STRING,
        "matchPolicy": STRING,
        "namespaceSelector": meta.LABEL_SELECTOR,
        "objectSelector": meta.LABEL_SELECTOR,
        "sideEffects": STRING,
        "timeoutSeconds": INTEGER,
        "admissionReviewVersions": _STRINGS,
        "matchConditions": _CONDITIONS,
    },
    required=("name", "clientConfig", "sideEffects", "admissionReviewVersions"),
)
_MUTATING = Struct(fields={**_WEBHOOK.fields, "reinvocationPolicy": STRING}, required=_WEBHOOK.required)
WEBHOOKS = meta.kind({"webhooks": ListOf(item=_WEBHOOK, keys=("name",), merge_key="name")})
MUTATING_WEBHOOKS = meta.kind({"webhooks": ListOf(item=_MUTATING, keys=("name",), merge_key="name")})
