"""The page of Kubernetes features names every scenario test of its files, and no other."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "kubernetes-features.md"


def test_the_page_and_the_scenario_tests_name_the_same() -> None:
    text = PAGE.read_text()
    files = re.findall(r"^In `(tests/scenario/\w+\.py)`\.$", text, re.MULTILINE)
    assert files
    written = {name for file in files for name in re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)}
    listed = set(re.findall(r"`(test_\w+)`", text)) - {pathlib.Path(file).stem for file in files}
    assert listed == written
