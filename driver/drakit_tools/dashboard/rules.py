"""DeviceTaintRules on the page: where the server lists them, and slices with the taints that they add."""

import dataclasses
import http
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from drakit.core import errors
from drakit.kube import transport
from drakit_cluster.objects import devices, json_types, versions
from drakit_cluster.scheduling import taint_rules
from drakit_tools.dashboard import model, pool_devices

if TYPE_CHECKING:
    from drakit_cluster.objects.json_types import Object

VERSIONS = tuple(f"resource.k8s.io/{version}" for version in versions.SERVED["DeviceTaintRule"])
"""API versions of DeviceTaintRules, the best one first."""
IN_FILES = "devicetaintrules"
"""Stands for the path of rules in files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """Where a server lists DeviceTaintRules; without a path, the problem or the note that says why.

    ``taints_every_device`` is set where the server's scheduler lets a rule without a selector taint every device.
    """

    path: str = ""
    problem: str = ""
    note: str = ""
    taints_every_device: bool = False


def find(api: transport.Transport) -> Served:
    """Return the path of the best API version of DeviceTaintRules that the server serves."""
    for path in (f"/apis/{version}/devicetaintrules" for version in VERSIONS):
        try:
            api.request("GET", path, query={"limit": "1"})
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                continue
            return Served(problem=f"taints of DeviceTaintRules are not shown: {error}")
        return Served(path=path, taints_every_device=_taints_every_device(api))
    return Served(note=f"The server does not serve DeviceTaintRules ({http.HTTPStatus.NOT_FOUND}), so no rule taints a device.")


def _taints_every_device(api: transport.Transport) -> bool:
    try:
        version = versions.nearest(str(api.request("GET", "/version").get("gitVersion", "")))
    except errors.ApiError:
        version = versions.NEWEST
    return not versions.within(versions.RULES[versions.Rule.SELECTOR_REQUIRED], version)


class TaintedSlices:
    """Slices with the taints of rules. A slice is made anew only when it or a rule changes."""

    def __init__(self) -> None:
        self._rules: Sequence[transport.Object] = ()
        self._taints_every_device = False
        self._known: dict[int, tuple[transport.Object, transport.Object]] = {}

    def of(
        self, slices: Sequence[transport.Object], rules: Sequence[transport.Object], *, taints_every_device: bool
    ) -> Sequence[transport.Object]:
        """Return the slices with the rules' taints; a slice that no rule selects as it is."""
        if list(map(id, rules)) != list(map(id, self._rules)):
            self._rules, self._known = rules, {}
        self._taints_every_device = taints_every_device
        if not rules:
            return slices
        wanted = cast("Sequence[Object]", rules)
        for item in slices:
            if id(item) not in self._known:
                tainted = taint_rules.tainted(cast("Object", item), wanted, unselective=taints_every_device)
                self._known[id(item)] = item, tainted
        self._known = {id(item): self._known[id(item)] for item in slices}
        return [tainted for _, tainted in self._known.values()]

    def named(self, driver: str, pool: str, device: str) -> tuple[model.Taint, ...]:
        """Return the taints that rules add to a device, each with the name of its rule."""
        id_ = devices.DeviceId(driver, pool, device)
        found = []
        for rule in cast("Sequence[Object]", self._rules):
            if taint_rules.selects(rule, id_, unselective=self._taints_every_device):
                taint = taint_rules.taint_of(rule)
                text = pool_devices.taint_text(*(json_types.text(taint, field) for field in ("key", "value", "effect")))
                found.append(model.Taint(text=text, rule=json_types.text(rule, "metadata", "name")))
        return tuple(found)
