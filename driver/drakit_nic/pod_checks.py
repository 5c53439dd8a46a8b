"""Mistakes of pods with NICs that ``drakit lint`` and the webhook can see: the attachment would refuse the pod's containers."""

from collections.abc import Iterator, Mapping, Sequence

import drakit
from drakit_nic import config

_LABELS = {"interfaceName": "the interface name", "addresses": "the address"}


def of_pod(pod: drakit.PodSpec, *, passes_to_machines: bool = False) -> Iterator[drakit.ConfigError]:
    """Yield the mistakes of a pod.

    ``passes_to_machines``: some NICs are passed to virtual machines, for which a pod of the host's network is fine.
    """
    if pod.host_network and not passes_to_machines:
        yield from _in_host_network(pod)
    yield from _repeated(pod)


def _in_host_network(pod: drakit.PodSpec) -> Iterator[drakit.ConfigError]:
    """Yield the NICs of a pod in the host's network, because the attachment refuses the pod's containers. Admin access attaches nothing."""
    for use in pod.uses:
        if use.request.is_own and not use.request.admin_access:
            why = "the pod is in the host's network (hostNetwork: true), where no NIC is attached: its container can never start"
            what = f"the claim {use.claim}" if use.claim else "the resource"
            yield drakit.ConfigError(f"{why}; remove {pod.field}.hostNetwork, or {what} from the container", field=use.field)


def _repeated(pod: drakit.PodSpec) -> Iterator[drakit.ConfigError]:
    """Yield names and addresses that interfaces of two claims would both get: the second one cannot be attached. Each pair of claims once."""
    objects = _objects(pod)
    first: dict[str, str] = {}
    reported: set[tuple[str, str, str]] = set()
    for use in pod.uses:
        for value, device_class in _values(use.request, pod.claims[use.claim].configs).items() if use.claim in pod.claims else ():
            other = first.setdefault(value, use.claim)
            key = (value, objects[other], objects[use.claim])
            if objects[other] != objects[use.claim] and key not in reported:
                reported.add(key)
                both = f"the claims {other} and {use.claim} both give the pod {value}"
                why = f"{both}: the second interface is refused, so its container can never start"
                fix = f"name a claim or template for {use.claim} that has another value or none"
                if device_class:
                    fix = f"write another value in the config of {use.claim}, because this is of DeviceClass {device_class}"
                yield drakit.ConfigError(f"{why}; {fix}", field=use.field)


def _objects(pod: drakit.PodSpec) -> dict[str, str]:
    """Return an identity of the claim behind each name in the pod: two entries may name one ResourceClaim, but a template makes a claim for each."""
    entries = pod.spec.get("resourceClaims")
    names = {
        str(entry.get("name")): entry.get("resourceClaimName")
        for entry in (entries if isinstance(entries, Sequence) else ())
        if isinstance(entry, Mapping)
    }
    return {name: f"ResourceClaim {names[name]}" if names.get(name) else name for name in pod.claims}


def _values(request: drakit.RequestSpec, configs: Sequence[drakit.ConfigSpec]) -> Mapping[str, str]:
    """Return in words the name and addresses that an interface of a request gets, whichever of its alternatives is allocated.

    Each has the DeviceClass that gives it, empty for the claim.
    """
    options = request.alternatives or (request,)
    if not request.is_own or any(option.admin_access for option in options):
        return {}
    by_option = [_values_of(option, configs) for option in options]
    return {value: source for value, source in by_option[0].items() if all(value in values for values in by_option)}


def _values_of(option: drakit.RequestSpec, configs: Sequence[drakit.ConfigSpec]) -> Mapping[str, str]:
    """Return the values of the configuration that decides: the last one that applies (``config.settle``), else the last one of the class."""
    applying = [entry for entry in configs if entry.applies_to(option.name)]
    deciding = (applying or option.class_configs)[-1:]
    source = "" if applying else option.device_class
    unique = [item for entry in deciding for item in config.unique(entry.config).items()]
    return {f"{_LABELS[field.partition('[')[0]]} {value}": source for field, value in unique}
