"""The requests that only the devices of one driver satisfy, as classes and selectors show. No selector is evaluated, because no device is known."""

import dataclasses
import re
from collections.abc import Mapping

from drakit.admission import lenient_json

CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""The extended resource of a class has this before the class's name (KEP-5004)."""
_UNLESS = re.compile(r"\|\||\?|!(?!=)")
"""An operator with which a comparison in an expression need not hold for the devices that the expression selects."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnDevices:
    """The names of the classes and of the extended resources that select devices of a driver alone. ``resources`` have their classes."""

    driver: str
    classes: frozenset[str]
    resources: Mapping[str, str]

    @classmethod
    def of(cls, driver: str, classes: Mapping[str, lenient_json.Object]) -> "OwnDevices":
        """Return those of a driver, by DeviceClasses. A class that is not given counts if it has the driver's name."""
        chosen = {name for name, device_class in classes.items() if _selects(lenient_json.mapping(device_class, "spec"), driver)}
        names = frozenset(chosen | ({driver} - classes.keys()))
        named = {lenient_json.text(classes[name], "spec", "extendedResourceName"): name for name in sorted(names & classes.keys())}
        named.pop("", None)
        return cls(driver=driver, classes=names, resources=named | {f"{CLASS_PREFIX}{name}": name for name in names})

    def is_choice(self, choice: object) -> bool:
        """Return whether only these devices satisfy a request or one of its alternatives, which has class and selectors."""
        return lenient_json.text(choice, "deviceClassName") in self.classes or _selects(choice, self.driver)


def _selects(owner: object, driver: str) -> bool:
    """Return whether a selector requires the driver: its first or last term compares with its name, and nothing in it makes that optional.

    A term between others may be in brackets or a text, and the comparison may then count for nothing.
    """
    pattern = rf"""device\.driver\s*==\s*(["']){re.escape(driver)}\1"""
    expressions = [lenient_json.text(selector, "cel", "expression") for selector in lenient_json.objects(owner, "selectors")]
    conjunctions = [text.split("&&") for text in expressions if not _UNLESS.search(text)]
    return any(re.fullmatch(pattern, term.strip()) for terms in conjunctions for term in (terms[0], terms[-1]))
