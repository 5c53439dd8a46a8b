"""Files, folders and modules of the repository that the pages name exist."""

import functools
import pathlib
import re

import pytest

from drakit import testing
from unit.docs import markdown

_SPAN = re.compile(r"`([^`\n]+)`")
_FILES = (".md", ".py", ".db", ".lock", ".new")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
_MODULE = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")
_TREES = ("driver", "cluster", "tests", "docs", "daemonset", "examples", "protos")
_PACKAGES = ("driver/drakit", "cluster/drakit_cluster")
_FAMILIES = ("driver/drakit_gpu", "driver/drakit_nic", "driver/drakit_tools", "examples/tpu")
# A page may name a file from the folder of the family or the part that it is about.
_PARTS = ("driver", *_PACKAGES, *_FAMILIES, "cluster/drakit_cluster/scheduling")
# What a page says of the past, and placeholders.
_EXEMPT = {"drakit.cluster", "journal.txt", "driver/drakit/cli/commands/NAME.py", "driver/drakit_tools/commands/NAME.py"}
PAGES = [*markdown.files(), markdown.ROOT / "cluster" / "README.md"]


@functools.cache
def other_names() -> frozenset[str]:
    """Dotted names that look like modules: settings, and methods of ``testing.Node``, which the pages call ``node``."""
    settings = markdown.table_names(markdown.read(markdown.REFERENCE / "settings.md"))
    return frozenset(settings | {f"node.{name}" for name in dir(testing.Node)})


@functools.cache
def packages() -> frozenset[str]:
    """The names of the packages right below drakit and drakit_cluster."""
    found = (file.parent.name for package in _PACKAGES for file in (markdown.ROOT / package).glob("*/__init__.py"))
    return frozenset(found)


def missing(text: str) -> list[str]:
    """Return the repository's paths and modules in the code spans of a text that do not exist."""
    words = [word.rstrip(",.:") for span in _SPAN.findall(text) for word in span.split()]
    return [word for word in words if word not in _EXEMPT and not (path_exists(word) and module_exists(word))]


def path_exists(word: str) -> bool:
    """Return whether a path exists; True for words that are no path of the repository."""
    first, _, rest = word.partition("/")
    is_file = word.endswith("/") or "." in word
    is_ours = (first in _TREES and is_file) or (first in packages() and word.endswith((".py", "/")))
    if not rest or not is_ours or not _PATH.fullmatch(word):
        return True
    built = word.startswith("driver/drakit_nic/attach/client")
    return built or any((markdown.ROOT / part / word).exists() for part in ("", *_PARTS))


def module_exists(word: str) -> bool:
    """Return whether a module, or a name in a module, exists; True for words that begin with no package of ours and one of its modules."""
    steps = word.removeprefix("drakit.").split(".")
    if not _MODULE.fullmatch(word) or word.endswith(_FILES) or word in other_names() or steps[0] not in packages() or len(steps) == 1:
        return True
    for package in _PACKAGES:
        place: pathlib.Path = markdown.ROOT / package
        for step in steps:
            if (place / step).is_dir() or (place / f"{step}.py").exists():
                place = place / step
            else:
                sources = [place.with_suffix(".py"), place / "__init__.py"]
                if any(file.exists() and re.search(rf"\b{step}\b", file.read_text("utf-8")) for file in sources):
                    return True
                break
        else:
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=markdown.name)
def test_every_path_and_module_that_a_page_names_exists(page: pathlib.Path) -> None:
    assert missing(markdown.prose(page)) == []


@pytest.mark.parametrize("word", ["node/station.py", "tests/unit/gone.py", "docs/gone/", "core.gone", "drakit.node.station"])
def test_a_wrong_path_would_be_noticed(word: str) -> None:
    assert missing(f"see `{word}`, `core/driver.py` and `node.engine`") == [word]
