"""The navigation of the documentation site names every page once, and no page that there is not."""

import fnmatch
import pathlib
from collections.abc import Iterator

import yaml

ROOT = pathlib.Path(__file__).parents[3]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))


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
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    wanted = [page for page in pages if not any(fnmatch.fnmatch(page, pattern) for pattern in left_out)]
    assert sorted(listed(CONFIG["nav"])) == sorted(wanted)
