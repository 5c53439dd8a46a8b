"""Claims to typed requests, before any device is examined.

A *want* holds the conditions that decide whether a device is suitable: class, selectors, tolerations, capacity, admin access. Requests
with equal conditions share one :class:`Want`, so that what is learned about devices for one of them applies to all.

Most claims come from a few templates, so claims with equal content are decoded once.
"""

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.objects import capacity, json_types, naming, quantity
from drakit_cluster.objects.capacity import Amounts
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object


class Mode(enum.Enum):
    """The allocation mode of a request."""

    COUNT = "ExactCount"
    ALL = "All"


_MODES = {mode.value: mode for mode in Mode}
_written = json.JSONEncoder(sort_keys=True).encode
_MAX_READINGS = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Want:
    """The conditions that a device must meet. ``number`` counts the wants of one allocation from 0; equal wants are one object."""

    number: int
    class_name: str
    class_selectors: tuple[str, ...]
    selectors: tuple[str, ...]
    tolerations: tuple[Object, ...]
    amounts: Amounts
    amounts_text: str
    """The amounts as they were written."""
    admin: bool
    derived: Mapping[str, str]
    """The expressions of derived attributes by name (KEP-6080)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Option:
    """An exact request, or one of the alternatives of a ``firstAvailable`` request. ``name`` is "request" or "request/subrequest"."""

    name: str
    base: str
    want: Want
    mode: Mode
    count: int
    device_class: Object
    tolerations: Json


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """One request of a claim. ``options`` holds one exact request, or the prioritized alternatives."""

    claim: int
    name: str
    options: tuple[Option, ...]
    prioritized: bool


class Constraint(enum.Enum):
    """The kinds of constraint."""

    MATCH = "matchAttribute"
    DISTINCT = "distinctAttribute"


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstraintSpec:
    """One constraint of a claim. ``requests`` are names of requests or subrequests; empty means all."""

    kind: Constraint
    attribute: str
    requests: frozenset[str]

    def applies(self, option: Option) -> bool:
        """Return whether the constraint applies to devices of ``option``."""
        return not self.requests or option.base in self.requests or option.name in self.requests


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim:
    """One claim to allocate; ``source`` is the API object."""

    number: int
    source: Object
    requests: tuple[Request, ...]
    constraints: tuple[ConstraintSpec, ...]

    @property
    def label(self) -> str:
        """The name used in errors."""
        return _label(self.source)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The claims of one allocation, and all their different wants by number."""

    claims: Sequence[Claim]
    wants: Sequence[Want]


class Classes:
    """DeviceClasses by name; the selectors of each are read once."""

    def __init__(self, classes: Mapping[str, Object]) -> None:
        self._classes = classes
        self._selectors: dict[str, tuple[str, ...]] = {}

    def find(self, name: str, where: str) -> Object:
        """Return the class that ``where`` names. Raises AllocationError if it does not exist."""
        if not name:
            raise AllocationError(f"{where}: deviceClassName is not set (unsupported request type?)")
        if name not in self._classes:
            raise AllocationError(f"{where}: there is no DeviceClass {name}")
        return self._classes[name]

    def selectors(self, name: str) -> tuple[str, ...]:
        if name not in self._selectors:
            self._selectors[name] = _expressions(json_types.at(self._classes[name], "spec", "selectors"), f"class {name}")
        return self._selectors[name]


class Reader:
    """Reads the claims of one allocation; raises :class:`AllocationError` that names claim, request and field."""

    def __init__(self, classes: Classes, features: FeatureGates) -> None:
        self._classes = classes
        self._features = features
        self._readings: dict[str, Reading] = {}

    def read(self, claims: Sequence[Object]) -> Reading:
        """Return the claims as typed values."""
        device_specs = [_device_spec(claim) for claim in claims]
        key = repr(device_specs)
        cached = self._readings.get(key)
        if cached is None:
            if len(self._readings) >= _MAX_READINGS:
                self._readings.pop(next(iter(self._readings)))
            # A copy, because the caller may change the claims later.
            cached = self._readings[key] = _Decoder(self._classes, self._features).decode(
                claims, json_types.objects(json_types.copy(device_specs))
            )
        typed_claims = [
            Claim(number=claim.number, source=source, requests=claim.requests, constraints=claim.constraints)
            for claim, source in zip(cached.claims, claims, strict=True)
        ]
        return Reading(claims=typed_claims, wants=cached.wants)


class _Decoder:
    """Decodes the claims of one allocation."""

    def __init__(self, classes: Classes, features: FeatureGates) -> None:
        self._classes = classes
        self._features = features
        self._wants: dict[tuple[object, ...], Want] = {}

    def decode(self, claims: Sequence[Object], device_specs: Sequence[Object]) -> Reading:
        """Return typed claims. ``device_specs`` holds the requests and constraints of each claim."""
        decoded = [self._claim(number, claim, devices) for number, (claim, devices) in enumerate(zip(claims, device_specs, strict=True))]
        return Reading(claims=decoded, wants=list(self._wants.values()))

    def _claim(self, number: int, claim: Object, devices: Object) -> Claim:
        label = _label(claim)
        requests = tuple(self._request(number, label, request) for request in json_types.objects(devices, "requests"))
        constraints = tuple(
            self._constraint(f"{label}, constraint #{position}", constraint)
            for position, constraint in enumerate(json_types.objects(devices, "constraints") if "constraints" in devices else ())
        )
        return Claim(number=number, source=claim, requests=requests, constraints=constraints)

    def _request(self, claim: int, label: str, request: Object) -> Request:
        name = json_types.text(request, "name")
        alternatives = json_types.objects(request["firstAvailable"]) if "firstAvailable" in request else []
        where = f"{label}, request {name}"
        options: tuple[Option, ...]
        if not alternatives:
            exactly = request.get("exactly")
            if not isinstance(exactly, dict):
                raise AllocationError(f"{where}: neither exactly nor firstAvailable is set (unsupported request type?)")
            options = (self._option(name, name, exactly, where, admin=exactly.get("adminAccess")),)
            return Request(claim=claim, name=name, options=options, prioritized=False)
        if not self._features.on(Gate.PRIORITIZED_LIST):
            raise AllocationError(f"{where}: has firstAvailable, but the feature {Gate.PRIORITIZED_LIST} is off")
        options = tuple(
            self._option(
                f"{name}/{json_types.text(alternative, 'name')}",
                name,
                alternative,
                f"{where}/{json_types.text(alternative, 'name')}",
                admin=None,
            )
            for alternative in alternatives
        )
        return Request(claim=claim, name=name, options=options, prioritized=True)

    def _option(self, name: str, base: str, exact: Object, where: str, *, admin: Json) -> Option:
        if admin is not None and not self._features.on(Gate.ADMIN_ACCESS):
            raise AllocationError(f"{where}: adminAccess is set, but the feature {Gate.ADMIN_ACCESS} is off")
        if exact.get("capacity") is not None and not self._features.on(Gate.CONSUMABLE_CAPACITY):
            raise AllocationError(f"{where}: capacity is set, but the feature {Gate.CONSUMABLE_CAPACITY} is off")
        class_name = json_types.text(exact, "deviceClassName")
        device_class = self._classes.find(class_name, where)
        mode = json_types.text(exact, "allocationMode")
        if mode not in _MODES:
            raise AllocationError(f"{where}: unsupported allocationMode {mode!r}; known are {', '.join(_MODES)}")
        return Option(
            name=name,
            base=base,
            want=self._want(exact, class_name, where, admin=admin is True),
            mode=_MODES[mode],
            count=json_types.number(exact, "count"),
            device_class=device_class,
            tolerations=exact.get("tolerations"),
        )

    def _want(self, exact: Object, class_name: str, where: str, *, admin: bool) -> Want:
        class_selectors = self._classes.selectors(class_name)
        selectors = _expressions(exact["selectors"], where) if "selectors" in exact else ()
        tolerations = json_types.objects(exact["tolerations"]) if "tolerations" in exact else []
        requested = json_types.mapping(exact, "capacity", "requests") if "capacity" in exact else {}
        amounts_text = _written(requested) if requested else ""
        derived = self._derived(exact)
        key = (class_name, selectors, _written(tolerations) if tolerations else "", amounts_text, admin, tuple(sorted(derived.items())))
        if key not in self._wants:
            self._wants[key] = Want(
                number=len(self._wants),
                class_name=class_name,
                class_selectors=class_selectors,
                selectors=selectors,
                tolerations=tuple(tolerations),
                amounts=_amounts(requested, where),
                amounts_text=amounts_text,
                admin=admin,
                derived=derived,
            )
        return self._wants[key]

    def _derived(self, exact: Object) -> dict[str, str]:
        if "derivedAttributes" not in exact or not self._features.on(Gate.DERIVED_ATTRIBUTES):
            return {}
        attributes = json_types.objects(exact, "derivedAttributes")
        return {json_types.text(attribute, "name"): json_types.text(attribute, "expression") for attribute in attributes}

    def _constraint(self, where: str, constraint: Object) -> ConstraintSpec:
        kinds = [Constraint.MATCH]
        if self._features.on(Gate.CONSUMABLE_CAPACITY):
            kinds.append(Constraint.DISTINCT)
        for kind in kinds:
            attribute = constraint.get(kind.value)
            if isinstance(attribute, str):
                requests = frozenset(json_types.strings(constraint, "requests"))
                return ConstraintSpec(kind=kind, attribute=attribute, requests=requests)
        raise AllocationError(f"{where}: sets none of {', '.join(kind.value for kind in kinds)} (unsupported constraint type?)")


def _device_spec(claim: Object) -> Json:
    """Return the part of a claim that devices are chosen by: requests and constraints."""
    devices = json_types.mapping(claim, "spec", "devices")
    return {name: devices[name] for name in ("requests", "constraints") if name in devices}


def _label(claim: Object) -> str:
    return f"claim {naming.label(claim)}"


def _expressions(selectors: Json, where: str) -> tuple[str, ...]:
    expressions = []
    for position, selector in enumerate(json_types.objects(selectors)):
        cel = selector.get("cel")
        if not isinstance(cel, dict):
            raise AllocationError(f"{where}, selector #{position}: cel is not set (unsupported selector type?)")
        expressions.append(json_types.text(cel, "expression"))
    return tuple(expressions)


def _amounts(requested: Object, where: str) -> Amounts:
    try:
        return capacity.decode_amounts(requested)
    except quantity.QuantityError as error:
        raise AllocationError(f"{where}: capacity.requests: {error}") from error
