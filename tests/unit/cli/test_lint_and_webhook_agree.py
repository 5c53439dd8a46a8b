"""``drakit lint`` and ``drakit webhook`` refuse the same opaque parameters, by the same fields."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from drakit import settings
from drakit.admission import review
from drakit.cli import composition
from fakes import command_line
from fakes import parameters as p

RULES = composition.opaque_rules(settings.defaults())


def by_webhook(body: Mapping[str, object]) -> list[str]:
    answered = json.loads(review.answer(json.dumps(p.review(body)).encode(), RULES).body)["response"]
    return [one["field"] for one in answered.get("status", {}).get("details", {}).get("causes", ())]


def by_lint(found: Sequence[Mapping[str, Any]]) -> set[tuple[int, str]]:
    return {(one["document"], one["field"]) for one in found if ".opaque.parameters" in one["field"] and one["severity"] == "error"}


def test_lint_refuses_the_corpus_exactly_as_the_webhook_does(shell: command_line.CommandLine) -> None:
    objects = [
        p.holding(kind, p.config(*entry), version=version) for kind in p.PATHS for entry in p.WRITTEN for version in ("v1", "v1beta1")
    ]
    expected = {(number, field) for number, body in enumerate(objects, 1) for field in by_webhook(body)}
    file = shell.folder / "objects.yaml"
    file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    assert by_lint(json.loads(shell.run("lint", str(file), "-o", "json").out)) == expected
    assert len(expected) > 80


def test_people_get_the_field_the_known_ones_and_status_1(shell: command_line.CommandLine) -> None:
    file = shell.folder / "claim.yaml"
    file.write_text(yaml.dump(p.holding(p.CLAIM, p.config(p.GPU, p.gpu(sharing={"strateg": "MPS"}))), Dumper=yaml.CSafeDumper))
    result = shell.run("lint", str(file))
    assert result.status == 1
    assert "  spec.devices.config[0].opaque.parameters.sharing.strateg: is not a known field\n" in result.out
    assert "  fix: known are strategy, mpsConfig, timeSlicingConfig\n" in result.out


def test_parameters_for_drivers_of_others_are_left_alone(shell: command_line.CommandLine) -> None:
    file = shell.folder / "claim.yaml"
    file.write_text(yaml.dump(p.holding(p.CLAIM, p.config("gpu.example.com", {"sharing": {"strateg": "MPS"}})), Dumper=yaml.CSafeDumper))
    assert "strateg" not in shell.run("lint", str(file), "-o", "json").out
