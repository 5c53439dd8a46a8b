"""Shapes of what guards the API: roles and their bindings, reviews, tokens, admission policies and webhooks."""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import ANY, STRINGS, ListOf, MapOf, atomic, by_key, struct

_RULES = ListOf(item=struct("verbs:[]! apiGroups:[] resources:[] resourceNames:[] nonResourceURLs:[]"))
ROLE = meta.kind(rules=_RULES)
CLUSTER_ROLE = meta.kind(rules=_RULES, aggregationRule=struct(clusterRoleSelectors=ListOf(item=meta.LABEL_SELECTOR)))
ROLE_BINDING = meta.kind("roleRef!", roleRef=atomic("apiGroup kind! name!"), subjects=ListOf(item=atomic("kind! apiGroup name! namespace")))

_ATTRIBUTES = struct("namespace verb group version resource subresource name fieldSelector:any labelSelector:any")
_PATH = struct("path verb")
_EXTRA = MapOf(value=STRINGS)
TOKEN_REVIEW = meta.kind("spec! status:any", spec=struct("token audiences:[]"))
ACCESS_REVIEW = meta.kind(
    "spec! status:any", spec=struct("user uid groups:[]", extra=_EXTRA, resourceAttributes=_ATTRIBUTES, nonResourceAttributes=_PATH)
)
SELF_ACCESS_REVIEW = meta.kind("spec! status:any", spec=struct(resourceAttributes=_ATTRIBUTES, nonResourceAttributes=_PATH))
SELF_RULES_REVIEW = meta.kind("spec! status:any", spec=struct("namespace"))
SELF_REVIEW = meta.kind(status=struct(userInfo=struct("username uid groups:[]", extra=_EXTRA)))
TOKEN_REQUEST = meta.kind(
    "spec!",
    spec=struct("audiences:[] expirationSeconds:int", boundObjectRef=struct("apiVersion kind name uid")),
    status=struct("token expirationTimestamp:time"),
)

_RULE = "operations:[] apiGroups:[] apiVersions:[] resources:[] scope"
_NAMED_RULES = ListOf(item=struct(f"{_RULE} resourceNames:[]"))
_MATCH = struct(
    "matchPolicy",
    namespaceSelector=meta.LABEL_SELECTOR,
    objectSelector=meta.LABEL_SELECTOR,
    resourceRules=_NAMED_RULES,
    excludeResourceRules=_NAMED_RULES,
)
_EXPRESSIONS = by_key("name", struct("name expression!"))
POLICY = meta.kind(
    "spec!",
    spec=struct(
        "failurePolicy",
        paramKind=atomic("apiVersion kind"),
        matchConstraints=_MATCH,
        validations=ListOf(item=struct("expression! message reason messageExpression")),
        auditAnnotations=ListOf(item=struct("key valueExpression")),
        matchConditions=_EXPRESSIONS,
        variables=_EXPRESSIONS,
    ),
    status=struct("observedGeneration:int", typeChecking=ANY, conditions=meta.CONDITIONS),
)
_PARAM_REF = atomic("name namespace parameterNotFoundAction", selector=meta.LABEL_SELECTOR)
POLICY_BINDING = meta.kind("spec!", spec=struct("policyName! validationActions:[]", paramRef=_PARAM_REF, matchResources=_MATCH))
_WEBHOOK = struct(
    "name! clientConfig! sideEffects! admissionReviewVersions:[]! failurePolicy matchPolicy timeoutSeconds:int",
    clientConfig=struct("url caBundle", service=struct("namespace name path port:int")),
    rules=ListOf(item=struct(_RULE)),
    namespaceSelector=meta.LABEL_SELECTOR,
    objectSelector=meta.LABEL_SELECTOR,
    matchConditions=_EXPRESSIONS,
)
WEBHOOKS = meta.kind(webhooks=by_key("name", _WEBHOOK))
