"""Rules of a container's resources: names and amounts of limits and requests, and claims that it lists twice.

Source: Kubernetes' validateResourceRequirements. A name that is wrong in two ways fails once.
"""

from collections.abc import Iterator

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.objects.validation import failure, names
from drakit_cluster.objects.validation.failure import Failure

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"
_KUBERNETES = "kubernetes.io/"
_QUOTA = "requests."


def check(resources: Object, path: str) -> Iterator[Failure]:
    """Yield the failures of decoded ``resources`` at ``path``."""
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount(name, amount, f"{path}.{kind}[{name}]")
    for name, amount in requests.items():
        limit, is_fixed = limits.get(name), _is_extended(name) or name.startswith(_HUGE_PAGES)
        if limit is None and is_fixed:
            yield failure.required(f"{path}.limits", f"write {name}: {amount}, because requests has it, and its limit must be the same")
        elif limit is not None and is_fixed and amount != limit:
            yield failure.invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit of {limit}")
        elif limit is not None and amount > limit:
            yield failure.invalid(f"{path}.requests", str(amount), f"must be less than or equal to {name} limit of {limit}")
    yield from _claims(json_types.items(resources, "claims"), f"{path}.claims")


def _amounts(resources: Object, kind: str) -> dict[str, Quantity]:
    return {name: quantity.parse(amount) for name, amount in json_types.mapping(resources, kind).items()}


def _amount(name: str, amount: Quantity, path: str) -> Iterator[Failure]:
    malformed = list(names.label_key(name, path))
    yield from malformed
    if not malformed and "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        yield failure.invalid(path, name, "must be a standard resource for containers")
    elif _is_extended(name) and (name.startswith(_QUOTA) or any(names.label_key(f"{_QUOTA}{name}", path))):
        yield failure.invalid(path, name, "doesn't follow extended resource name standard")
    if amount.nanos < 0:
        yield failure.invalid(path, str(amount), "must be greater than or equal to 0")
    elif _is_extended(name) and amount.is_fraction:
        yield failure.invalid(path, str(amount), "must be an integer")


def _is_extended(name: str) -> bool:
    return "/" in name and _KUBERNETES not in name


def _claims(claims: list[Json], path: str) -> Iterator[Failure]:
    """Yield malformed names of requests, and entries whose devices an earlier entry has: a claim without a request stands for all of its requests."""
    requests: dict[str, set[str]] = {}
    for index, claim in enumerate(claims):
        name, request = json_types.text(claim, "name"), json_types.text(claim, "request")
        if request:
            yield from names.label(request, f"{path}[{index}].request")
        earlier = requests.setdefault(name, set())
        if name and earlier and (not request or earlier & {request, ""}):
            yield failure.duplicate(f"{path}[{index}]", "/".join(filter(None, (name, request if "" not in earlier else ""))))
        earlier.add(request)
