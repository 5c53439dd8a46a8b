"""The webhook and prepare give one verdict about opaque parameters, whatever is written in them."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drakit import settings as values
from drakit.admission import review
from drakit.cli import composition
from drakit.core import advanced, device, driver, errors, names, records
from drakit.core import claim as claims
from drakit.core import config as configs
from drakit.kube import claim_codec
from drakit_gpu import config as gpu_config
from drakit_gpu import driver as gpu_driver
from drakit_nic import driver as nic_driver
from fakes import examples
from fakes import parameters as p
from tpu_driver import driver as tpu_driver

UID = "11111111-2222-4333-8444-555555555555"
RULES = composition.opaque_rules(values.defaults())
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 70_000)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "MPS", "net1", "10.1.2.3/24", "1G"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["mtu", "sharing", "strategy", "x"]), inner, max_size=3),
    max_leaves=6,
)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in places(item, (*path, key)))]


@st.composite
def written(draw: st.DrawFn) -> tuple[str, object]:
    """Parameters of the corpus, some with a value replaced, removed or added."""
    name, parameters = draw(st.sampled_from(p.WRITTEN))
    changed: Any = copy.deepcopy(dict(parameters))
    for _ in range(draw(st.integers(0, 2))):
        *above, last = draw(st.sampled_from(places(changed)[1:] or [("x",)]))
        inside = changed
        for key in above:
            inside = inside[key]
        if draw(st.booleans()) and isinstance(inside, dict):
            inside.pop(last, None)
        else:
            inside[last] = draw(JUNK)
    return name, changed


class Fitting(driver.Driver[Any]):
    """A driver with the parameters and rules of a real one, whose devices fit every configuration."""

    def __init__(self, like: type[driver.Driver[Any]]) -> None:
        self.name = "x"
        self.config_types = like.config_types  # type: ignore[misc] # of the instance, so that one class stands for three
        self._like = like

    def merge_configs(self, configs: Sequence[claims.OpaqueConfig]) -> records.Record:
        return self._like.merge_configs(self, configs) if issubclass(self._like, advanced.ConfigMerger) else configs[-1].parameters

    def discover(self) -> Any:
        raise NotImplementedError

    def prepare(self, grant: driver.Grant[Any]) -> driver.Prepared:
        raise NotImplementedError


DRIVERS = {p.GPU: Fitting(gpu_driver.GpuDriver), p.NIC: Fitting(nic_driver.NicDriver), p.TPU: Fitting(tpu_driver.TpuDriver)}


def prepare_refuses(name: str, parameters: object, source: claims.ConfigSource) -> bool:
    """Whether an allocated claim with these parameters is refused by what prepare calls: decoding, the choice of the configuration, its checks."""
    result = {"request": "r", "driver": name, "pool": "n", "device": "d"}
    entry = {"source": source.value, "opaque": {"driver": name, "parameters": parameters}}
    body: Any = {
        "metadata": {"uid": UID, "name": "c", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": [result], "config": [entry]}}},
    }
    ref = claims.ClaimRef(uid=names.ClaimUid(UID), namespace="default", name="c")
    try:
        claim = claim_codec.decode(json.loads(json.dumps(body)), ref)
        chosen = configs.choose(claim, claim.results[0], DRIVERS[name], device.Device(name="d"))
        if isinstance(chosen.config, gpu_config.AnyConfig):
            gpu_config.check_author(chosen.source, chosen.config.sharing, shared=False)
    except (errors.ConfigError, errors.ClaimError):
        return True
    return False


def webhook_refuses(kind: str, name: str, parameters: object) -> bool:
    body = p.review(p.holding(kind, p.config(name, parameters)))
    return review.answer(json.dumps(body).encode(), RULES).verdict is review.Verdict.DENIED


@settings(max_examples=examples.count(300))
@given(written())
def test_the_webhook_refuses_exactly_what_prepare_refuses(entry: tuple[str, object]) -> None:
    for kind, source in (
        (p.CLAIM, claims.ConfigSource.CLAIM),
        (p.TEMPLATE, claims.ConfigSource.CLAIM),
        (p.CLASS, claims.ConfigSource.CLASS),
    ):
        assert webhook_refuses(kind, *entry) is prepare_refuses(*entry, source)
