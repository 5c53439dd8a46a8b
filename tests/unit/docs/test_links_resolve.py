"""Links between the project's pages lead somewhere."""

import pathlib
import re

import pytest

from unit.docs import markdown

_FOREIGN = re.compile(r"[a-z]+:")


@pytest.mark.parametrize("page", markdown.files(), ids=markdown.name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: pathlib.Path) -> None:
    for link in markdown.links(page):
        if _FOREIGN.match(link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file in markdown.files() or file.exists(), f"{link}: no such file"
        assert file.is_relative_to(markdown.ROOT), f"{link}: outside of the repository"
        if anchor:
            assert anchor in markdown.anchors(file), f"{link}: no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[pathlib.Path] = set()
    waiting = [markdown.ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            targets = [link.partition("#")[0] for link in markdown.links(page) if not _FOREIGN.match(link)]
            waiting += [(page.parent / target).resolve() for target in targets if target]
    # docs/README.md is where a reader lands who opens the folder itself.
    missing = set(markdown.files()) - seen - {markdown.ROOT / "docs" / "README.md"}
    assert not missing


def test_a_wrong_link_would_be_noticed(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading, and more\n\n[x](gone.md#y) `[not](a-link)`\n\n```text\n[nor](this)\n# nor this\n```\n")
    assert markdown.links(page) == ["gone.md#y"]
    assert markdown.anchors(page) == {"a-heading-and-more"}
