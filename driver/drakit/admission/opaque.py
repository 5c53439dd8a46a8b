"""Check the opaque parameters of an object for this program's drivers, decoded as ``prepare`` decodes them.

``drakit webhook`` and ``drakit lint`` use this. Checks that depend on the allocated device, the node or another object are left to ``prepare``, which
may still reject a configuration that passes here. ``prepare`` rejects every configuration that is rejected here.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drakit.core import claim as claims
from drakit.core import config, errors, records
from drakit.core.encoding import opaque_parameters, wire
from drakit.kube import api_objects, claim_codec

ENTRIES_MAX = 32
"""The API's limit of configurations in one object. No more are read, because any client in the pod network may call the webhook."""
VALUES_MAX = opaque_parameters.SIZE_MAX
"""The limit of values in the parameters of a configuration; each takes at least one byte of JSON."""
VERSIONS = ("v1", "v1beta2", "v1beta1")
GROUP = "resource.k8s.io"

Rules = Mapping[str, config.Rules]
"""The rules for configurations of each driver, by the driver's name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object: its resource, the path of its configurations (equal in all versions), and their source."""

    resource: str
    path: Sequence[str]
    source: claims.ConfigSource


KINDS: Mapping[str, Kind] = {
    "ResourceClaim": Kind(resource="resourceclaims", path=("spec", "devices", "config"), source=claims.ConfigSource.CLAIM),
    "ResourceClaimTemplate": Kind(
        resource="resourceclaimtemplates", path=("spec", "spec", "devices", "config"), source=claims.ConfigSource.CLAIM
    ),
    "DeviceClass": Kind(resource="deviceclasses", path=("spec", "config"), source=claims.ConfigSource.CLASS),
}


def is_known(api_version: str, kind: str) -> bool:
    """Return whether objects of this apiVersion and kind can be checked."""
    group, _, version = api_version.partition("/")
    return group == GROUP and version in VERSIONS and kind in KINDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Opaque:
    driver: str = ""
    parameters: object = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Entry:
    opaque: _Opaque = dataclasses.field(default_factory=_Opaque)


_OBJECT = api_objects.FORMAT.converter(Mapping[str, object])
_LIST = api_objects.FORMAT.converter(tuple[object, ...])
_ENTRY = api_objects.FORMAT.converter(_Entry)


def mistakes(kind: str, obj: records.Json, rules: Rules) -> Sequence[errors.ConfigError]:
    """Return the errors that ``prepare`` would raise for an object of one of ``KINDS``, at most one for each configuration, with paths as fields."""
    return tuple(itertools.islice(_mistakes(KINDS[kind], obj, rules), ENTRIES_MAX))


def warnings(kind: str, obj: records.Json, rules: Rules) -> Sequence[errors.ConfigError]:
    """Return likely mistakes in the configurations of an object that ``mistakes`` finds none in, with paths as fields."""
    return tuple(itertools.islice(_warnings(KINDS[kind], obj, rules), ENTRIES_MAX))


def _warnings(kind: Kind, obj: Any, rules: Rules) -> Iterator[errors.ConfigError]:
    for key in kind.path:
        obj = (obj or {}).get(key)
    for number, entry in enumerate(obj or ()):
        opaque: _Opaque = _ENTRY.decode(entry).opaque
        if opaque.driver in rules:
            parameters = claim_codec.PARAMETERS.decode(opaque.parameters)
            path = f"{'.'.join(kind.path)}[{number}].opaque"
            yield from (warning.with_prefix(path) for warning in config.warnings(parameters, rules[opaque.driver]))


def fits(driver: str, parameters: object, attributes: Mapping[str, object], rules: Rules) -> bool:
    """Return whether parameters are for a device of a driver. Parameters of other drivers, and those that cannot be decoded, count as fitting."""
    if driver not in rules:
        return True
    try:
        record = wire.decode(claim_codec.PARAMETERS, parameters, "parameters")
        return rules[driver].fits(config.decode(record, rules[driver].types), attributes)
    except errors.ConfigError:
        return True


def repetitions(kind: str, obj: Any, rules: Rules) -> Sequence[errors.ConfigError]:
    """Return the values that two devices of a claim would both get, which ``prepare`` refuses. ``mistakes`` finds none in the object.

    A configuration that names no request counts only in a claim of one request, because in others it may be for any of them.
    """
    path = KINDS[kind].path
    for key in path[:-1]:
        obj = (obj or {}).get(key) or {}
    counts = {str(request.get("name")): _least_devices(request) for request in _objects(obj.get("requests"))}
    found: list[errors.ConfigError] = []
    owners: dict[tuple[str, str, str], str] = {}
    for number, entry in enumerate(_objects(obj.get(path[-1]))):
        opaque: _Opaque = _ENTRY.decode(entry).opaque
        requests = entry.get("requests")
        named = [str(name) for name in requests] if requests and isinstance(requests, list) else [*counts] if len(counts) == 1 else []
        if opaque.driver not in rules or not named:
            continue
        rule = rules[opaque.driver]
        unique = rule.unique(config.decode(claim_codec.PARAMETERS.decode(opaque.parameters), rule.types))
        for field, value in unique.items():
            owner = owners.setdefault((opaque.driver, field.partition("[")[0], value), named[0])
            times = sum(counts.get(request.partition("/")[0], 1) for request in named)
            if times > 1 or owner != named[0]:
                others = ", ".join(dict.fromkeys([owner, *named]))
                where = f"{'.'.join(path)}[{number}].opaque.parameters.{field}"
                found.append(errors.ConfigError(f"{value} would be that of several devices ({others}); {_APART}", field=where))
    return tuple(found)


_APART = "write a request and a configuration for each device"


def _least_devices(request: Mapping[str, Any]) -> int:
    """Return how many devices a request gets at least."""
    exactly = request.get("exactly")
    alternatives = _objects(request.get("firstAvailable")) or [exactly if isinstance(exactly, Mapping) else request]
    counts = [option.get("count") if option.get("allocationMode") != "All" else 1 for option in alternatives]
    return min(count if isinstance(count, int) else 1 for count in counts)


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [element for element in value if isinstance(element, Mapping)] if isinstance(value, list) else []


def _mistakes(kind: Kind, obj: Any, rules: Rules) -> Iterator[errors.ConfigError]:
    path = ""
    try:
        for key in kind.path:
            obj = {} if obj is None else wire.decode(_OBJECT, obj, path)
            obj, path = obj.get(key), errors.join_path(path, key)
        entries = () if obj is None else wire.decode(_LIST, obj, path)
    except errors.ConfigError as error:
        yield error
        return
    if len(entries) > ENTRIES_MAX:
        yield errors.ConfigError(f"has more than {ENTRIES_MAX} configurations, which is what the API takes", field=path)
    for number, entry in enumerate(entries[:ENTRIES_MAX]):
        try:
            _check(entry, f"{path}[{number}]", kind.source, rules)
        except errors.ConfigError as error:
            yield error


def _check(entry: object, path: str, source: claims.ConfigSource, rules: Rules) -> None:
    opaque: _Opaque = wire.decode(_ENTRY, entry, path).opaque
    rule = rules.get(opaque.driver)
    if rule is None:
        return
    place = f"{path}.opaque"
    if not _is_countable(opaque.parameters):
        raise errors.ConfigError(f"is over the limit of {opaque_parameters.SIZE_MAX} bytes of JSON", field=f"{place}.parameters")
    parameters = wire.decode(claim_codec.PARAMETERS, opaque.parameters, f"{place}.parameters")
    try:
        config.check(parameters, source, rule)
    except errors.ConfigError as error:
        raise error.with_prefix(place) from error


def _is_countable(value: object) -> bool:
    """Return whether a JSON value has at most ``VALUES_MAX`` values, without counting further."""
    waiting = [value]
    for _ in range(VALUES_MAX):
        if not waiting:
            return True
        element = waiting.pop()
        if isinstance(element, Mapping):
            waiting.extend(element.values())
        elif isinstance(element, list):
            waiting.extend(element)
    return not waiting
