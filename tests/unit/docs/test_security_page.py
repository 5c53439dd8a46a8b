"""The page about security names tests that exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "security.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) > 30
    assert named - defined == set()
