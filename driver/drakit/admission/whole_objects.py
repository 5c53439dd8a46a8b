"""Check claims as a whole, and pods with their claims, by the rules of each driver. ``opaque`` checks each configuration by itself."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from drakit.admission import lenient_json, opaque, selection
from drakit.core import config, errors, quantity, records, specs
from drakit.core.encoding import json_errors, wire
from drakit.kube import claim_codec

MISTAKES_MAX = 32
CLAIM, TEMPLATE, CLASS = "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"
Reference = tuple[str, str, str]
"""Kind, namespace (empty for a DeviceClass) and name of an object."""
Known = Mapping[Reference, lenient_json.Object]
"""The objects that a claim or pod refers to, as far as they are known."""
_SOURCES = (("resourceClaimName", CLAIM), ("resourceClaimTemplateName", TEMPLATE))
_CONTAINERS = ("initContainers", "containers")


def of_claim(kind: str, obj: lenient_json.Object, rules: opaque.Rules, known: Known) -> Sequence[errors.ConfigError]:
    """Return the mistakes of a claim or template in which ``opaque.mistakes`` finds none. ``known`` has DeviceClasses."""
    if kind not in (CLAIM, TEMPLATE):
        return ()
    classes = {driver: _Classes.of(known, driver, rule) for driver, rule in rules.items()}
    found = list(opaque.repetitions(kind, obj, rules, lambda driver, choice: classes[driver].own.is_choice(choice)))
    for driver, rule in rules.items():
        found += _errors(functools.partial(_check_claim, kind, obj, driver, rule, classes[driver]))
    return _distinct(found)


def of_pod(
    spec: lenient_json.Object, rules: opaque.Rules, known: Known, *, namespace: str, name: str = "", path: str = "spec"
) -> Sequence[errors.ConfigError]:
    """Return the mistakes of a pod. ``path`` is that of its spec. ``known`` has its claims, their templates and classes."""
    found: list[errors.ConfigError] = []
    for driver, rule in rules.items():
        found += _errors(functools.partial(_check_pod, spec, driver, rule, known, namespace=namespace, name=name, path=path))
    return _distinct(found)


def claims_of(spec: object, namespace: str) -> Mapping[str, Reference]:
    """Return the claims and templates of a pod's spec, by the claims' names in the pod."""
    found: dict[str, Reference] = {}
    for entry in lenient_json.objects(spec, "resourceClaims"):
        for field, kind in _SOURCES:
            if name := lenient_json.text(entry, field):
                found[lenient_json.text(entry, "name")] = (kind, namespace, name)
    return found


def classes_of(kind: str, obj: lenient_json.Object) -> Iterator[Reference]:
    """Yield the classes of a claim or template."""
    for request in lenient_json.objects(_claim_spec(kind, obj)[0], "devices", "requests"):
        for choice in _choices(request):
            if name := lenient_json.text(choice, "deviceClassName"):
                yield (CLASS, "", name)


def _check_claim(
    kind: str, obj: lenient_json.Object, driver: str, rule: config.Rules, classes: "_Classes"
) -> Iterable[errors.ConfigError] | None:
    if rule.check_claim is None:
        return ()
    claim = _claim(kind, obj, driver, rule, classes)
    return rule.check_claim(claim) if claim.own_requests or claim.configs else ()


def _check_pod(
    spec: lenient_json.Object, driver: str, rule: config.Rules, known: Known, *, namespace: str, name: str, path: str
) -> Iterable[errors.ConfigError] | None:
    if rule.check_pod is None:
        return ()
    pod = _pod(spec, driver, rule, known, namespace=namespace, name=name, path=path)
    concerned = [use.request.is_own for use in pod.uses]
    concerned += [bool(claim.own_requests or claim.configs) for claim in pod.claims.values()]
    return rule.check_pod(pod) if any(concerned) else ()


def _errors(check: Callable[[], Iterable[errors.ConfigError] | None]) -> list[errors.ConfigError]:
    """Return what a driver's check returns or yields, and the error that it raises."""
    found: list[errors.ConfigError] = []
    try:
        for error in check() or ():
            if not isinstance(error, errors.ConfigError):
                raise TypeError(f"the check returned {type(error).__name__}; return drakit.ConfigError(...)")
            found.append(error)
    except errors.ConfigError as error:
        found.append(error)
    return found


def _distinct(found: Sequence[errors.ConfigError]) -> Sequence[errors.ConfigError]:
    return tuple({(error.field, error.reason): error for error in found}.values())[:MISTAKES_MAX]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Classes:
    """What the known DeviceClasses say of a driver: which devices are its own, and its configurations by class."""

    own: selection.OwnDevices
    configs: Mapping[str, tuple[specs.ConfigSpec, ...]]

    @classmethod
    def of(cls, known: Known, driver: str, rule: config.Rules) -> "_Classes":
        classes = {name: obj for (kind, _, name), obj in known.items() if kind == CLASS}
        configs = {
            name: tuple(_configs(lenient_json.objects(obj, "spec", "config"), "spec.config", driver, rule)) for name, obj in classes.items()
        }
        return cls(own=selection.OwnDevices.of(driver, classes), configs=configs)


def _claim_spec(kind: str, obj: object) -> tuple[lenient_json.Object, str]:
    """Return the spec of a claim or template, and its path."""
    keys = ("spec", "spec") if kind == TEMPLATE else ("spec",)
    return lenient_json.mapping(obj, *keys), ".".join(keys)


def _choices(request: lenient_json.Object) -> Sequence[lenient_json.Object]:
    """Return the alternatives of a request, or its ``exactly``; before v1beta2 that is the request itself."""
    return lenient_json.objects(request, "firstAvailable") or [lenient_json.mapping(request, "exactly") or request]


def _claim(kind: str, obj: Any, driver: str, rule: config.Rules, classes: _Classes) -> specs.ClaimSpec:
    spec, path = _claim_spec(kind, obj)
    return specs.ClaimSpec(
        namespace=lenient_json.text(obj, "metadata", "namespace"),
        name=lenient_json.text(obj, "metadata", "name"),
        requests=tuple(
            _request(request, f"{path}.devices.requests[{number}]", classes)
            for number, request in enumerate(lenient_json.objects(spec, "devices", "requests"))
        ),
        configs=tuple(_configs(lenient_json.objects(spec, "devices", "config"), f"{path}.devices.config", driver, rule)),
        spec=_frozen(spec, path),
    )


def _request(request: lenient_json.Object, field: str, classes: _Classes) -> specs.RequestSpec:
    name = lenient_json.text(request, "name")
    if alternatives := lenient_json.objects(request, "firstAvailable"):
        made = tuple(
            _choice(choice, f"{name}/{lenient_json.text(choice, 'name')}", f"{field}.firstAvailable[{number}]", classes)
            for number, choice in enumerate(alternatives)
        )
        return specs.RequestSpec(name=name, field=field, is_own=all(choice.is_own for choice in made), alternatives=made)
    return _choice(_choices(request)[0], name, field, classes)


def _choice(choice: lenient_json.Object, name: str, field: str, classes: _Classes) -> specs.RequestSpec:
    count, device_class = lenient_json.at(choice, "count"), lenient_json.text(choice, "deviceClassName")
    capacity = lenient_json.mapping(choice, "capacity", "requests")
    return specs.RequestSpec(
        name=name,
        field=field,
        is_own=classes.own.is_choice(choice),
        device_class=device_class,
        class_configs=classes.configs.get(device_class, ()),
        selectors=tuple(lenient_json.text(selector, "cel", "expression") for selector in lenient_json.objects(choice, "selectors")),
        count=None if choice.get("allocationMode") == "All" else count if isinstance(count, int) else 1,
        admin_access=choice.get("adminAccess") is True,
        capacity={key: amount for key, value in capacity.items() if (amount := _amount(value)) is not None},
    )


def _frozen(spec: lenient_json.Object, path: str) -> records.Record:
    try:
        return records.freeze_record(spec)
    except TypeError as error:
        raise errors.ConfigError(str(error), field=path) from error


def _amount(value: object) -> quantity.Quantity | None:
    try:
        return quantity.Quantity.of(value) if isinstance(value, str | int) else None
    except errors.QuantityError:
        return None


def _configs(entries: Sequence[lenient_json.Object], path: str, driver: str, rule: config.Rules) -> Iterator[specs.ConfigSpec]:
    """Yield the valid configurations for a driver."""
    for number, entry in enumerate(entries):
        if lenient_json.text(entry, "opaque", "driver") == driver:
            try:
                parameters = wire.decode(claim_codec.PARAMETERS, lenient_json.at(entry, "opaque", "parameters"), "parameters")
                decoded = config.decode(parameters, rule.types)
            except errors.ConfigError:
                continue
            requests = lenient_json.texts(entry, "requests")
            yield specs.ConfigSpec(config=decoded, field=f"{path}[{number}].opaque.parameters", requests=requests)


def _pod(
    spec: lenient_json.Object, driver: str, rule: config.Rules, known: Known, *, namespace: str, name: str, path: str
) -> specs.PodSpec:
    classes = _Classes.of(known, driver, rule)
    references = claims_of(spec, namespace)
    claims = {
        entry: _claim(reference[0], known[reference], driver, rule, classes)
        for entry, reference in references.items()
        if reference in known
    }
    return specs.PodSpec(
        namespace=namespace,
        name=name,
        field=path,
        host_network=spec.get("hostNetwork") is True,
        claims=claims,
        uses=tuple(_uses(spec, path, claims, classes)),
        spec=_frozen(spec, path),
    )


def _uses(spec: lenient_json.Object, path: str, claims: Mapping[str, specs.ClaimSpec], classes: _Classes) -> Iterator[specs.RequestUse]:
    for kind in _CONTAINERS:
        for place, container in enumerate(lenient_json.objects(spec, kind)):
            name, field = lenient_json.text(container, "name"), f"{path}.{kind}[{place}].resources"
            for number, use in enumerate(lenient_json.objects(container, "resources", "claims")):
                claim, wanted = lenient_json.text(use, "name"), lenient_json.text(use, "request")
                for request in claims[claim].requests if claim in claims else ():
                    if wanted in ("", request.name):
                        yield specs.RequestUse(container=name, claim=claim, request=request, field=f"{field}.claims[{number}]")
            for limits in ("limits", "requests"):
                for resource in lenient_json.mapping(container, "resources", limits):
                    if resource in classes.own.resources and (
                        limits == "limits" or resource not in lenient_json.mapping(container, "resources", "limits")
                    ):
                        where = errors.join_path(f"{field}.{limits}", json_errors.step(resource))
                        device_class = classes.own.resources[resource]
                        class_configs = classes.configs.get(device_class, ())
                        request = specs.RequestSpec(
                            name="", field=where, is_own=True, device_class=device_class, class_configs=class_configs
                        )
                        yield specs.RequestUse(container=name, claim="", request=request, field=where)
