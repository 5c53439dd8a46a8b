"""Mistakes in what users and admins ask for: selectors, constraints, capacity and configuration that no published device can meet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drakit.cluster import constraints, json_types, ports, quantity, resources
from drakit.cluster.json_types import Object
from drakit.cluster.linting import findings
from drakit.cluster.linting.catalogue import Catalogue, Offer
from drakit.cluster.linting.findings import Finding
from drakit.cluster.manifests import Accepted, Document

_GUARD_CLASS = 'check the driver first: device.driver == "..." && ...'
_GUARD_REQUEST = (
    'ask only for what is there: "name" in device.attributes["domain"] && ..., or device.attributes["domain"].?name.orValue(...)'
)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """One request or alternative, and the devices that class and request select."""

    names: frozenset[str]
    devices: Sequence[Offer]


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Judges demands by what is offered. Without any slice or class, what depends on them is not judged."""

    offered: Catalogue
    classes: Mapping[str, Accepted]
    selectors: ports.SelectorPort
    lists: bool

    def of_class(self, one: Accepted) -> Iterator[Finding]:
        """Yield what is wrong with a class."""
        yield from self._select(one.document, json_types.mapping(one.object, "spec"), "spec", self.offered.devices, _GUARD_CLASS)[1]
        for place, config in enumerate(json_types.objects(one.object, "spec", "config")):
            yield from self._driver(one.document, config, f"spec.config[{place}]", self.offered.devices)

    def of_claim(self, one: Accepted) -> Iterator[Finding]:
        """Yield what is wrong with a claim or a template."""
        path = "spec.spec.devices" if one.document.resource is resources.CLAIM_TEMPLATE else "spec.devices"
        devices = json_types.mapping(one.object, *path.split("."))
        wanted: list[_Wanted] = []
        for place, request in enumerate(json_types.objects(devices, "requests")):
            for where, name, option in _options(request, f"{path}.requests[{place}]"):
                selected, found = self._option(one.document, option, where)
                yield from found
                if selected is not None:
                    wanted.append(_Wanted(names=frozenset({json_types.text(request, "name"), name}), devices=selected))
        for place, constraint in enumerate(json_types.objects(devices, "constraints")):
            yield from self._constraint(one.document, constraint, f"{path}.constraints[{place}]", wanted)
        for place, config in enumerate(json_types.objects(devices, "config")):
            concerned = [device for each in _concerned(config, wanted) for device in each.devices]
            if concerned or not wanted:
                yield from self._driver(one.document, config, f"{path}.config[{place}]", concerned or self.offered.devices)

    def _option(self, document: Document, option: Object, path: str) -> tuple[list[Offer] | None, list[Finding]]:
        """Return the devices that a request selects, None where that cannot be said, and what is wrong with it."""
        name = json_types.text(option, "deviceClassName")
        if name not in self.classes:
            text = f"there is no DeviceClass {name} in these files"
            missing = findings.warning(document, f"{path}.deviceClassName", text, findings.suggestion(name, self.classes))
            return None, [missing] if self.classes else []
        if not self.offered.devices:
            return None, []
        of_class = json_types.mapping(self.classes[name].object, "spec")
        possible, _ = self._select(self.classes[name].document, of_class, "spec", self.offered.devices, "")
        selected, found = self._select(document, option, path, possible, _GUARD_REQUEST) if possible else ([], [])
        if selected:
            found += _count(document, option, path, selected)
            found += _capacity(document, option, path, selected)
        return selected, found

    def _select(
        self, document: Document, holder: Object, path: str, devices: Sequence[Offer], guard: str
    ) -> tuple[list[Offer], list[Finding]]:
        """Return the devices that all selectors of ``holder`` select, and what is wrong with the selectors."""
        found: list[Finding] = []
        remaining = list(devices)
        for place, selector in enumerate(json_types.objects(holder, "selectors")):
            expression, field = json_types.text(selector, "cel", "expression"), f"{path}.selectors[{place}].cel.expression"
            selected, failed = self._matching(expression, remaining)
            if failed:
                device, reason = failed[0]
                text = f"fails on {len(failed)} of {len(remaining)} devices, first {device.pool}/{device.name}: {reason}"
                found.append(findings.error(document, field, f"{text}; where it is looked at, nothing is allocated", guard))
            elif remaining and not selected:
                text = f"selects none of {len(remaining)} devices{' that are left by what comes before it' if place else ''}"
                found.append(findings.warning(document, field, text, "compare it with the attributes in the slices"))
            remaining = selected
        return remaining, found

    def _matching(self, expression: str, devices: Sequence[Offer]) -> tuple[list[Offer], list[tuple[Offer, str]]]:
        selected, failed = [], []
        for device in devices:
            try:
                if self.selectors.matches(expression, device.view):
                    selected.append(device)
            except ports.SelectorError as error:
                failed.append((device, str(error)))
        return selected, failed

    def _constraint(self, document: Document, constraint: Object, path: str, wanted: Sequence[_Wanted]) -> Iterator[Finding]:
        for kind in ("matchAttribute", "distinctAttribute"):
            attribute = json_types.text(constraint, kind)
            for one in _concerned(constraint, wanted) if attribute else ():
                if one.devices and not any(self._has(device, attribute) for device in one.devices):
                    names = {
                        self._qualified(device, name) for device in one.devices for name in json_types.mapping(device.spec, "attributes")
                    }
                    text = f"none of the {len(one.devices)} devices that request {min(one.names)} selects has attribute {attribute}"
                    yield findings.warning(document, f"{path}.{kind}", text, findings.suggestion(attribute, names))

    def _has(self, device: Offer, attribute: str) -> bool:
        attributes = json_types.mapping(device.spec, "attributes")
        return constraints.value_of(attributes, device.pool.driver, attribute, lists=self.lists) is not None

    @staticmethod
    def _qualified(device: Offer, name: str) -> str:
        return name if "/" in name else f"{device.pool.driver}/{name}"

    def _driver(self, document: Document, config: Object, path: str, devices: Sequence[Offer]) -> Iterator[Finding]:
        """Yield a warning for parameters that no driver of the devices reads."""
        driver = json_types.text(config, "opaque", "driver")
        known = {device.pool.driver for device in devices}
        if driver and known and driver not in known:
            text = f"no device that it could be for is of driver {driver}: nobody reads the parameters"
            yield findings.warning(document, f"{path}.opaque.driver", text, findings.suggestion(driver, known))


def _options(request: Object, path: str) -> Iterator[tuple[str, str, Object]]:
    """Yield path, name and body of a request's exact form or alternatives."""
    name = json_types.text(request, "name")
    exactly = request.get("exactly")
    if isinstance(exactly, dict):
        yield f"{path}.exactly", name, exactly
    for place, one in enumerate(json_types.objects(request, "firstAvailable")):
        yield f"{path}.firstAvailable[{place}]", f"{name}/{json_types.text(one, 'name')}", one


def _concerned(holder: Object, wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """Return the requests that a constraint or configuration names, all if it names none."""
    names = set(json_types.strings(holder, "requests"))
    return [one for one in wanted if not names or names & one.names]


def _count(document: Document, option: Object, path: str, selected: Sequence[Offer]) -> list[Finding]:
    count = json_types.number(option, "count")
    shared = any(device.spec.get("allowMultipleAllocations") is True for device in selected)
    if count <= len(selected) or shared:
        return []
    text = f"asks for {count}, and {len(selected)} devices are selected"
    return [findings.warning(document, f"{path}.count", text, f"write at most {len(selected)}, or select more")]


def _capacity(document: Document, option: Object, path: str, selected: Sequence[Offer]) -> list[Finding]:
    found = []
    for name, asked in json_types.mapping(option, "capacity", "requests").items():
        field = f"{path}.capacity.requests[{name}]"
        values = [
            quantity.parse(json_types.at(capacity, "value"))
            for device in selected
            if (capacity := json_types.mapping(device.spec, "capacity").get(name)) is not None
        ]
        if not values:
            known = {known for device in selected for known in json_types.mapping(device.spec, "capacity")}
            text = f"none of the {len(selected)} selected devices has a capacity {name}"
            found.append(findings.warning(document, field, text, findings.suggestion(name, known)))
        elif quantity.parse(asked) > max(values):
            text = f"asks for {asked}, and no selected device has more than {max(values)}"
            found.append(findings.warning(document, field, text, f"write at most {max(values)}"))
    return found
