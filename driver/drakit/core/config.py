"""Choose the opaque parameters that configure a grant, and decode them strictly.

Precedence (resource.k8s.io/v1, status.allocation.devices.config): class before claim, earlier before later. The last one that applies wins as a
whole, unless the driver is a ``ConfigMerger``. All that apply are decoded, so a mistake is reported even if another configuration overrides it. A
configuration that names the request must fit the device. One that names no request applies to all devices that it fits. Errors name the owner of the
configuration, because an admin writes the class and a user the claim. Author's code names a field of its configuration, and this module adds where
that is.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from drakit.core import advanced, errors, records, specs
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core.encoding import opaque_parameters

PARAMETERS = "parameters"
_OWNERS = {claims.ConfigSource.CLASS: "the DeviceClass, which its admin must change", claims.ConfigSource.CLAIM: "the claim"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """The configuration of one grant. ``source`` (the strongest that applies) and ``parameters`` are None for the driver's default."""

    config: object
    source: claims.ConfigSource | None = None
    parameters: records.Record | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The opaque parameters that a driver accepts for any device: types to decode, and a check that depends on who wrote them.

    ``check`` receives the parameters and their decoded value, and raises ConfigError. The others are for ``drakit lint``: ``warn`` returns what a
    valid configuration most likely gets wrong; ``unique`` returns the values that only one device of a claim may have, each by its field; ``for_all``
    says that a configuration that names no request is for every device, so that its ``unique`` is judged too: leave it out with a ``ConfigFilter``;
    ``fits`` says whether the configuration is for a device with these attributes (by name, without the driver's domain). All name fields of the
    configuration, such as ``routes[0]``. ``check_device`` raises the ConfigError of ``prepare`` for a device that the configuration fits, but whose
    attributes show that it cannot have it; ``drakit allocate`` uses it too. ``check_claim`` and ``check_pod`` are those of ``ClaimChecker`` and
    ``PodChecker``, and name fields of the object.
    """

    types: tuple[type[object], ...]
    check: Callable[[claims.ConfigSource, records.Record, object], None] = lambda _source, _parameters, _config: None
    warn: Callable[[object], Sequence[errors.ConfigError]] = lambda _config: ()
    unique: Callable[[object], Mapping[str, str]] = lambda _config: {}
    for_all: bool = False
    fits: Callable[[object, Mapping[str, object]], bool] = lambda _config, _attributes: True
    check_device: Callable[[object, Mapping[str, object]], None] = lambda _config, _attributes: None
    check_claim: Callable[[specs.ClaimSpec], Iterable[errors.ConfigError] | None] | None = None
    check_pod: Callable[[specs.PodSpec], Iterable[errors.ConfigError] | None] | None = None


def check(parameters: records.Record, source: claims.ConfigSource, rules: Rules) -> None:
    """Raise ConfigError for parameters with which no claim can be prepared. Its field is the JSON path, such as ``parameters.sharing``."""
    decoded = decode(parameters, rules.types)
    with author_errors():
        rules.check(source, parameters, decoded)


def warnings(parameters: records.Record, rules: Rules) -> Sequence[errors.ConfigError]:
    """Return the likely mistakes in valid parameters. The field is the JSON path, such as ``parameters.routes[0]``."""
    return tuple(mistake.with_prefix(PARAMETERS) for mistake in rules.warn(decode(parameters, rules.types)))


def decode(parameters: records.Record, types: tuple[type[object], ...]) -> object:
    """Return a value of one of ``types`` from opaque parameters. Raises ConfigError whose field is the JSON path, such as ``parameters.sharing``."""
    return opaque_parameters.decode(parameters, types, root=PARAMETERS)


@contextlib.contextmanager
def author_errors() -> Iterator[None]:
    """Put ``parameters`` before the field of a ConfigError that author's code raises: it names fields of the configuration alone (ADR 103)."""
    try:
        yield
    except errors.ConfigError as error:
        if not error.field:
            raise
        raise error.with_prefix(PARAMETERS) from error


def choose(
    claim: claims.Claim, result: claims.AllocationResult, driver: "drivers.Driver[drivers.Config]", device: devices.Device
) -> Chosen:
    """Return the configuration of one allocation result. Raises ConfigError, also if required parameters are missing."""
    applying: list[claims.OpaqueConfig] = []
    for entry in claim.configs_of(result.driver):
        if entry.applies_to(result.request):
            config = _decoded(entry, driver.config_types)
            if _accepts(driver, device, config):
                applying.append(entry)
            elif entry.requests:
                raise misfit(entry, config, result)
    if not applying:
        return Chosen(config=default_for(driver, device))
    parameters = records.freeze_record(_merged(driver, applying))
    return Chosen(config=decode(parameters, driver.config_types), source=applying[-1].source, parameters=parameters)


def default_for(driver: "drivers.Driver[drivers.Config]", device: devices.Device) -> object:
    """Return the configuration of a grant without parameters. Raises ConfigError if parameters are required."""
    # As isinstance() with the protocol, which takes 14 microseconds and is called for every grant.
    if hasattr(driver, "default_config"):
        with author_errors():
            return driver.default_config(device)
    try:
        return driver.config_types[0]()
    except TypeError as error:
        kind = driver.config_types[0].__name__
        raise errors.ConfigError(
            f"{driver.name} needs parameters ({kind}) for this device; write them in the claim", field="config"
        ) from error


def _accepts(driver: "drivers.Driver[drivers.Config]", device: devices.Device, config: object) -> bool:
    with author_errors():
        return not isinstance(driver, advanced.ConfigFilter) or driver.accepts_config(device, config)


def _merged(driver: "drivers.Driver[drivers.Config]", applying: Sequence[claims.OpaqueConfig]) -> records.Record:
    with author_errors():
        return driver.merge_configs(applying) if isinstance(driver, advanced.ConfigMerger) else applying[-1].parameters


def _decoded(entry: claims.OpaqueConfig, types: tuple[type[object], ...]) -> object:
    try:
        return decode(entry.parameters, types)
    except errors.ConfigError as error:
        raise errors.restated(error, f"{error.reason} ({_origin(entry)})", field=error.field) from error


def misfit(entry: claims.OpaqueConfig, config: object, result: claims.AllocationResult) -> errors.ConfigError:
    """Return the error of a configuration that names the request of a device that it does not fit."""
    kind = opaque_parameters.kind_of(type(config))
    return errors.ConfigError(
        f"{kind} does not fit device {result.device} of request {result.request} ({_origin(entry)}); name other requests in the config",
        field=PARAMETERS,
    )


def _origin(entry: claims.OpaqueConfig) -> str:
    requests = f", for {', '.join(entry.requests)}" if entry.requests else ""
    return f"from the config of {_OWNERS[entry.source]}{requests}"
