"""Parameters of a driver that are no parameters, but attributes or capacities of its devices: claims select by those, or request them."""

import dataclasses
import json
import re
from collections.abc import Sequence

from drakit_cluster.lint.catalogue import PublishedDevice
from drakit_cluster.lint.findings import Finding
from drakit_cluster.lint.mistake import keys
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object

_UNKNOWN = "is not a known field"
_PARAMETER = re.compile(r"(.*\.config\[\d+\]\.opaque)\.parameters\.(\w+)")


def with_fix(finding: Finding, devices: Sequence[PublishedDevice]) -> Finding:
    """Return a finding about an unknown parameter with the place where its name and value belong, any other finding as it is."""
    match = _PARAMETER.fullmatch(finding.field)
    if match is None or finding.text != _UNKNOWN:
        return finding
    opaque, name = json_types.mapping(json_types.at(finding.document.body, *keys(match[1]))), match[2]
    own = [device for device in devices if device.pool.driver == json_types.text(opaque, "driver")]
    fix = _fix(name, opaque, own)
    return dataclasses.replace(finding, fix=fix) if fix else finding


def _fix(name: str, opaque: Object, devices: Sequence[PublishedDevice]) -> str:
    driver, value = json_types.text(opaque, "driver"), json.dumps(json_types.at(opaque, "parameters", name))
    if any(device.shared and name in json_types.mapping(device.spec, "capacity") for device in devices):
        return f"it is a capacity: move it to the request, as exactly.capacity.requests: {{{name}: {value}}}"
    if any(name in json_types.mapping(device.spec, "attributes") for device in devices):
        return f'it is an attribute: write a selector in the request: device.attributes["{driver}"].{name} == {value}'
    if any(name in json_types.mapping(device.spec, "capacity") for device in devices):
        return f'it is a capacity: write a selector in the request: device.capacity["{driver}"].{name}.compareTo(quantity({value})) >= 0'
    return ""
