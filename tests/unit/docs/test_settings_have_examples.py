"""Every example on the page of settings is read from the file, the environment and the command line, and is no default."""

import re
import shlex

from drakit import settings
from drakit.cli import options
from drakit.inputs import documents
from drakit_nic import options as nic_options
from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "reference" / "settings.md"
FILE = PAGE.with_suffix(".yaml")


def lines() -> list[tuple[str, str]]:
    """The variables on the page, each with the flag beside or below it."""
    return re.findall(r"^(DRAKIT_\w+=.*?)\s+# (--.*)$", markdown.read(PAGE), re.MULTILINE)


def dotted(read: settings.Settings) -> dict[str, object]:
    """The values of all settings, by key."""
    return {key: getattr(read.group(key.partition(".")[0]), key.partition(".")[2]) for key, _ in settings.known_keys()}


def test_every_setting_has_an_example_that_is_not_its_default() -> None:
    examples, defaults = dotted(settings.load({}, file=FILE, environ={})), dotted(settings.load({}, environ={}))
    assert [key for key, value in examples.items() if value == defaults[key]] == []
    rules = documents.load(FILE.read_text("utf-8"))["nic"]["rules"]
    assert {key for rule in rules for key in rule} == set(nic_options.NicRule.__dataclass_fields__)


def test_the_page_shows_the_whole_file() -> None:
    shown = "".join(block.text for block in markdown.blocks(PAGE) if block.language == "yaml")
    assert documents.load(shown) == documents.load(FILE.read_text("utf-8"))


def test_every_variable_of_the_page_has_the_value_of_the_file() -> None:
    environ = dict(shlex.split(variable)[0].split("=", 1) for variable, _ in lines())
    assert settings.load({}, environ=environ) == settings.load({}, file=FILE, environ={})


def test_every_flag_of_the_page_has_the_value_of_the_file() -> None:
    wanted, owned = dotted(settings.load({}, file=FILE, environ={})), markdown.generator().own_options()
    flags = [shlex.split(flag) for _, flag in lines()]
    given = [word for option, word in flags if option == "--set"]
    read, keys = dotted(options.read(assignments=given)), {word.partition("=")[0] for word in given}
    assert {key: read[key] for key in keys} == {key: wanted[key] for key in keys}
    assert {option: word for option, word in flags if option != "--set"} == {option: str(wanted[key]) for key, option in owned.items()}
    assert set(wanted) == keys | set(owned)
