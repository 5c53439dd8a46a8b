"""The project's Markdown files, cut into what tests ask about: links, headings, code blocks and the remarks above them."""

import dataclasses
import functools
import importlib.util
import pathlib
import re
import types
from collections.abc import Iterator, Mapping

ROOT = pathlib.Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
GENERATED = ("author.md", "cli.md", "settings.md")
"""The pages of ``REFERENCE`` that the generator makes. Tests read what it makes now, whether or not an earlier ``make docs`` left files."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"<!-- ([a-z-]+)(?:: (.*?))? -->\s*\Z")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_NOT_SLUG = re.compile(r"[^a-z0-9 _-]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block; ``mark`` and ``value`` are those of the remark right above it, ``<!-- mark: value -->``."""

    language: str
    text: str
    mark: str = ""
    value: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a console block, and the output shown below it."""

    line: str
    output: tuple[str, ...]


@functools.cache
def generator() -> types.ModuleType:
    """The script that makes the generated pages."""
    spec = importlib.util.spec_from_file_location("generate_reference", REFERENCE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _generated() -> Mapping[str, str]:
    pages: Mapping[str, str] = generator().pages()
    return pages


def read(path: pathlib.Path) -> str:
    """The text of a page, committed or generated."""
    return _generated()[path.name] if path.parent == REFERENCE and path.name in GENERATED else path.read_text("utf-8")


@functools.cache
def files() -> tuple[pathlib.Path, ...]:
    """README, CHANGELOG, CONTRIBUTING, and every page of docs, generated ones included."""
    return tuple(sorted({*committed(), *(REFERENCE / name for name in GENERATED)}))


@functools.cache
def committed() -> tuple[pathlib.Path, ...]:
    """The files that are not generated. What a module reads while tests are collected is one of them, because the generator takes a second."""
    tops = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return (*tops, *sorted({*(ROOT / "docs").rglob("*.md")} - {REFERENCE / name for name in GENERATED}))


def name(path: pathlib.Path) -> str:
    """A file as a test's id."""
    return str(path.relative_to(ROOT))


@functools.cache
def blocks(path: pathlib.Path) -> tuple[Block, ...]:
    """The fenced blocks of a file, in order."""
    text = read(path)
    found = []
    for match in _FENCE.finditer(text):
        remark = _REMARK.match(text, max(text.rfind("<!-- ", 0, match.start()), 0), match.start())
        mark, value = (remark[1], remark[2] or "") if remark else ("", "")
        found.append(Block(language=match[1], text=match[2], mark=mark, value=value))
    return tuple(found)


@functools.cache
def prose(path: pathlib.Path) -> str:
    """The text of a file without its fenced blocks."""
    return _FENCE.sub("", read(path))


def links(path: pathlib.Path) -> list[str]:
    """Targets of links, as written."""
    return _LINK.findall(_CODE_SPAN.sub("", prose(path)))


@functools.cache
def anchors(path: pathlib.Path) -> frozenset[str]:
    """What a link to a heading of the file may say after '#'."""
    return frozenset(_NOT_SLUG.sub("", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose(path)))


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block with what is shown of their output."""
    line = ""
    output: list[str] = []
    for text in block.text.splitlines():
        if text.startswith("$ "):
            if line:
                yield Command(line=line, output=tuple(output))
            line, output = text.removeprefix("$ "), []
        else:
            output.append(text.rstrip())
    if line:
        yield Command(line=line, output=tuple(output))


def command_lines(path: pathlib.Path) -> Iterator[str]:
    """Every shell line of a file: those of sh blocks, and those after '$' in console blocks."""
    for block in blocks(path):
        if block.language == "sh":
            yield from (line for line in block.text.splitlines() if line)
        elif block.language == "console":
            yield from (command.line for command in commands(block))


def table_names(text: str) -> set[str]:
    """The code spans in the first column of all tables of a text."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return {span.strip("`") for row in rows for span in _CODE_SPAN.findall(row.split(" | ")[0])}
