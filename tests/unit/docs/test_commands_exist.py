"""Commands that the pages tell a reader to type exist: make targets, drakit's commands and options, and files handed to kubectl."""

import functools
import importlib
import itertools
import os
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from fakes import forked_cli
from unit.docs import markdown

USAGE = "[OPTIONS]"
"""How a line ends that shows the form of a command."""
CLI = markdown.ROOT / "docs" / "reference" / "cli.md"
_SEPARATORS = {"|", "&&", "||", ";", "2>&1", ">", "<"}
_MAKE = re.compile(r"`make ([a-z0-9-]+)`")


def words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    return list(lexer)


def invocations(line: str, program: str) -> Iterator[list[str]]:
    """The arguments of every call of a program in a shell line."""
    current: list[str] | None = None
    for word in [*words(line), ";"]:
        if word in _SEPARATORS:
            if current is not None:
                yield current
            current = None
        elif current is not None:
            current.append(word)
        elif word == program:
            current = []


def drakit_lines(page: pathlib.Path) -> list[list[str]]:
    """The arguments of every drakit command of a page."""
    return [
        arguments
        for line in markdown.command_lines(page)
        if not line.endswith(USAGE)
        if words(line)[:1] != ["helm"]  # There it is the name of a release.
        for arguments in invocations(line, "drakit")
    ]


def sections() -> dict[str, str]:
    """The sections of the page of commands, by command; groups of commands have none of their own."""
    parts = re.split(r"^## (drakit [a-z -]+)$", markdown.read(CLI), flags=re.MULTILINE)[1:]
    return {name: text for name, text in zip(parts[::2], parts[1::2], strict=True) if USAGE in text}


@functools.cache
def command_line() -> Any:
    """The real command line."""
    return typer.main.get_command(importlib.import_module("drakit.cli.app").app)


def parse(arguments: list[str]) -> None:
    """Let the real command line read the arguments, without doing anything; raises what it raises."""
    group = command_line()
    rest = list(arguments)
    while rest and hasattr(group, "commands"):
        if rest[0] in {"--version", "--help", "--install-completion", "--show-completion"}:
            return
        assert rest[0] in group.commands, f"no command {rest[0]}"
        name = rest.pop(0)
        group = group.commands[name]
    group.make_context("drakit", rest).close()


@pytest.mark.parametrize("page", markdown.files(), ids=markdown.name)
def test_the_real_command_line_takes_every_drakit_command(page: pathlib.Path) -> None:
    for arguments in drakit_lines(page):
        try:
            parse(arguments)
        except Exception as error:  # noqa: BLE001 - typer's errors have no public class
            pytest.fail(f"drakit {shlex.join(arguments)}: {error}")


@pytest.mark.parametrize("line", ["drakit slicez", "drakit slices --folderr x", "drakit slices --form none", "ls && drakit publish"])
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    (arguments,) = invocations(line, "drakit")
    with pytest.raises(Exception, match=r"no command|No such option|is not one of|Missing parameter"):
        parse(arguments)


@pytest.mark.parametrize("page", markdown.files(), ids=markdown.name)
def test_every_make_target_exists(page: pathlib.Path) -> None:
    makefile = (markdown.ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    result = {target for line in markdown.command_lines(page) for call in invocations(line, "make") for target in call if "=" not in target}
    result |= set(_MAKE.findall(markdown.read(page)))
    assert result <= targets


def test_ci_finds_the_test_command_and_it_is_the_one_shown() -> None:
    readme = markdown.ROOT / "README.md"
    assert len(re.findall(r"^<!-- test-command: (.*) -->$", readme.read_text("utf-8"), re.MULTILINE)) == 1
    (block,) = [block for block in markdown.blocks(readme) if block.mark == "test-command"]
    assert block.text == f"{block.value}\n"


def test_a_deleted_kustomization_may_take_its_objects_with_its_namespace() -> None:
    """kubectl deletes the namespace first, and fails for each object that went with it."""
    texts = (markdown.read(page) for page in (*markdown.files(), markdown.ROOT / "examples" / "hello" / "README.md"))
    shown = [command for text in texts for command in re.findall(r"^.*kubectl delete -k (\S+.*)$", text, re.MULTILINE)]
    assert len(shown) > 3
    assert [command for command in shown if "--ignore-not-found" not in command] == []


def test_what_kubectl_is_given_exists() -> None:
    given = [
        value
        for page in markdown.files()
        for line in markdown.command_lines(page)
        for call in invocations(line, "kubectl")
        for flag, value in itertools.pairwise(call)
        if flag in {"-f", "-k"} and value not in {block.value for block in markdown.blocks(page) if block.mark == "file"}
    ]
    assert given
    # What ``drakit new`` makes is examples/hello, whoever's project a page is about.
    places = (markdown.ROOT, markdown.ROOT / "examples" / "hello")
    assert [path for path in given if not any((place / path).exists() for place in places)] == []


def test_the_page_of_commands_has_an_example_and_every_option(commands: forked_cli.Commands) -> None:
    wide = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    for command, text in sections().items():
        assert re.search(rf"^(?:.* )?{command} (?!.*\{USAGE}$)", text, re.MULTILINE), "an example"
        shown = commands.run(*command.split()[1:], "--help", environment=wide).stdout
        options = set(re.findall(r"^.[ *]+(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
        assert options == set(re.findall(r"^\| `(--[a-z-]+)`", text, re.MULTILINE)), command
        assert [line for line in text.splitlines() if line.startswith("| `") and line.endswith("|  |")] == [], "a meaning"
