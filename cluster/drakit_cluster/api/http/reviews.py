"""The kinds that are answered but not stored: reviews of users, access and tokens, and token requests of service accounts."""

from dataclasses import dataclass

from drakit_cluster.access import tokens
from drakit_cluster.access.accounts import Accounts
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.admission.request_review import user_info
from drakit_cluster.api.http.targets import Target
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table as shapes


@dataclass(frozen=True, kw_only=True)
class Reviews:
    """The answers to reviews and token requests."""

    authorizer: Authorizer
    accounts: Accounts

    def answer(self, target: Target, body: Object, user: User) -> Object:
        """Return the review that was posted, with its status."""
        if target.subresource == "token":
            request, _ = shapes.decode(resources.TOKEN_REQUEST, body)
            return self.accounts.issue(target.namespace, target.name, request, user)
        review, _ = shapes.decode(target.resource, body)
        return review | {"status": self._status(target.resource, review, user)}

    def _status(self, resource: Resource, review: Object, user: User) -> Object:
        if resource is resources.SELF_REVIEW:
            return {"userInfo": user_info(user)}
        if resource is resources.SELF_RULES_REVIEW:
            return self._self_rules(review, user)
        if resource is resources.TOKEN_REVIEW:
            return self._token(review)
        return self._access(review, user if resource is resources.SELF_ACCESS_REVIEW else _subject(review))

    def _token(self, review: Object) -> Object:
        requested = tuple(json_types.strings(review, "spec", "audiences")) or (tokens.AUDIENCE,)
        if not json_types.text(review, "spec", "token"):
            raise errors.BadRequestError("token is required for TokenReview in authentication")
        issued = self.accounts.tokens.lookup(json_types.text(review, "spec", "token"))
        audiences = [audience for audience in issued[1] if audience in requested] if issued is not None else []
        if issued is None or not audiences:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user_info(issued[0]), "audiences": json_types.from_strings(audiences)}

    def _access(self, review: Object, user: User) -> Object:
        return {"allowed": self.authorizer.allows(user, _attributes(json_types.mapping(review, "spec")))}

    def _self_rules(self, review: Object, user: User) -> Object:
        namespace = json_types.text(review, "spec", "namespace")
        if not namespace:
            raise errors.BadRequestError("spec.namespace: no namespace on request")
        rules = self.authorizer.rules_of(user, namespace)
        status: Object = {"incomplete": bool(user.node)}
        status["resourceRules"] = [rule for rule in rules if "nonResourceURLs" not in rule]
        status["nonResourceRules"] = [rule for rule in rules if "nonResourceURLs" in rule]
        return status


def _subject(review: Object) -> User:
    spec = json_types.mapping(review, "spec")
    extra = {key: tuple(json_types.strings(spec, "extra", key)) for key in json_types.mapping(spec, "extra")}
    groups = tuple(json_types.strings(spec, "groups"))
    if not json_types.text(spec, "user") and not groups:
        raise errors.InvalidError("spec.user: Required value: at least one of user or group must be specified")
    return User(name=json_types.text(spec, "user"), uid=json_types.text(spec, "uid"), groups=groups, extra=extra)


def _attributes(spec: Object) -> Attributes:
    resource, url = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (url is None):
        message = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise errors.InvalidError(f"spec.resourceAttributes: Invalid value: {message}")
    if url is not None:
        return Attributes(verb=json_types.text(url, "verb"), path=json_types.text(url, "path"))
    terms = [
        requirement for requirement in json_types.objects(resource, "fieldSelector", "requirements") if requirement.get("operator") == "In"
    ]
    selected = ",".join(f"{json_types.text(term, 'key')}={','.join(json_types.strings(term, 'values'))}" for term in terms)
    fields = {field: json_types.text(resource, field) for field in ("verb", "group", "resource", "subresource", "namespace", "name")}
    return Attributes(**fields, field_selector=json_types.text(resource, "fieldSelector", "rawSelector") or selected)
