"""A driver names a field of its configuration in every verb, and the user reads where in the claim that field is."""

import dataclasses
from collections.abc import Sequence

import pytest

import drakit
from drakit import testing

REFUSAL = "parameters.level: is too high for this device"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    level: int = 0


class Strict(drakit.Driver[Config], drakit.Binder[Config]):
    """Refuses a level in the verb of this name."""

    name = "strict.example.com"
    config_types = (Config,)

    def __init__(self, verb: str) -> None:
        self.verb = verb

    def discover(self) -> drakit.Inventory:
        conditions = ("Ready",) if self.verb == "bind" else ()
        return drakit.Inventory.of(
            [drakit.Device(name="a", binding_conditions=conditions, binding_failure_conditions=("Failed",) if conditions else ())]
        )

    def _check(self, verb: str, grant: drakit.Grant[Config]) -> None:
        if verb == self.verb and grant.config.level:
            raise drakit.ConfigError("is too high for this device", field="level")

    def plan(self, grant: drakit.Grant[Config]) -> drakit.Record:
        self._check("plan", grant)
        return {}

    def bind(self, grant: drakit.Grant[Config]) -> None:
        self._check("bind", grant)

    def prepare(self, grant: drakit.Grant[Config]) -> drakit.Prepared:
        self._check("prepare", grant)
        return drakit.Prepared(edits=drakit.Edits(env={"A": "1"}))


class Whole(Strict, drakit.ClaimDriver[Config]):
    """Prepares whole claims."""

    def prepare_claim(self, grants: Sequence[drakit.Grant[Config]]) -> list[drakit.Prepared]:
        return [Strict.prepare(self, grant) for grant in grants]


@pytest.mark.parametrize("verb", ["plan", "prepare", "bind"])
def test_a_refusal_of_a_verb_names_the_path_of_the_parameters(verb: str) -> None:
    with testing.Node(lambda: Strict(verb)) as node:
        refused = node.try_prepare(node.claim("a", parameters={"level": 7}))
        assert refused.error == REFUSAL
        assert node.is_clean
        assert not node.try_prepare(node.claim("a")).error


def test_a_refusal_of_a_whole_claim_names_the_path_too() -> None:
    with testing.Node(lambda: Whole("prepare")) as node:
        assert node.try_prepare(node.claim("a", parameters={"level": 7})).error == REFUSAL


def test_a_claim_that_is_bound_first_is_refused_with_the_path() -> None:
    with testing.Node(lambda: Strict("bind")) as node:
        with pytest.raises(drakit.ConfigError) as refused:
            node.bind(node.claim("a", parameters={"level": 7}))
        assert str(refused.value) == REFUSAL
