"""Check the opaque parameters of an object for this program's drivers, decoded as ``prepare`` decodes them.

``drakit webhook`` and ``drakit lint`` use this. Checks that depend on the allocated device, the node or another object are left to ``prepare``, which
may still reject a configuration that passes here. ``prepare`` rejects every configuration that is rejected here.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from drakit.admission import lenient_json
from drakit.core import claim as claims
from drakit.core import config, errors, records
from drakit.core.encoding import opaque_parameters, wire
from drakit.kube import api_objects, claim_codec
from drakit.telemetry import plurals

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
    decoded = _decoded(driver, parameters, rules)
    try:
        return decoded is None or rules[driver].fits(decoded, attributes)
    except errors.ConfigError:
        return True


def _decoded(driver: str, parameters: object, rules: Rules) -> object | None:
    """Return the configuration of a driver; None for parameters of other drivers, and for those that cannot be decoded."""
    if driver not in rules:
        return None
    try:
        return config.decode(wire.decode(claim_codec.PARAMETERS, parameters, config.PARAMETERS), rules[driver].types)
    except errors.ConfigError:
        return None


def misfits(
    claim: claims.Claim, attributes_of: Callable[[claims.AllocationResult], Mapping[str, object]], rules: Rules
) -> Iterator[tuple[claims.OpaqueConfig, errors.ConfigError]]:
    """Yield the configurations of an allocated claim that name the request of a device that they do not fit, with the error of ``prepare``."""
    for driver, rule in rules.items():
        for result in claim.results_of(driver):
            for entry in claim.configs_of(driver):
                if entry.requests and entry.applies_to(result.request) and not fits(driver, entry.parameters, attributes_of(result), rules):
                    yield entry, config.misfit(entry, config.decode(entry.parameters, rule.types), result)


def refusal(driver: str, parameters: object, attributes: Mapping[str, object], rules: Rules) -> errors.ConfigError | None:
    """Return the error of ``prepare`` for parameters that fit a device and that its attributes rule out, with a path below ``parameters``.

    None if there is none, and for parameters that cannot be decoded.
    """
    decoded = _decoded(driver, parameters, rules)
    if decoded is None:
        return None
    try:
        with config.author_errors():
            rules[driver].check_device(decoded, attributes)
    except errors.ConfigError as error:
        return error
    return None


def fitting_kind(driver: str, parameters: Mapping[str, object], attributes: Mapping[str, object], rules: Rules) -> str:
    """Return the kind of the same apiVersion that is for a device, "" if none is known. ``driver`` is one of ``rules``."""
    api_version = parameters.get("apiVersion")
    kinds = {
        identity[1] for identity in opaque_parameters.by_kind(rules[driver].types) if identity is not None and identity[0] == api_version
    }
    return next((kind for kind in sorted(kinds) if fits(driver, {"apiVersion": api_version, "kind": kind}, attributes, rules)), "")


def refused_devices(
    claim: claims.Claim, attributes_of: Callable[[claims.AllocationResult], Mapping[str, object]], rules: Rules
) -> Iterator[tuple[claims.OpaqueConfig, errors.ConfigError]]:
    """Yield the configuration of each allocated device whose attributes rule it out, the last one that applies, with the error of ``prepare``.

    Admin access has none.
    """
    for driver in rules:
        for result in claim.results_of(driver):
            attributes = attributes_of(result)
            applying = [
                entry
                for entry in claim.configs_of(driver)
                if entry.applies_to(result.request) and fits(driver, entry.parameters, attributes, rules)
            ]
            if applying and not result.admin_access and (error := refusal(driver, applying[-1].parameters, attributes, rules)) is not None:
                yield applying[-1], error


IsOf = Callable[[str, Mapping[str, Any]], bool]
"""Whether a request or one of its alternatives, with class and selectors, is known to get devices of a driver alone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Unique:
    """The values of one configuration that only one device may have, by value and name of the field (without an index), each with its field."""

    number: int
    driver: str
    requests: frozenset[str]
    fields: Mapping[tuple[str, str], str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Gets:
    """How many devices of a request get a value at least, and the configuration and field that it is from."""

    number: int
    field: str
    request: str
    count: int


def repetitions(kind: str, obj: Any, rules: Rules, is_of: IsOf) -> Sequence[errors.ConfigError]:
    """Return the values that two devices of a claim would both get, which ``prepare`` refuses. ``mistakes`` finds none in the object.

    As in ``prepare``, the last configuration that names a request decides. One that names none is for all devices of a driver whose rules
    say ``for_all``. Of another driver it may be for any of them, so it and what it overrides are not judged. Of the alternatives of a request only
    one is allocated, so a value counts if each of them would get it.
    """
    path = KINDS[kind].path
    obj = lenient_json.mapping(obj, *path[:-1])
    requests = lenient_json.objects(obj.get("requests"))
    entries = [unique for number, entry in enumerate(lenient_json.objects(obj.get(path[-1]))) for unique in _unique(number, entry, rules)]
    found: list[errors.ConfigError] = []
    for driver in dict.fromkeys(entry.driver for entry in entries):
        own = [entry for entry in entries if entry.driver == driver]
        by_value: dict[tuple[str, str], list[_Gets]] = {}
        for request in requests:
            for unique, gets in _least(request, driver, own, is_of, is_for_all=rules[driver].for_all):
                by_value.setdefault(unique, []).append(gets)
        for (value, _), all_gets in by_value.items():
            found += _repeated(value, all_gets, ".".join(path))
    return tuple(found)


def _unique(number: int, entry: Mapping[str, Any], rules: Rules) -> Iterator[_Unique]:
    opaque: _Opaque = _ENTRY.decode(entry).opaque
    if (rule := rules.get(opaque.driver)) is None:
        return
    named = entry.get("requests")
    unique = rule.unique(config.decode(claim_codec.PARAMETERS.decode(opaque.parameters), rule.types))
    yield _Unique(
        number=number,
        driver=opaque.driver,
        requests=frozenset(map(str, named if isinstance(named, list) else ())),
        fields={(value, field.partition("[")[0]): field for field, value in unique.items()},
    )


def _least(
    request: Mapping[str, Any], driver: str, entries: Sequence[_Unique], is_of: IsOf, *, is_for_all: bool
) -> Iterator[tuple[tuple[str, str], _Gets]]:
    """Yield the values that devices of a request get, whichever of its alternatives is allocated. With admin access they get none."""
    name, exactly = str(request.get("name")), request.get("exactly")
    alternatives = [(f"{name}/{choice.get('name')}", choice) for choice in lenient_json.objects(request.get("firstAvailable"))]
    options = alternatives or [(name, exactly if isinstance(exactly, Mapping) else request)]
    judged = [option for option, choice in options if choice.get("adminAccess") is not True and is_of(driver, choice)]
    chosen = [entry for option in judged if (entry := _deciding(option, entries, is_for_all=is_for_all)) is not None]
    if len(chosen) < len(options):
        return
    last = max(chosen, key=lambda entry: entry.number)
    for key, field in last.fields.items():
        if all(key in entry.fields for entry in chosen):
            yield key, _Gets(number=last.number, field=field, request=name, count=min(_devices(choice) for _, choice in options))


def _deciding(request: str, entries: Sequence[_Unique], *, is_for_all: bool) -> _Unique | None:
    """Return the configuration of a request or alternative; None without one, and if one that names no request may override it."""
    applying = [entry for entry in entries if not entry.requests or {request, request.partition("/")[0]} & entry.requests]
    return applying[-1] if applying and (applying[-1].requests or is_for_all) else None


def _repeated(value: str, all_gets: Sequence[_Gets], path: str) -> Iterator[errors.ConfigError]:
    """Yield an error for each configuration that gives a value to a further device."""
    ordered = sorted(all_gets, key=lambda gets: gets.number)
    for number, group in itertools.groupby(ordered, key=lambda gets: gets.number):
        field = next(group).field
        until = [gets for gets in ordered if gets.number <= number]
        if sum(gets.count for gets in until) > 1:
            requests = f"{plurals.noun(len(until), 'request')} {', '.join(gets.request for gets in until)}"
            reason = f"several devices of the claim would get {value} ({requests}), but only one can have it"
            yield errors.ConfigError(f"{reason}; {_APART}", field=f"{path}[{number}].opaque.parameters.{field}")


_APART = "write a request and a configuration for each device"


def _devices(choice: Mapping[str, Any]) -> int:
    """Return how many devices a request or alternative gets at least."""
    count = choice.get("count") if choice.get("allocationMode") != "All" else 1
    return count if isinstance(count, int) else 1


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
