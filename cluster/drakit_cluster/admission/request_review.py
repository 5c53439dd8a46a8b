"""The review of one request over HTTPS: the rights of its user, then policies and webhooks."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from drakit_cluster.access import nodes, users
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.admission import claim_status, kinds, policies, webhooks
from drakit_cluster.admission.matching import Subject
from drakit_cluster.api.reviewing import Change, Operation, Review
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation.failure import Failure


@dataclass(frozen=True, kw_only=True)
class RequestReview(Review):
    """One request's writes. ``verb`` is the request's own, ``dry_run`` its parameter; ``warnings`` collects the warnings of the response."""

    user: User
    verb: str
    authorizer: Authorizer
    store: Store
    gates: FeatureGates
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    seen_as: Callable[[Change], Change] = lambda change: change
    """Returns the change that policies and webhooks see: a request for a sub-resource with a kind of its own shows that kind."""

    def as_post(self, subresource: str, body: Object) -> "RequestReview":
        """Return the review of a body that is posted to a sub-resource, whatever the request does to the stored object."""
        return replace(self, seen_as=lambda change: _posted(change, subresource, body))

    def as_part(self, subresource: str, kind: tuple[str, str, str], part: Callable[[Object], Object]) -> "RequestReview":
        """Return the review of an update of a part of the object: ``kind`` is the part's group, version and kind."""
        return replace(self, seen_as=lambda change: _part(change, subresource, kind, part))

    def failures(self, change: Change) -> list[Failure]:
        """Return the parts of a claim's status that the user may not change, and the fields that this cluster would ignore."""
        failures = list(kinds.unbuilt(change))
        if self.gates.on(Gate.CLAIM_STATUS_RIGHTS):
            failures += claim_status.failures(change, self.user, self.verb, self.authorizer)
        return failures

    def waits(self, change: Change) -> bool:
        """Return whether a webhook must be called."""
        return bool(webhooks.matching_hooks(self.store, self._subject(change)))

    def admit(self, change: Change) -> None:
        """Raise the error of the first refusal: the node restriction's, a policy's, a webhook's."""
        self._check_node(change)
        self._check_created_by_patch(change)
        subject = self._subject(change)
        request = self._request(self.seen_as(change))
        self.warnings.extend(policies.check(self.store, subject, request))
        for hook in webhooks.matching_hooks(self.store, subject):
            self.warnings.extend(webhooks.review(hook, subject, request))

    def _check_node(self, change: Change) -> None:
        """Refuse a kubelet's write of objects of another node, unless its user may do everything."""
        refused = self.user.node and change.new is not None and nodes.refusal(self.user.node, change.resource, change.new)
        if refused and not self.authorizer.allows(self.user, _ANYTHING):
            raise _forbidden(change, refused)

    def _check_created_by_patch(self, change: Change) -> None:
        """Refuse an apply that creates an object if the user may not create it."""
        if change.operation is not Operation.CREATE or self.verb == "create":
            return
        resource = change.resource
        attributes = Attributes(
            verb="create", group=resource.group, resource=resource.plural, namespace=change.key.namespace, name=change.key.name
        )
        if not self.authorizer.allows(self.user, attributes):
            raise _forbidden(change, users.denial(self.user, attributes))

    def _subject(self, written: Change) -> Subject:
        change = self.seen_as(written)
        return Subject(
            operation=change.operation,
            resource=change.resource,
            subresource=change.subresource,
            name=change.key.name,
            new=change.new,
            old=change.before.view if change.before else None,
            namespace=self._namespace(change),
        )

    def _namespace(self, change: Change) -> Object | None:
        stored = self.store.get(resources.NAMESPACE, Key("", change.key.namespace)) if change.key.namespace else None
        return stored.view if stored is not None else None

    def _request(self, change: Change) -> Object:
        resource = change.resource
        group, version, kind_name = change.kind or (resource.group, resource.version, resource.kind)
        kind: Json = {"group": group, "version": version, "kind": kind_name}
        target: Json = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        request: Object = {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": target,
            "requestKind": kind,
            "requestResource": target,
            "name": change.key.name,
            "operation": change.operation.value,
            "userInfo": user_info(self.user),
            "object": change.new,
            "oldObject": change.before.view if change.before else None,
            "dryRun": self.dry_run,
            "options": None,
        }
        if change.subresource:
            request |= {"subResource": change.subresource, "requestSubResource": change.subresource}
        return request | ({"namespace": change.key.namespace} if change.key.namespace else {})


def _posted(change: Change, subresource: str, body: Object) -> Change:
    posted = resources.POSTED[subresource]
    shown = {"apiVersion": posted.api_version, "kind": posted.kind, **body}
    kind = (posted.group, posted.version, posted.kind)
    return replace(change, operation=Operation.CREATE, subresource=subresource, before=None, new=shown, kind=kind)


def _part(change: Change, subresource: str, kind: tuple[str, str, str], part: Callable[[Object], Object]) -> Change:
    before = replace(change.before, view=part(change.before.view)) if change.before else None
    return replace(change, subresource=subresource, before=before, new=part(change.new) if change.new else None, kind=kind)


_ANYTHING = Attributes(verb="*", group="*", resource="*")


def user_info(user: User) -> Object:
    """Return a user as authentication.k8s.io/v1 describes it."""
    info: Object = {"username": user.name, "groups": json_types.from_strings(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    return info | ({"extra": {key: list(values) for key, values in user.extra.items()}} if user.extra else {})


def _forbidden(change: Change, why: str) -> errors.ForbiddenError:
    details = Details(name=change.key.name, group=change.resource.group, kind=change.resource.plural)
    return errors.ForbiddenError(f'{change.resource.qualified} "{change.key.name}" is forbidden: {why}', details)
