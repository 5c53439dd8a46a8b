"""Acting as somebody else: the Impersonate headers, as ``kubectl --as`` sends them, and the rights that they need.

The rights are of the verb impersonate: on the user or service account, on each group, and on the UID and each value of extra that is named.
"""

import urllib.parse
from collections.abc import Iterator

from starlette.datastructures import Headers

from drakit_cluster.access import users
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.objects import errors

_VERB = "impersonate"
_IDENTITY = "authentication.k8s.io"
_EXTRA = "impersonate-extra-"
_ANONYMOUS = "system:anonymous"


def wanted(headers: Headers) -> User | None:
    """Return who a request wants to act as, with nothing but what it names; None for requests that speak for themselves."""
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        if name.startswith(_EXTRA):
            key = urllib.parse.unquote(name.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    user = User(
        name=headers.get("impersonate-user", ""),
        uid=headers.get("impersonate-uid", ""),
        groups=tuple(headers.getlist("impersonate-group")),
        extra=extra,
    )
    if not user.name and (user.uid or user.groups or user.extra):
        raise errors.BadRequestError("Impersonate-User: is missing beside the other Impersonate headers: name the user too")
    return user if user.name else None


def rights(user: User) -> Iterator[Attributes]:
    """Yield what somebody must be allowed to do in order to act as ``user``."""
    if user.account is not None:
        namespace, name = user.account
        yield Attributes(verb=_VERB, resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield Attributes(verb=_VERB, resource="users", name=user.name)
    for group in user.groups:
        yield Attributes(verb=_VERB, resource="groups", name=group)
    if user.uid:
        yield Attributes(verb=_VERB, group=_IDENTITY, resource="uids", name=user.uid)
    for key, values in user.extra.items():
        for value in values:
            yield Attributes(verb=_VERB, group=_IDENTITY, resource="userextras", subresource=key, name=value)


def completed(user: User) -> User:
    """Return the user with the groups that come by themselves: those of a service account for which none are named, and the authenticated."""
    groups = user.groups
    if user.account is not None and not groups:
        groups = users.account_groups(user.account[0])
    if user.name != _ANONYMOUS and not {users.AUTHENTICATED, users.UNAUTHENTICATED} & {*groups}:
        groups = (*groups, users.AUTHENTICATED)
    return User(name=user.name, uid=user.uid, groups=groups, extra=user.extra)
