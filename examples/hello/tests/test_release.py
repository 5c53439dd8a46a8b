"""A release has one version in all files, and notes in CHANGELOG.md."""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_image_and_chart_have_the_version_of_the_project() -> None:
    text = "".join((ROOT / "deploy" / name).read_text() for name in ("Chart.yaml", "kustomization.yaml"))
    versions = dict(re.findall(r'^ *(version|appVersion|newTag): "?([^"\n]+)"?$', text, re.MULTILINE))
    assert versions == dict.fromkeys(("version", "appVersion", "newTag"), VERSION)


def test_the_version_has_release_notes() -> None:
    notes = (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {VERSION}\n")[2].partition("\n## ")[0]
    assert re.search(r"^- \S", notes, re.MULTILINE), f"write a section {VERSION} into CHANGELOG.md: what users can or must do now"
