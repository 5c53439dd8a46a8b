"""Verdicts of selectors on devices, kept: by device, and by what an expression reads of it (``footprints``)."""

from collections.abc import Hashable

from drakit_cluster.objects.devices import SelectorPort
from drakit_cluster.scheduling.allocator.footprints import Footprint
from drakit_cluster.scheduling.allocator.inventory import Device

_KEPT_EXPRESSIONS = 1024
_KEPT_VERDICTS = 1 << 16


class _Known:
    """What is known of one expression."""

    __slots__ = ("by_footprint", "footprint")

    def __init__(self, expression: str) -> None:
        self.footprint = Footprint.of(expression)
        self.by_footprint: dict[Hashable, bool] = {}


class Verdicts:
    """The verdicts of one set of selectors on any devices. An error is never kept."""

    def __init__(self, selectors: SelectorPort) -> None:
        self._selectors = selectors
        self._known: dict[str, _Known] = {}

    def matches(self, expression: str, device: Device) -> bool:
        """Return the verdict. Raise SelectorError if there is none."""
        known = self._known.get(expression)
        if known is None:
            known = self._remember(expression)
        if known.footprint is None or not device.plain:
            return self._selectors.matches(expression, device.view)
        seen = known.footprint.on(device.driver, device.spec)
        if seen is None:
            return self._selectors.matches(expression, device.view)
        verdict = known.by_footprint.get(seen)
        if verdict is None:
            verdict = self._selectors.matches(expression, device.view)
            if len(known.by_footprint) < _KEPT_VERDICTS:
                known.by_footprint[seen] = verdict
        return verdict

    def _remember(self, expression: str) -> _Known:
        if len(self._known) >= _KEPT_EXPRESSIONS:
            self._known.pop(next(iter(self._known)))
        known = self._known[expression] = _Known(expression)
        return known
