"""The kinds that are answered and forgotten: who am I, what may I do, and tokens of service accounts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drakit_cluster.access import tokens
from drakit_cluster.access.accounts import Accounts
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.admission.request_review import user_info
from drakit_cluster.api.http.targets import Target
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table as shapes


@dataclass(frozen=True, kw_only=True)
class Reviews:
    """Answers reviews for the user who posts them."""

    authorizer: Authorizer
    accounts: Accounts

    def answer(self, target: Target, body: Object, user: User) -> Object:
        """Return the review that was posted, with its status."""
        if target.subresource == "token":
            request, _ = shapes.decode(resources.TOKEN_REQUEST, body)
            return self.accounts.issue(target.namespace, target.name, request, user)
        review, _ = shapes.decode(target.resource, body)
        within = json_types.text(review, "spec", "resourceAttributes", "namespace")
        if target.resource is resources.LOCAL_ACCESS_REVIEW and within != target.namespace:
            raise errors.BadRequestError(f"spec.resourceAttributes.namespace must match namespace: {target.namespace}")
        return review | {"status": _ANSWERS[target.resource](self, review, user)}

    def _self(self, _review: Object, user: User) -> Object:
        return {"userInfo": user_info(user)}

    def _self_access(self, review: Object, user: User) -> Object:
        return self._access(review, user)

    def _token(self, review: Object, _user: User) -> Object:
        asked = tuple(json_types.strings(review, "spec", "audiences")) or (tokens.AUDIENCE,)
        if not json_types.text(review, "spec", "token"):
            raise errors.BadRequestError("token is required for TokenReview in authentication")
        known = self.accounts.tokens.known(json_types.text(review, "spec", "token"))
        meant = [one for one in known[1] if one in asked] if known is not None else []
        if known is None or not meant:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user_info(known[0]), "audiences": json_types.from_strings(meant)}

    def _subject_access(self, review: Object, _user: User) -> Object:
        spec = json_types.mapping(review, "spec")
        extra = {key: tuple(json_types.strings(spec, "extra", key)) for key in json_types.mapping(spec, "extra")}
        groups = tuple(json_types.strings(spec, "groups"))
        subject = User(name=json_types.text(spec, "user"), uid=json_types.text(spec, "uid"), groups=groups, extra=extra)
        if not subject.name and not groups:
            raise errors.InvalidError("spec.user: Required value: at least one of user or group must be specified")
        return self._access(review, subject)

    def _access(self, review: Object, user: User) -> Object:
        spec = json_types.mapping(review, "spec")
        asked, url = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (asked is None) == (url is None):
            message = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise errors.InvalidError(f"spec.resourceAttributes: Invalid value: {message}")
        wanted = _resource_attributes(json_types.mapping(asked)) if url is None else _path_attributes(json_types.mapping(url))
        return {"allowed": self.authorizer.allows(user, wanted)}

    def _self_rules(self, review: Object, user: User) -> Object:
        namespace = json_types.text(review, "spec", "namespace")
        if not namespace:
            raise errors.BadRequestError("spec.namespace: no namespace on request")
        rules = self.authorizer.rules_of(user, namespace)
        status: Object = {"incomplete": bool(user.node)}
        status["resourceRules"] = [rule for rule in rules if "nonResourceURLs" not in rule]
        status["nonResourceRules"] = [rule for rule in rules if "nonResourceURLs" in rule]
        return status


_ANSWERS: Mapping[Resource, Callable[[Reviews, Object, User], Object]] = {
    resources.TOKEN_REVIEW: Reviews._token,  # noqa: SLF001 -- as below.
    resources.LOCAL_ACCESS_REVIEW: Reviews._subject_access,  # noqa: SLF001
    resources.SELF_REVIEW: Reviews._self,  # noqa: SLF001 -- this module's own.
    resources.ACCESS_REVIEW: Reviews._subject_access,  # noqa: SLF001
    resources.SELF_ACCESS_REVIEW: Reviews._self_access,  # noqa: SLF001
    resources.SELF_RULES_REVIEW: Reviews._self_rules,  # noqa: SLF001
}


def _resource_attributes(asked: Object) -> Attributes:
    terms = json_types.objects(asked, "fieldSelector", "requirements")
    selected = [f"{json_types.text(one, 'key')}={','.join(json_types.strings(one, 'values'))}" for one in terms if _is_in(one)]
    raw = json_types.text(asked, "fieldSelector", "rawSelector")
    return Attributes(
        verb=json_types.text(asked, "verb"),
        group=json_types.text(asked, "group"),
        resource=json_types.text(asked, "resource"),
        subresource=json_types.text(asked, "subresource"),
        namespace=json_types.text(asked, "namespace"),
        name=json_types.text(asked, "name"),
        field_selector=raw or ",".join(selected),
    )


def _is_in(requirement: Json) -> bool:
    return json_types.text(requirement, "operator") == "In"


def _path_attributes(asked: Object) -> Attributes:
    return Attributes(verb=json_types.text(asked, "verb"), path=json_types.text(asked, "path"))
