"""Mistakes in DeviceTaintRules: taints that no device gets, that more devices get than meant, or that do nothing."""

from collections.abc import Iterable, Iterator

from drakit_cluster.lint import findings
from drakit_cluster.lint.catalogue import Catalogue, Offer
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import taint_rules

_SELECTOR = "spec.deviceSelector"
_FIELDS = ("driver", "pool", "device")


def check(rules: Iterable[Accepted], offered: Catalogue) -> Iterator[Finding]:
    """Yield what is wrong with the rules, by the devices that there are."""
    for rule in rules:
        selector = json_types.at(rule.object, "spec", "deviceSelector")
        if not isinstance(selector, dict):
            text = "is not there, and then the rule selects no device"
            yield findings.warning(rule.document, _SELECTOR, text, "write driver, pool and device, or {} for every device")
        elif not any(json_types.text(selector, name) for name in _FIELDS):
            yield _everything(rule)
        else:
            yield from _ambiguous(rule, selector)
            yield from _nothing(rule, selector, offered.devices)


def _everything(rule: Accepted) -> Finding:
    effect = json_types.text(rule.object, "spec", "taint", "effect")
    what = {
        "NoExecute": "every pod that uses a device and does not tolerate it is evicted",
        "NoSchedule": "no device is allocated without a toleration",
    }
    text = f"selects every device of the cluster: {what.get(effect, 'nothing happens with this effect')}"
    return findings.warning(rule.document, _SELECTOR, text, "name the driver, the pool or the device that is meant")


def _ambiguous(rule: Accepted, selector: Object) -> Iterator[Finding]:
    """Names of pools are unique for a driver only, those of devices for a pool only."""
    for name, holder in (("pool", "driver"), ("device", "pool")):
        value = json_types.text(selector, name)
        if value and not json_types.text(selector, holder):
            text = f"{value} is selected in every {holder}: the name of a {name} is unique in its {holder} only"
            yield findings.warning(rule.document, f"{_SELECTOR}.{name}", text, f"add {holder}: NAME")


def _nothing(rule: Accepted, selector: Object, devices: list[Offer]) -> Iterator[Finding]:
    if not devices or any(taint_rules.selects(rule.object, device.id) for device in devices):
        return
    left = devices
    for name in _FIELDS:
        wanted = json_types.text(selector, name)
        known = {getattr(device.id, name) for device in left}
        if wanted and wanted not in known:
            text = f"none of the {len(left)} devices{' that are left' if len(left) < len(devices) else ''} has {name} {wanted}: nothing is tainted"
            yield findings.warning(rule.document, f"{_SELECTOR}.{name}", text, findings.suggestion(wanted, known))
            return
        left = [device for device in left if wanted in ("", getattr(device.id, name))]
