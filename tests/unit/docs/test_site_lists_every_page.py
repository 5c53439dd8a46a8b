"""The navigation of the documentation site names every page once, and no page that there is not."""

import fnmatch
from collections.abc import Iterator

import yaml

from unit.docs import markdown

CONFIG = yaml.load((markdown.ROOT / "mkdocs.yml").read_text("utf-8"), Loader=yaml.CSafeLoader)


def listed(entries: object) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for inside in entries.values():
            yield from listed(inside)
    elif isinstance(entries, list):
        for inside in entries:
            yield from listed(inside)


def test_every_page_is_in_the_navigation_once() -> None:
    left_out = CONFIG["not_in_nav"].split()
    docs = markdown.ROOT / "docs"
    pages = [path.relative_to(docs).as_posix() for path in markdown.files() if path.is_relative_to(docs)]
    wanted = [page for page in pages if not any(fnmatch.fnmatch(page, pattern) for pattern in left_out)]
    assert sorted(listed(CONFIG["nav"])) == sorted(wanted)
