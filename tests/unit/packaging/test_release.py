"""A release has one version, notes from CHANGELOG.md, checksums and provenance; and a workflow that publishes what was checked."""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest
import yaml

from release import chart, environments, notes, provenance, versions

ROOT = pathlib.Path(__file__).parents[3]
CHANGELOG = """# Changelog

## [Unreleased]

- Not yet.

## [0.2.0] - 2026-12-01

### Added

- A [page](docs/howto/install.md), and [a site](https://example.com/x).

## [0.1.0] - 2026-11-01

- The first.
"""


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the files that have the version."""
    for file in versions.PLACES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / file)
    return tmp_path


def test_every_file_has_the_version_of_the_project() -> None:
    assert versions.agreed(ROOT) == re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]  # type: ignore[index] # it is there


@pytest.mark.parametrize("file", [file for file in versions.PLACES if file != "pyproject.toml"])
def test_a_file_with_another_version_is_named(copy: pathlib.Path, file: str) -> None:
    place = copy / file
    place.write_text(place.read_text().replace(versions.agreed(copy), "9.9.9", 1))
    with pytest.raises(versions.ReleaseError, match=re.escape(f"{file} has 9.9.9")):
        versions.agreed(copy)


def test_no_other_file_that_is_installed_or_applied_has_the_version() -> None:
    """Examples have versions of their own, and pins by hand; the page says so."""
    version = versions.agreed(ROOT)
    command = ["git", "grep", "--files-with-matches", "--fixed-strings", version, "--", "pyproject.toml", "daemonset", "driver", "cluster"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {file: (ROOT / file).read_text() for file in listed if "/template/" not in file}
    exact = re.compile(rf"(?<![\d.~>]){re.escape(version)}(?![\d.])")
    assert {file for file, text in texts.items() if exact.search(text)} <= set(versions.PLACES)


def test_notes_are_the_section_of_the_version_without_links_into_the_repository() -> None:
    text = notes.of(CHANGELOG, "0.2.0")
    assert text == "# drakit 0.2.0\n\n### Added\n\n- A page, and [a site](https://example.com/x).\n"
    assert notes.of(CHANGELOG, "0.1.0").endswith("- The first.\n")


def test_only_a_rehearsal_takes_what_is_not_released() -> None:
    with pytest.raises(versions.ReleaseError, match=re.escape("CHANGELOG.md has no changes under '## [0.3.0] - YYYY-MM-DD'")):
        notes.of(CHANGELOG, "0.3.0")
    assert notes.of(CHANGELOG, "0.3.0", is_rehearsal=True).endswith("- Not yet.\n")


def test_the_changelog_of_the_repository_has_notes() -> None:
    assert "### Added" in notes.of((ROOT / "CHANGELOG.md").read_text("utf-8"), versions.agreed(ROOT), is_rehearsal=True)


def test_checksums_and_provenance_name_every_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "lock.txt").write_bytes(b"lock")
    provenance.write(tmp_path, version="0.2.0", commit="c" * 40, inputs=[tmp_path / "lock.txt"], root=tmp_path)
    statement = json.loads((tmp_path / provenance.STATEMENT).read_text())
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {"name": "a.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}} in statement["subject"]
    source, lock = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert (source["digest"], lock["name"]) == ({"gitCommit": "c" * 40}, "lock.txt")
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", provenance.SUMS], cwd=tmp_path, check=True)
    listed = {line.split()[1] for line in (tmp_path / provenance.SUMS).read_text().splitlines()}
    assert listed == {"a.whl", "lock.txt", provenance.STATEMENT}


def test_a_python_of_this_machine_is_found_and_one_of_another_version_is_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{sys.version_info.major}.{sys.version_info.minor}"
    false = tmp_path / f"python{name}"
    false.write_text("#!/bin/sh\necho 2.7\n")
    false.chmod(0o755)
    base = pathlib.Path(sys.base_prefix) / "bin"
    monkeypatch.setenv("PATH", f"{tmp_path}:{base}")
    assert environments.interpreter(name, tmp_path) == base / f"python{name}"


def test_a_command_that_fails_in_an_environment_is_shown_with_its_output(tmp_path: pathlib.Path) -> None:
    with pytest.raises(environments.CheckError, match="status 3\nsaid\n"):
        environments.run(["sh", "-c", "echo said; exit 3"], tmp_path)


def test_the_workflow_builds_with_the_same_command_and_publishes_what_was_checked() -> None:
    workflow = yaml.load((ROOT / ".github" / "workflows" / "release.yml").read_text(), Loader=yaml.CSafeLoader)
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    made = next(step["run"] for step in build["steps"] if "make release" in step.get("run", ""))
    assert "permissions" not in build, "only the job that a reviewer lets begin may write"
    assert (publish["needs"], publish["environment"]) == ("build", "release")
    runs = [step.get("run", "") for step in publish["steps"]]
    checked = next(number for number, run in enumerate(runs) if "sha256sum --check" in run)
    assert all(checked < number for number, run in enumerate(runs) if re.search(r"uv publish|docker push|helm push|gh release", run))
    published = next(run for run in runs if "docker push" in run)
    assert "--image-repository ghcr.io/${GITHUB_REPOSITORY_OWNER,,}/drakit" in made
    assert "REGISTRY: ghcr.io" in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert 'docker push "$owner/drakit:$version"' in published


def test_a_release_that_failed_halfway_is_published_by_running_the_job_again() -> None:
    workflow = yaml.load((ROOT / ".github" / "workflows" / "release.yml").read_text(), Loader=yaml.CSafeLoader)
    runs = [step.get("run", "") for step in workflow["jobs"]["publish"]["steps"]]
    (pypi,) = [number for number, run in enumerate(runs) if "uv publish" in run]
    assert "--check-url https://pypi.org/simple/" in runs[pypi], "files that PyPI has are left out"
    assert next(number for number, run in enumerate(runs) if "helm push" in run) < pypi, "what may be pushed again is first"
    assert "gh release create" in runs[-1]


def run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm packages the chart and is not installed")
def test_the_chart_of_a_release_has_the_image_that_is_published(tmp_path: pathlib.Path) -> None:
    version = versions.agreed(ROOT)
    chart.package(ROOT / "daemonset" / "chart", tmp_path, helm="helm", version=version, repository="ghcr.io/example/drakit", run=run)
    rendered = run(["helm", "template", "drakit", str(tmp_path / f"drakit-{version}.tgz")])
    assert f"ghcr.io/example/drakit:{version}" in rendered
    assert (
        yaml.load((ROOT / "daemonset" / "chart" / "values.yaml").read_text(), Loader=yaml.CSafeLoader)["image"]["repository"]
        == chart.DEFAULT
    )


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm packages the chart and is not installed")
def test_a_chart_with_another_image_is_no_release(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "chart"
    shutil.copytree(ROOT / "daemonset" / "chart", copy)
    template = copy / "templates" / "_helpers.tpl"
    template.write_text(template.read_text().replace("{{ .repository }}:", "example.com/other:"))
    with pytest.raises(versions.ReleaseError, match=r"the image is example\.com/other:"):
        chart.package(copy, tmp_path, helm="helm", version=versions.agreed(ROOT), repository="ghcr.io/example/drakit", run=run)
