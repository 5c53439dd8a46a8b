"""Mistakes in what users and admins request: selectors, constraints, capacity and configuration that no published device can satisfy."""

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from drakit.telemetry import plurals
from drakit_cluster.cel import compared_texts
from drakit_cluster.lint import findings
from drakit_cluster.lint.catalogue import Catalogue, PublishedDevice
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted, Document
from drakit_cluster.objects import capacity as capacities
from drakit_cluster.objects import json_types, quantity, resources, taints
from drakit_cluster.objects.devices import DeviceView, SelectorError, SelectorPort, plain_attributes
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import names
from drakit_cluster.scheduling.allocator import world
from drakit_cluster.scheduling.allocator.problem import MAX_RESULTS

_NAMED = 3
"""Devices that a finding names."""
_STOPS = "the scheduler allocates nothing after such an error"
_NO_KEY = "no such key: "
_CHECK_DRIVER = 'check the driver first: device.driver == "..." && ...'
_CHECK_ATTRIBUTE = (
    'check that the attribute exists: "name" in device.attributes["domain"] && ..., or device.attributes["domain"].?name.orValue(...)'
)


Fits: TypeAlias = Callable[[str, Json, Mapping[str, Json]], bool]
"""Whether a driver's parameters are for a device with these attributes, which are named without the driver's domain."""


def any_fits(_driver: str, _parameters: Json, _attributes: Mapping[str, Json]) -> bool:
    """Return True: nothing is known of any driver's parameters."""
    return True


Refuses: TypeAlias = Callable[[str, Json, Mapping[str, Json]], tuple[str, str, str] | None]
"""The field below ``opaque``, text and fix of what a driver refuses in parameters for a device with these attributes; None if it takes them."""


def none_refused(_driver: str, _parameters: Json, _attributes: Mapping[str, Json]) -> None:
    """Return None: nothing is known of any driver's parameters."""


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """One request or alternative, and the devices that class and request select."""

    names: frozenset[str]
    devices: Sequence[PublishedDevice]
    derived: frozenset[str] = frozenset()
    """The names of its derived attributes."""
    admin: bool = False
    """Whether it has admin access, for which a driver changes no device."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Checks of classes and claims against the published devices. Checks that need slices or classes are skipped if there are none."""

    published: Catalogue
    classes: Mapping[str, Accepted]
    refused_classes: Collection[str]
    """The names of classes that the server refused."""
    selectors: SelectorPort
    lists: bool
    deriving: bool
    tainting: bool
    qualified: bool
    """Whether requests find capacities with and without the driver's domain."""
    fits: Fits
    refuses: Refuses

    def of_class(self, device_class: Accepted) -> Iterator[Finding]:
        yield from self._select(device_class.document, json_types.mapping(device_class.object, "spec"), "spec", self.published.devices)[1]
        for place, config in enumerate(json_types.objects(device_class.object, "spec", "config")):
            yield from self._driver(device_class.document, config, f"spec.config[{place}]", self.published.devices)

    def of_classes(self) -> Iterator[Finding]:
        """Yield classes with the same extended resource."""
        first: dict[str, Accepted] = {}
        for device_class in self.classes.values():
            name = json_types.text(device_class.object, "spec", "extendedResourceName")
            earlier = first.setdefault(name, device_class) if name else device_class
            if earlier is not device_class:
                text = f"{name} is also the name in {earlier.document.label}: a pod cannot choose between the two classes"
                yield findings.warning(device_class.document, "spec.extendedResourceName", text, "give each class a different name")

    def of_claim(self, claim: Accepted, *, is_known: bool) -> Iterator[Finding]:
        """Yield the mistakes of a claim or template. ``is_known`` is whether the server knows all of its fields, so that none is misplaced."""
        path = "spec.spec.devices" if claim.document.resource is resources.CLAIM_TEMPLATE else "spec.devices"
        devices = json_types.mapping(claim.object, *path.split("."))
        if is_known and not json_types.objects(devices, "requests"):
            yield findings.warning(claim.document, path, "requests no devices, so its pods get none", f"add {path}.requests")
        requested: list[_Selection] = []
        for place, request in enumerate(json_types.objects(devices, "requests")):
            for where, name, option in _options(request, f"{path}.requests[{place}]"):
                yield from _impossible(claim.document, option, where)
                derived = json_types.objects(option, "derivedAttributes") if self.deriving else []
                selected, request_findings = self._option(claim.document, option, where)
                yield from request_findings
                if selected is not None:
                    yield from self._derived(claim.document, derived, where, selected)
                    both = frozenset({json_types.text(request, "name"), name})
                    attributes = frozenset(json_types.text(attribute, "name") for attribute in derived)
                    requested.append(_Selection(names=both, devices=selected, derived=attributes, admin=option.get("adminAccess") is True))
        for place, constraint in enumerate(json_types.objects(devices, "constraints")):
            yield from self._constraint(claim.document, constraint, f"{path}.constraints[{place}]", requested)
        configs = json_types.objects(devices, "config")
        for place, config in enumerate(configs):
            concerned = [device for selection in _concerned(config, requested) for device in selection.devices]
            if concerned or not requested:
                yield from self._driver(claim.document, config, f"{path}.config[{place}]", concerned or self.published.devices)
            yield from self._fit(claim.document, config, f"{path}.config[{place}]", concerned)
            yield from self._refused(claim.document, config, f"{path}.config[{place}]", later=configs[place + 1 :], requested=requested)

    def _option(self, document: Document, option: Object, path: str) -> tuple[list[PublishedDevice] | None, list[Finding]]:
        """Return the devices that a request selects (None if unknown), and its mistakes."""
        name = json_types.text(option, "deviceClassName")
        if name not in self.classes:
            text = f"DeviceClass {name} is not in these files"
            fix = findings.suggestion_or_add(name, self.classes)
            missing = findings.warning(document, f"{path}.deviceClassName", text, fix)
            return None, [missing] if self.classes and name not in self.refused_classes else []
        if not self.published.devices:
            return None, []
        class_spec = json_types.mapping(self.classes[name].object, "spec")
        possible, _ = self._select(self.classes[name].document, class_spec, "spec", self.published.devices)
        selected, option_findings = self._select(document, option, path, possible) if possible else ([], [])
        if selected:
            option_findings += _count(document, option, path, selected)
            option_findings += self._capacity(document, option, path, selected)
            option_findings += self._taints(document, option, path, selected)
        return selected, option_findings

    def _select(
        self, document: Document, holder: Object, path: str, devices: Sequence[PublishedDevice]
    ) -> tuple[list[PublishedDevice], list[Finding]]:
        """Return the devices that all selectors of ``holder`` select, and the mistakes in the selectors."""
        selector_findings: list[Finding] = []
        remaining = list(devices)
        checked = ["device.driver"] if document.resource is not resources.CLASS else []  # The class of a request checks the driver.
        for place, selector in enumerate(json_types.objects(holder, "selectors")):
            expression, field = json_types.text(selector, "cel", "expression"), f"{path}.selectors[{place}].cel.expression"
            selected, failed = _evaluated(self.selectors.matches, expression, remaining)
            if failed:
                text = f"fails on {_share_of(failed, remaining)}, {_first(failed)}: {failed[0][1]}"
                fix = self._existing(expression, remaining, failed, of_class=document.resource is resources.CLASS)
                fix = fix or _guard([*checked, expression], remaining, [device for device, _ in failed])
                selector_findings.append(findings.error(document, field, f"{text}; {_STOPS}", fix))
            elif remaining and not selected:
                text, fix = _selects_nothing(expression, remaining)
                text = f"selects none of {_devices(len(remaining))}{' that the selectors before it select' if place else ''}{text}"
                selector_findings.append(findings.warning(document, field, text, fix))
            checked.append(expression)
            remaining = selected
        return remaining, selector_findings

    def _existing(
        self, expression: str, devices: Sequence[PublishedDevice], failed: Sequence[tuple[PublishedDevice, str]], *, of_class: bool
    ) -> str:
        """Return the fix for an attribute that none of the devices has, where it is known what is meant, else ""."""
        missing = [path for path in compared_texts.attributes_read(expression) if failed[0][1] == f"{_NO_KEY}{path[1]}"]
        if len(failed) < len(devices) or len(missing) != 1:
            return ""
        domain, name = missing[0]
        known = frozenset.intersection(*map(_attributes_of, devices))
        names = {other for of_domain, other in known if of_domain == domain}
        if not names and (domains := {of_domain for of_domain, other in known if other == name}):
            own = domains & {device.pool.driver for device in devices}
            return f"write {min(own or domains)} for {domain}"
        if alike := sorted(other for other in names if other.lower() == name.lower()):
            return f"write {alike[0]}"
        selections = () if of_class else self._selected_by_class()
        if having := [label for label, selected in selections if all((domain, name) in _attributes_of(one) for one in selected)]:
            return f"request DeviceClass {' or '.join(sorted(having))}, whose devices have {name}; none of these has it"
        return f"write {close[0]}" if (close := difflib.get_close_matches(name, sorted(names), n=1)) else ""

    def _selected_by_class(self) -> Iterator[tuple[str, Sequence[PublishedDevice]]]:
        """Yield the classes that select devices, with these."""
        for name, device_class in self.classes.items():
            spec = json_types.mapping(device_class.object, "spec")
            remaining = self.published.devices
            for selector in json_types.objects(spec, "selectors"):
                remaining, _ = _evaluated(self.selectors.matches, json_types.text(selector, "cel", "expression"), remaining)
            if remaining:
                yield name, remaining

    def _derived(
        self, document: Document, attributes: Sequence[Object], path: str, selected: Sequence[PublishedDevice]
    ) -> Iterator[Finding]:
        """Yield the derived attributes of a request whose expression fails on devices that it selects."""
        for place, attribute in enumerate(attributes):
            expression = json_types.text(attribute, "expression")
            _, failed = _evaluated(self.selectors.derive, expression, selected)
            if failed:
                field = f"{path}.derivedAttributes[{place}].expression"
                text = f"fails on {_share_of(failed, selected)}, {_first(failed)}: {failed[0][1]}; {_STOPS}"
                yield findings.error(document, field, text, _CHECK_ATTRIBUTE)

    def _taints(self, document: Document, option: Object, path: str, selected: Sequence[PublishedDevice]) -> list[Finding]:
        """Return a warning if every device has a taint that the request does not tolerate."""
        tolerations = json_types.objects(option, "tolerations")
        if not self.tainting or not all(taints.prevents(device.taints, tolerations) for device in selected):
            return []
        taint = next(taint for taint in selected[0].taints if taints.prevents([taint], tolerations))
        key, value, effect = (json_types.text(taint, name) for name in ("key", "value", "effect"))
        text = f"does not tolerate {key}{f'={value}' if value else ''}:{effect}, and each of the {_devices(len(selected))} has such a taint"
        return [findings.warning(document, f"{path}.tolerations", text, f"add {{key: {key}, operator: Exists, effect: {effect}}}")]

    def _capacity(self, document: Document, option: Object, path: str, selected: Sequence[PublishedDevice]) -> list[Finding]:
        capacity_findings = []
        for name, amount in json_types.mapping(option, "capacity", "requests").items():
            field = f"{path}.capacity.requests[{name}]"
            values = [
                quantity.parse(json_types.at(capacity, "value"))
                for device in selected
                if (capacity := self._published(device, name)) is not None
            ]
            if not values:
                capacity_names = {capacity_name for device in selected for capacity_name in json_types.mapping(device.spec, "capacity")}
                text = f"none of the {_devices(len(selected))} that it selects has a capacity {name}"
                capacity_findings.append(findings.warning(document, field, text, findings.suggestion(name, capacity_names)))
            elif quantity.parse(amount) > max(values):
                text = f"requests {amount}, but no selected device has more than {max(values)}"
                capacity_findings.append(findings.warning(document, field, text, f"write at most {max(values)}"))
            elif (least := self._far_below(name, amount, selected)) is not None:
                text = f"requests {amount}, which is rounded up to {least}, the least that these devices give"
                meant = f"{str(amount).rstrip('numkKMGTPEi')}{'Gi' if least.format is quantity.Format.BINARY else 'G'}"
                fix = f"write {meant} if the unit was forgotten, or at least {least}"
                capacity_findings.append(findings.warning(document, field, text, fix))
            elif not any(device.shared for device in selected) and quantity.parse("0") < quantity.parse(amount) < min(values):
                text = f"requests {amount}, but no device that it selects is shared: the claim gets a whole one"
                fix = f"select devices with allowMultipleAllocations: true, or remove it: the claim gets at least {min(values)}"
                capacity_findings.append(findings.warning(document, field, text, fix))
        return capacity_findings

    def _far_below(self, name: str, amount: Json, selected: Sequence[PublishedDevice]) -> quantity.Quantity | None:
        """Return the least amount to which every selected device rounds up a request below a thousandth of it: most likely its unit is missing."""
        minima = [json_types.at(self._published(device, name), "requestPolicy", "validRange", "min") for device in selected]
        requested = quantity.parse(amount)
        if (
            not minima
            or not all(device.shared for device in selected)
            or any(minimum is None for minimum in minima)
            or requested.nanos <= 0
        ):
            return None
        least = min(map(quantity.parse, minima))
        return least if requested.nanos * 1000 < least.nanos else None

    def _published(self, device: PublishedDevice, requested: str) -> Json:
        published = json_types.mapping(device.spec, "capacity")
        name = capacities.published_name(requested, published, device.pool.driver) if self.qualified else requested
        return published.get(name)

    def _constraint(self, document: Document, constraint: Object, path: str, requested: Sequence[_Selection]) -> Iterator[Finding]:
        if constraint.get("matchAttribute") is not None and constraint.get("distinctAttribute") is not None:
            text = "is ignored beside matchAttribute, although the server accepts both"
            yield findings.warning(document, f"{path}.distinctAttribute", text, "write two constraints")
        for kind in ("matchAttribute", "distinctAttribute"):
            attribute = json_types.text(constraint, kind)
            concerned = [selection for selection in _concerned(constraint, requested) if attribute and selection.devices]
            for selection in concerned:
                if attribute not in selection.derived and not self._has(selection, attribute):
                    text = f"none of the {_devices(len(selection.devices))} that request {min(selection.names)} selects has attribute {attribute}"
                    fix = self._other_attribute(kind, attribute, concerned)
                    yield findings.warning(document, f"{path}.{kind}", text, fix)

    def _other_attribute(self, kind: str, attribute: str, concerned: Sequence[_Selection]) -> str:
        """Return the fix for an attribute that devices of a constraint lack: one that can hold for all of its requests, or none."""
        names = {
            self._qualified(device, name)
            for selection in concerned
            for device in selection.devices
            for name in json_types.mapping(device.spec, "attributes")
        }
        possible = [name for name in names if all(self._has(selection, name) for selection in concerned)]
        if kind == "matchAttribute":
            possible = [name for name in possible if frozenset.intersection(*(self._values(selection, name) for selection in concerned))]
        if possible:
            return findings.suggestion(attribute, possible)
        lacking = "none of these devices has it" if not any(self._has(selection, attribute) for selection in concerned) else "some lack it"
        can_hold = "have no other attribute with a common value" if kind == "matchAttribute" else "have no other attribute in common"
        return f"remove the constraint: {lacking}, and these requests {can_hold}"

    def _has(self, selection: _Selection, attribute: str) -> bool:
        return any(self._value(device, attribute) is not None for device in selection.devices)

    def _values(self, selection: _Selection, attribute: str) -> world.Value:
        """Return all values that the devices of a request have for an attribute."""
        return frozenset().union(*(self._value(device, attribute) or frozenset() for device in selection.devices))

    def _value(self, device: PublishedDevice, attribute: str) -> world.Value | None:
        return world.value_of(json_types.mapping(device.spec, "attributes"), device.pool.driver, attribute, lists=self.lists)

    @staticmethod
    def _qualified(device: PublishedDevice, name: str) -> str:
        return name if "/" in name else f"{device.pool.driver}/{name}"

    def _driver(self, document: Document, config: Object, path: str, devices: Sequence[PublishedDevice]) -> Iterator[Finding]:
        """Yield a warning for parameters whose driver has no selected device."""
        driver = json_types.text(config, "opaque", "driver")
        drivers = {device.pool.driver for device in devices}
        if driver and drivers and driver not in drivers:
            text = f"no selected device belongs to driver {driver}: no driver reads the parameters"
            yield findings.warning(document, f"{path}.opaque.driver", text, findings.suggestion(driver, drivers))

    def _fit(self, document: Document, config: Object, path: str, devices: Sequence[PublishedDevice]) -> Iterator[Finding]:
        """Yield parameters that fit no selected device: prepare refuses them if they name the request, and else ignores them."""
        driver, parameters = json_types.text(config, "opaque", "driver"), json_types.at(config, "opaque", "parameters")
        own = [device for device in devices if device.pool.driver == driver]
        if not own or any(self.fits(driver, parameters, plain_attributes(driver, device.spec)) for device in own):
            return
        kind, requests = json_types.text(parameters, "kind") or "the configuration", json_types.strings(config, "requests")
        text = f"{kind} fits none of the {_devices(len(own))} that {'is' if len(own) == 1 else 'are'} selected"
        refusal = self.refuses(driver, parameters, plain_attributes(driver, own[0].spec))
        use = refusal[2] if refusal is not None else "use the kind for these devices"
        if requests:
            fix = f"{use}, or name other requests than {', '.join(requests)}"
            yield findings.error(document, f"{path}.opaque.parameters", f"{text}: the driver refuses to prepare the claim", fix)
        else:
            yield findings.warning(document, f"{path}.opaque.parameters", f"{text}: it has no effect", use)

    def _refused(
        self, document: Document, config: Object, path: str, *, later: Sequence[Object], requested: Sequence[_Selection]
    ) -> Iterator[Finding]:
        """Yield parameters that their driver refuses for every device that they are for. A later configuration may override them."""
        driver, parameters = json_types.text(config, "opaque", "driver"), json_types.at(config, "opaque", "parameters")
        if any(json_types.text(other, "opaque", "driver") == driver for other in later):
            return
        refused = []
        for selection in _concerned(config, requested):
            for device in selection.devices if not selection.admin else ():
                attributes = plain_attributes(driver, device.spec)
                if device.pool.driver != driver or not self.fits(driver, parameters, attributes):
                    return
                refused.append(self.refuses(driver, parameters, attributes))
        if refused and all(refused) and (first := refused[0]):
            field, text, fix = first
            others = f" (none of the {_devices(len(refused))} that are selected takes it)" if len(refused) > 1 else ""
            yield findings.error(document, f"{path}.opaque.{field}", f"{text}{others}: the driver refuses to prepare the claim", fix)


def _attributes_of(device: PublishedDevice) -> frozenset[tuple[str, str]]:
    """Return domain and name of each attribute of a device."""
    qualified = (name.rpartition("/") for name in json_types.mapping(device.spec, "attributes"))
    return frozenset((domain or device.pool.driver, name) for domain, _, name in qualified)


def _evaluated(
    evaluate: Callable[[str, DeviceView], object], expression: str, devices: Sequence[PublishedDevice]
) -> tuple[list[PublishedDevice], list[tuple[PublishedDevice, str]]]:
    """Return the devices for which an expression gives more than False, and those on which it fails, with the error."""
    positive, failed = [], []
    for device in devices:
        try:
            if evaluate(expression, device.view) is not False:
                positive.append(device)
        except SelectorError as error:
            failed.append((device, str(error)))
    return positive, failed


def _options(request: Object, path: str) -> Iterator[tuple[str, str, Object]]:
    """Yield path, name and body of a request's exact form or of its alternatives."""
    name = json_types.text(request, "name")
    exactly = request.get("exactly")
    if isinstance(exactly, dict):
        yield f"{path}.exactly", name, exactly
    for place, alternative in enumerate(json_types.objects(request, "firstAvailable")):
        yield f"{path}.firstAvailable[{place}]", f"{name}/{json_types.text(alternative, 'name')}", alternative


def _concerned(holder: Object, requested: Sequence[_Selection]) -> list[_Selection]:
    """Return the requests that a constraint or configuration names, all if it names none."""
    names = set(json_types.strings(holder, "requests"))
    return [selection for selection in requested if not names or names & selection.names]


def _count(document: Document, option: Object, path: str, selected: Sequence[PublishedDevice]) -> list[Finding]:
    """Return a warning for more devices than one node has, or than a claim may have."""
    count, available, node = json_types.number(option, "count"), *_most_on_one_node(selected)
    where = (
        f"node {node} has the most with {_devices(available)}"
        if node
        else f"{_devices(available)} {'is' if available == 1 else 'are'} selected"
    )
    if json_types.text(option, "allocationMode") == "All" and available > MAX_RESULTS:
        text = f"requests all, but {where}, and a claim gets at most {MAX_RESULTS}"
        return [findings.warning(document, f"{path}.allocationMode", text, "select fewer, or write ExactCount and a count")]
    if count > MAX_RESULTS:
        return [
            findings.warning(
                document, f"{path}.count", f"requests {count}, but a claim gets at most {MAX_RESULTS}", f"write at most {MAX_RESULTS}"
            )
        ]
    if count <= available or any(device.shared for device in selected):
        return []
    return [findings.warning(document, f"{path}.count", f"requests {count}, but {where}", f"write at most {available}, or select more")]


def _most_on_one_node(devices: Sequence[PublishedDevice]) -> tuple[int, str]:
    """Return the largest number of these devices that one node can use, and its name if several nodes have some."""
    by_node = Counter(device.node for device in devices)
    everywhere = by_node.pop("", 0)
    node, largest = max(by_node.items(), key=lambda item: item[1], default=("", 0))
    return largest + everywhere, node if len(by_node) > 1 else ""


def _devices(number: int) -> str:
    return plurals.counted(number, "device")


def _selects_nothing(expression: str, devices: Sequence[PublishedDevice]) -> tuple[str, str]:
    """Return what a selector that selects nothing compares with a text that no device has, and the fix."""
    unknown = compared_texts.unknown(expression, (device.view for device in devices))
    if not unknown:
        return "", "compare it with the attributes in the slices"
    first = unknown[0]
    close = findings.suggestion(first.text, first.known)
    return f": none has {first.attribute} {first.text}", f"{close}; {first.values}" if close.startswith("write") else first.values


def _guard(expressions: Sequence[str], devices: Sequence[PublishedDevice], failed: Sequence[PublishedDevice]) -> str:
    """Return the check that ``expressions`` of a class or request need before the part that fails on some of ``devices``."""
    fixes = [] if any("device.driver" in expression for expression in expressions) else [_CHECK_DRIVER]
    drivers = {device.pool.driver for device in failed}
    foreign = drivers < {device.pool.driver for device in devices} and len(failed) == sum(
        device.pool.driver in drivers for device in devices
    )
    return "; ".join(fixes if fixes and foreign else [*fixes, _CHECK_ATTRIBUTE])


def _share_of(failed: Sequence[object], devices: Sequence[object]) -> str:
    return f"{len(failed)} of {_devices(len(devices))}"


def _first(failed: Sequence[tuple[PublishedDevice, str]]) -> str:
    """Name the first devices on which a selector fails."""
    names = [f"{device.pool}/{device.name}" for device, _ in failed[:_NAMED]]
    more = len(failed) - len(names)
    return f"{'first ' if len(failed) > 1 else ''}{', '.join(names)}{f' and {more} more' if more else ''}"


def _impossible(document: Document, option: Object, path: str) -> Iterator[Finding]:
    """Yield names of capacities that the API server accepts in a request and refuses in a slice."""
    for name in json_types.mapping(option, "capacity", "requests"):
        for failure in names.qualified(name, f"{path}.capacity.requests[{name}]"):
            text = f"{failure.message}; no device can have a capacity of this name"
            yield findings.error(document, failure.field, text, "write the capacity's name, such as memory")
