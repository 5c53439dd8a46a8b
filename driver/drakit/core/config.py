"""Which opaque parameters configure a grant, decoded strictly.

Precedence (resource.k8s.io/v1, status.allocation.devices.config): class before claim, earlier before later; the last that applies wins whole,
unless the driver is a ``ConfigMerger``. All that apply are decoded, so a mistake is reported even where a stronger configuration hides it. One that
names the request must fit the device; one that names no request applies to all devices it fits. Errors name whose configuration it is, because an
admin writes the class and a user the claim.
"""

import dataclasses
from collections.abc import Callable

from drakit.core import advanced, errors, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core.encoding import opaque_parameters

_WHOSE = {claims.ConfigSource.CLASS: "the DeviceClass, which its admin must change", claims.ConfigSource.CLAIM: "the claim"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """The configuration of one grant; ``source`` (the strongest that applies) and ``parameters`` are None when it is the driver's default."""

    config: object
    source: claims.ConfigSource | None = None
    parameters: records.Record | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What a driver takes as opaque parameters, whatever the device: types to decode, and a check of one configuration by who wrote it.

    ``check`` gets the parameters and the value that they decode to, and raises ConfigError.
    """

    types: tuple[type[object], ...]
    check: Callable[[claims.ConfigSource, records.Record, object], None] = lambda _source, _parameters, _config: None


def check(parameters: records.Record, source: claims.ConfigSource, rules: Rules) -> None:
    """Raise ConfigError for parameters that no claim can be prepared with; the field is the JSON path under ``parameters``."""
    rules.check(source, parameters, decode(parameters, rules.types))


def decode(parameters: records.Record, types: tuple[type[object], ...]) -> object:
    """A value of one of ``types`` from opaque parameters; raises ConfigError whose field is the JSON path, such as ``parameters.sharing``."""
    return opaque_parameters.decode(parameters, types, root="parameters")


def choose(
    claim: claims.Claim, result: claims.AllocationResult, driver: "drivers.Driver[drivers.Config]", device: devices.Device
) -> Chosen:
    """The configuration of one allocation result. Raises ConfigError, also where parameters are required."""
    author = advanced.author_of(driver)
    fitting: list[claims.OpaqueConfig] = []
    for entry in claim.configs_of(result.driver):
        if entry.applies_to(result.request):
            config = _decoded(entry, driver.config_types)
            if not isinstance(author, advanced.ConfigFilter) or author.accepts_config(device, config):
                fitting.append(entry)
            elif entry.requests:
                raise _misfit(entry, config, result)
    if not fitting:
        return Chosen(config=default_for(driver, device))
    merged = author.merge_configs(fitting) if isinstance(author, advanced.ConfigMerger) else fitting[-1].parameters
    parameters = records.freeze_record(merged)
    return Chosen(config=decode(parameters, driver.config_types), source=fitting[-1].source, parameters=parameters)


def default_for(driver: "drivers.Driver[drivers.Config]", device: devices.Device) -> object:
    """Return the configuration of a grant without parameters; raises ConfigError where parameters are required."""
    author = advanced.author_of(driver)
    if isinstance(author, advanced.ConfigDefaults):
        return author.default_config(device)
    try:
        return driver.config_types[0]()
    except TypeError as error:
        kind = driver.config_types[0].__name__
        raise errors.ConfigError(
            f"{driver.name} needs parameters ({kind}) for this device; write them in the claim", field="config"
        ) from error


def _decoded(entry: claims.OpaqueConfig, types: tuple[type[object], ...]) -> object:
    try:
        return decode(entry.parameters, types)
    except errors.ConfigError as error:
        raise type(error)(f"{error.reason} ({_origin(entry)})", field=error.field) from error


def _misfit(entry: claims.OpaqueConfig, config: object, result: claims.AllocationResult) -> errors.ConfigError:
    kind = opaque_parameters.kind_of(type(config))
    return errors.ConfigError(
        f"{kind} does not fit device {result.device} of request {result.request} ({_origin(entry)}); name other requests in the config",
        field="parameters",
    )


def _origin(entry: claims.OpaqueConfig) -> str:
    requests = f", for {', '.join(entry.requests)}" if entry.requests else ""
    return f"from the config of {_WHOSE[entry.source]}{requests}"
