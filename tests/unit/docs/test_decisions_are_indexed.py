"""A decision is found by its title: its file is named after it, and the index lists it."""

import re

from unit.docs import markdown

FOLDER = markdown.ROOT / "docs" / "adr"


def test_the_index_lists_every_decision_by_its_title_and_file() -> None:
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    titles = {file.name: file.read_text("utf-8").partition("\n")[0].removeprefix("# ") for file in FOLDER.glob("0*.md")}
    assert sorted(listed) == sorted((str(int(name[:4])), title, name) for name, title in titles.items())
    slugs = {name: re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for name, title in titles.items()}
    assert [name for name, slug in slugs.items() if name != f"{name[:4]}-{slug}.md"] == []
