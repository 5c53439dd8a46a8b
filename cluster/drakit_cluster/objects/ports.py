"""What the allocator needs from outside, and the errors it speaks."""

from typing import Protocol

from drakit_cluster.objects.devices import DeviceView


class SelectorError(Exception):
    """An expression that does not compile, or that fails on a device. The message says which and why."""


class SelectorPort(Protocol):
    """Evaluates CEL device selectors."""

    def matches(self, expression: str, device: DeviceView) -> bool:
        """Return the verdict of ``expression`` on ``device``; raise :class:`SelectorError` if there is none."""
        ...


class AllocationError(Exception):
    """Allocation cannot be decided: a claim, class, selector or pool is wrong. Not the same as "does not fit", which is no error.

    The message names claim, request and field.
    """
