"""Picks to AllocationResults: results, configuration, and the nodes on which the result is usable (ResourceClaim.status.allocation)."""

import functools
from collections.abc import Callable, Mapping, Sequence

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Format, Quantity
from drakit_cluster.scheduling.allocator.requests import Claim, Option, Request
from drakit_cluster.scheduling.allocator.world import Pick


class Writer:
    """Writes the results of one allocation for one node."""

    def __init__(self, node: Object, features: FeatureGates, new_share_id: Callable[[], str]) -> None:
        self._node_name = json_types.text(node, "metadata", "name")
        self._features = features
        self._new_share_id = new_share_id

    def write(self, claim: Claim, picks: Sequence[Pick]) -> Object:
        """Return the AllocationResult of one claim. Raises AllocationError for a node selector of several terms."""
        chosen = _chosen_options(claim, picks)
        allocated: Object = {"results": [self._result(pick) for pick in picks]}
        if configs := [*_class_configs(chosen), *_claim_configs(claim, chosen)]:
            allocated["config"] = json_types.from_objects(configs)
        result: Object = {"devices": allocated}
        selector = self._node_selector(claim, picks)
        if selector is not None:
            result["nodeSelector"] = selector
        return result

    def _result(self, pick: Pick) -> Object:
        device = pick.device
        driver, pool, name = device.id
        result: Object = {"request": pick.option.name, "driver": driver, "pool": pool, "device": name}
        if pick.option.want.admin:
            result["adminAccess"] = True
        if pick.option.tolerations:
            result["tolerations"] = json_types.copy(pick.option.tolerations)
        for field in ("bindingConditions", "bindingFailureConditions"):
            if (conditions := device.spec.get(field)) and self._features.on(Gate.BINDING_CONDITIONS):
                result[field] = json_types.copy(conditions)
        if device.skipped_operations:
            if not self._features.on(Gate.OPTIONAL_NODE_OPERATIONS):
                raise AllocationError(
                    f"device {device.id}: its slice has skipNodeOperations, but the feature {Gate.OPTIONAL_NODE_OPERATIONS} is off"
                )
            result["skipNodeOperations"] = json_types.copy(device.skipped_operations)
        if pick.shared:
            result["shareID"] = self._new_share_id()
        if pick.demands:
            result["consumedCapacity"] = _consumed(pick)
        return result

    def _node_selector(self, claim: Claim, picks: Sequence[Pick]) -> Object | None:
        """Return where the allocation is usable: this node if a device is local or binds, else all requirements; None for everywhere."""
        fields: list[Json] = []
        expressions: list[Json] = []
        for pick in picks:
            place = pick.device.place
            if place.get("nodeName") is not None or pick.device.spec.get("bindsToNode") is True:
                return _node_name_selector(self._node_name)
            terms = json_types.objects(place, "nodeSelector", "nodeSelectorTerms")
            if len(terms) > 1:
                raise AllocationError(
                    f"{claim.label}: device {pick.device.id}: nodeSelector has {len(terms)} terms; exactly one is supported"
                )
            for term in terms:
                _add_new(fields, json_types.objects(term, "matchFields"))
                _add_new(expressions, json_types.objects(term, "matchExpressions"))
        term_of_all: Object = {}
        if expressions:
            term_of_all["matchExpressions"] = expressions
        if fields:
            term_of_all["matchFields"] = fields
        return {"nodeSelectorTerms": [term_of_all]} if term_of_all else None


def _consumed(pick: Pick) -> Object:
    capacities = pick.device.capacities
    consumed: Object = {}
    for demand in pick.demands:
        consumed[demand.name] = _written(demand.amount, binary=capacities[demand.name].value.format is Format.BINARY)
    return consumed


@functools.lru_cache(maxsize=4096)
def _written(nanos: int, *, binary: bool) -> str:
    return str(Quantity(nanos=nanos, format=Format.BINARY if binary else Format.DECIMAL))


def _node_name_selector(node_name: str) -> Object:
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}]}


def _add_new(requirements: list[Json], more: Sequence[Object]) -> None:
    existing = {_requirement_key(requirement_) for requirement_ in requirements if isinstance(requirement_, dict)}
    for requirement in more:
        if _requirement_key(requirement) not in existing:
            existing.add(_requirement_key(requirement))
            requirements.append(json_types.copy(requirement))


def _requirement_key(requirement: Object) -> tuple[str, str, frozenset[str]]:
    return (
        json_types.text(requirement, "key"),
        json_types.text(requirement, "operator"),
        frozenset(json_types.strings(requirement, "values")),
    )


def _chosen_options(claim: Claim, picks: Sequence[Pick]) -> list[tuple[Request, Option]]:
    """Return each request with its chosen option. A request without picks (count 0) gets its first option."""
    taken: Mapping[str, Option] = {pick.option.base: pick.option for pick in picks}
    return [(request, taken.get(request.name, request.options[0])) for request in claim.requests]


def _class_configs(chosen: Sequence[tuple[Request, Option]]) -> list[Object]:
    """Return the configuration of each class once, with the names of all requests that use it, in order of first use."""
    by_class: dict[str, list[Object]] = {}
    for _, option in chosen:
        name = option.want.class_name
        if name in by_class:
            for config in by_class[name]:
                json_types.items(config, "requests").append(option.name)
            continue
        by_class[name] = [
            _config("FromClass", [option.name], config) for config in json_types.objects(option.device_class, "spec", "config")
        ]
    return [config for configs in by_class.values() for config in configs]


def _claim_configs(claim: Claim, chosen: Sequence[tuple[Request, Option]]) -> list[Object]:
    """Return the claim's configuration that concerns the chosen options: once if for all requests, else once per request that it names."""
    configs: list[Object] = []
    if not json_types.at(claim.source, "spec", "devices", "config"):
        return configs
    for config in json_types.objects(claim.source, "spec", "devices", "config"):
        names = json_types.strings(config, "requests")
        concerned = [option for request, option in chosen if request.name in names or option.name in names]
        configs += [_config("FromClaim", names, config) for _ in (concerned if names else (None,))]
    return configs


def _config(source: str, requests: Sequence[str], config: Object) -> Object:
    written: Object = {"source": source}
    if requests:
        written["requests"] = json_types.from_strings(requests)
    written.update((name, json_types.copy(value)) for name, value in config.items() if name not in written and name != "requests")
    return written
