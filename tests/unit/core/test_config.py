"""Which configuration a grant gets: class before claim, later before earlier, and only what fits."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from drakit.core import claim as claims
from drakit.core import config, device, driver, errors, inventory, names, records

DRIVER = "gpu.drakit.dev"
CLASS, CLAIM = claims.ConfigSource.CLASS, claims.ConfigSource.CLAIM
GPU, MIG = device.Device(name="gpu-0", attributes={"type": "gpu"}), device.Device(name="mig-0", attributes={"type": "mig"})


@dataclasses.dataclass(frozen=True)
class GpuConfig:
    """For whole GPUs."""

    api_version: ClassVar[str] = "gpu.drakit.dev/v1"
    kind: ClassVar[str] = "GpuConfig"
    level: int = 0


@dataclasses.dataclass(frozen=True)
class MigConfig:
    """For partitions."""

    api_version: ClassVar[str] = "gpu.drakit.dev/v1"
    kind: ClassVar[str] = "MigConfig"
    level: int = 0


class TooManyError(errors.ConfigError):
    """An author's own error, whose constructor takes the author's own arguments."""

    def __init__(self, field: str, wanted: int, most: int) -> None:
        super().__init__(f"{wanted} is more than {most}", field=field)
        self.most = most


@dataclasses.dataclass(frozen=True)
class Narrow:
    """Refuses its value with an author's own error."""

    api_version: ClassVar[str] = "gpu.drakit.dev/v1"
    kind: ClassVar[str] = "Narrow"
    level: int = 0

    def __post_init__(self) -> None:
        if self.level > 1:
            raise TooManyError("level", self.level, 1)


class Author(driver.Driver[object]):
    """Two kinds of devices, a kind of configuration for each."""

    name = DRIVER
    config_types = (GpuConfig, MigConfig)

    def discover(self) -> inventory.Inventory:
        return inventory.Inventory.of([GPU, MIG])

    def prepare(self, grant: driver.Grant[object]) -> driver.Prepared:
        return driver.Prepared()

    def accepts_config(self, device: device.Device, config: object) -> bool:
        return isinstance(config, MigConfig) == (device.attributes["type"] == "mig")

    def default_config(self, device: device.Device) -> object:
        return MigConfig() if device.attributes["type"] == "mig" else GpuConfig()


def entry(source: claims.ConfigSource, level: Any, *requests: str, kind: str = "GpuConfig", driver: str = DRIVER) -> claims.OpaqueConfig:
    parameters = records.freeze_record({"apiVersion": "gpu.drakit.dev/v1", "kind": kind, "level": level})
    return claims.OpaqueConfig(source=source, driver=driver, parameters=parameters, requests=requests)


def choose(
    *configs: claims.OpaqueConfig, request: str = "gpu", offered: device.Device = GPU, author: Author | None = None
) -> config.Chosen:
    result = claims.AllocationResult(request=request, driver=DRIVER, pool="node", device=offered.name)
    ref = claims.ClaimRef(uid=names.ClaimUid("a671734a-e8e5-11e4-8fde-42010af09327"), namespace="ns", name="c")
    return config.choose(claims.Claim(ref=ref, results=(result,), configs=configs), result, author or Author(), offered)


def test_nothing_configured_gives_the_drivers_default() -> None:
    assert choose() == config.Chosen(config=GpuConfig())
    assert choose(offered=MIG) == config.Chosen(config=MigConfig())


@pytest.mark.parametrize(
    "configs, level, source",
    [
        ([entry(CLASS, 1)], 1, CLASS),
        ([entry(CLAIM, 1)], 1, CLAIM),
        ([entry(CLASS, 1), entry(CLAIM, 2)], 2, CLAIM),
        ([entry(CLAIM, 2), entry(CLASS, 1)], 2, CLAIM),
        ([entry(CLASS, 1), entry(CLASS, 2)], 2, CLASS),
        ([entry(CLAIM, 1), entry(CLAIM, 2)], 2, CLAIM),
        ([entry(CLAIM, 1), entry(CLAIM, 2, "other")], 1, CLAIM),
        ([entry(CLAIM, 1, "gpu"), entry(CLAIM, 2)], 2, CLAIM),
        ([entry(CLAIM, 1), entry(CLAIM, 2, driver="nic.drakit.dev")], 1, CLAIM),
        ([entry(CLASS, 1, "gpu"), entry(CLAIM, 2, "other")], 1, CLASS),
        ([entry(CLAIM, 1), entry(CLAIM, 2, kind="MigConfig")], 1, CLAIM),
        ([entry(CLAIM, 2, kind="MigConfig")], 0, None),
    ],
)
def test_the_last_applicable_configuration_wins_as_a_whole(
    configs: list[claims.OpaqueConfig], level: int, source: claims.ConfigSource | None
) -> None:
    chosen = choose(*configs)
    assert (chosen.config, chosen.source) == (GpuConfig(level), source)
    assert (chosen.parameters is None) == (source is None)


@pytest.mark.parametrize(
    "named, request_name, level",
    [("gpu", "gpu/large", 1), ("gpu/large", "gpu/large", 1), ("gpu/small", "gpu/large", 0), ("gpu/large", "gpu", 0), ("gp", "gpu", 0)],
)
def test_a_parent_request_is_named_for_all_its_subrequests(named: str, request_name: str, level: int) -> None:
    assert choose(entry(CLAIM, 1, named), request=request_name).config == GpuConfig(level)


def test_one_configuration_for_all_requests_is_skipped_where_it_does_not_fit() -> None:
    mixed = (entry(CLASS, 1, kind="MigConfig"), entry(CLASS, 2, kind="GpuConfig"))
    assert choose(*mixed).config == GpuConfig(2)
    assert choose(*mixed, offered=MIG).config == MigConfig(1)


@pytest.mark.parametrize("requests", [("gpu",), ("other", "gpu")])
def test_a_configuration_that_names_the_request_must_fit(requests: tuple[str, ...]) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        choose(entry(CLAIM, 1, *requests, kind="MigConfig"), entry(CLAIM, 2))
    assert "MigConfig does not fit device gpu-0 of request gpu" in caught.value.reason
    assert caught.value.field == "parameters"


@pytest.mark.parametrize(
    "source, whose", [(CLASS, "config of the DeviceClass, which its admin must change"), (CLAIM, "config of the claim, for gpu")]
)
def test_an_error_names_the_source_of_the_configuration(source: claims.ConfigSource, whose: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        choose(entry(source, "high", "gpu"))
    assert caught.value.field == "parameters.level"
    assert whose in str(caught.value)


class Strict(Author):
    """Raises from every function that decides about configurations, as an author writes it: a field of the configuration alone."""

    def __init__(self, verb: str, field: str = "level") -> None:
        self.verb, self.field = verb, field

    def _check(self, verb: str) -> None:
        if verb == self.verb:
            raise errors.ConfigError("is too high", field=self.field)

    def accepts_config(self, device: device.Device, config: object) -> bool:
        self._check("accepts_config")
        return super().accepts_config(device, config)

    def default_config(self, device: device.Device) -> object:
        self._check("default_config")
        return super().default_config(device)

    def merge_configs(self, configs: Sequence[claims.OpaqueConfig]) -> records.Record:
        self._check("merge_configs")
        return configs[-1].parameters


@pytest.mark.parametrize(
    "verb, configs", [("accepts_config", (entry(CLAIM, 1),)), ("merge_configs", (entry(CLAIM, 1),)), ("default_config", ())]
)
def test_an_author_names_the_field_and_drakit_where_it_is(verb: str, configs: tuple[claims.OpaqueConfig, ...]) -> None:
    with pytest.raises(errors.ConfigError, match=r"^parameters\.level: is too high$") as caught:
        choose(*configs, author=Strict(verb))
    assert (caught.value.field, caught.value.reason) == ("parameters.level", "is too high")
    with pytest.raises(errors.ConfigError, match=r"^is too high$"):
        choose(*configs, author=Strict(verb, field=""))


def test_a_check_of_rules_names_the_field_alone_too() -> None:
    def check(_source: claims.ConfigSource, _parameters: records.Record, _config: object) -> None:
        raise errors.ConfigError("is too high", field="level")

    rules = config.Rules(types=(GpuConfig,), check=check)
    with pytest.raises(errors.ConfigError, match=r"^parameters\.level: is too high$"):
        config.check(entry(CLAIM, 1).parameters, CLAIM, rules)


def test_a_mistake_is_reported_even_where_a_stronger_configuration_hides_it() -> None:
    with pytest.raises(errors.ConfigError, match=r"parameters\.level"):
        choose(entry(CLASS, "high"), entry(CLAIM, 1))


def test_an_error_in_another_requests_configuration_does_not_fail_a_grant() -> None:
    assert choose(entry(CLAIM, "high", "other")).config == GpuConfig()


def test_an_authors_own_error_gets_the_place_of_its_field_and_stays_the_authors() -> None:
    with pytest.raises(TooManyError) as refused, config.author_errors():
        raise TooManyError("count", 3, 2)
    found = refused.value
    assert (str(found), found.field, found.reason) == ("parameters.count: 3 is more than 2", "parameters.count", "3 is more than 2")
    assert found.most == 2
    assert (str(found.__cause__), getattr(found.__cause__, "field", "")) == ("count: 3 is more than 2", "count")


def test_an_authors_own_error_of_a_value_names_its_owner() -> None:
    class Narrowing(Author):
        config_types = (Narrow,)  # type: ignore[assignment]

    parameters = records.freeze_record({"apiVersion": Narrow.api_version, "kind": "Narrow", "level": 4})
    wrong = claims.OpaqueConfig(source=CLAIM, driver=DRIVER, parameters=parameters)
    with pytest.raises(errors.ConfigError, match=r"^parameters.level: 4 is more than 1 \(from the config of the claim\)$"):
        choose(wrong, author=Narrowing())
