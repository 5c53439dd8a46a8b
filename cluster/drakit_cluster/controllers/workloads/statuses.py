"""The status of workloads and its conditions. An unchanged condition keeps its times."""

from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import amend
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition. ``touched``: something went on, so that ``lastUpdateTime`` is renewed although the rest stays."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    touched: bool = False


def found(owner: Object, name: str) -> Object:
    """Return the condition of a type in the status of ``owner``, or an empty object."""
    return next((one for one in json_types.objects(owner, "status", "conditions") if one.get("type") == name), {})


def merged(owner: Object, wanted: Iterable[Condition]) -> Json:
    """Return the conditions of ``owner`` as its status lists them afterwards."""
    return [_written(found(owner, one.type), one) for one in wanted]


def _written(existing: Object, wanted: Condition) -> Json:
    same = (existing.get("status"), existing.get("reason") or "") == (wanted.status, wanted.reason)
    if same and not wanted.touched:
        return existing
    now = naming.now()
    changed = existing.get("status") != wanted.status
    body: Object = {"type": wanted.type, "status": wanted.status, "lastUpdateTime": now}
    body["lastTransitionTime"] = now if changed else json_types.text(existing, "lastTransitionTime")
    return body | {name: text for name, text in (("reason", wanted.reason), ("message", wanted.message)) if text}


def write(api: Api, resource: Resource, owner: Object, status: Object) -> None:
    """Write the fields of ``status``, and the generation of ``owner`` that they are of, if any differs. None removes a field."""
    wanted = status | {"observedGeneration": json_types.number(owner, "metadata", "generation")}
    if any(json_types.at(owner, "status", field) != value for field, value in wanted.items()):
        amend(api, resource, owner, {"status": wanted}, subresource="status")
