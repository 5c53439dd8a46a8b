"""The chart of a release: packaged with the name of the image that the release publishes, and checked."""

import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence

from release import versions

DEFAULT = "drakit"
"""The image's name in the chart of the repository: nodes must have that image, because no registry is in it."""
_REPOSITORY = re.compile(rf"(?<=^  repository: ){DEFAULT}$", re.MULTILINE)
_IMAGE = re.compile(r"^\s*(?:- )?image: \"?([^\"\s]+)\"?$", re.MULTILINE)
_EVERYTHING = "nic.enabled=true,webhook.enabled=true"

Run = Callable[[Sequence[str]], str]
"""Runs a command and returns its output; raises ReleaseError."""


def package(chart: pathlib.Path, folder: pathlib.Path, *, helm: str, version: str, repository: str, run: Run) -> None:
    """Write the chart's package into a folder, with ``repository`` as the image's name, and check that all its pods have that image."""
    with tempfile.TemporaryDirectory(prefix="drakit-") as place:
        copy = pathlib.Path(place) / chart.name
        shutil.copytree(chart, copy)
        values = copy / "values.yaml"
        text, count = _REPOSITORY.subn(lambda _: repository, values.read_text("utf-8"))
        if count != 1:
            raise versions.ReleaseError(
                f"{chart / values.name}: image.repository is not {DEFAULT!r}; correct _REPOSITORY in tests/release/chart.py"
            )
        values.write_text(text, "utf-8")
        run([helm, "lint", "--strict", str(copy), "--set", "mock.machine=dgx-a100-40gb-2gpu"])
        run([helm, "package", str(copy), "--destination", str(folder)])
    packaged = str(folder / f"drakit-{version}.tgz")
    run([helm, "template", "drakit", packaged])
    images = set(_IMAGE.findall(run([helm, "template", "drakit", packaged, "--set", _EVERYTHING])))
    if images != {f"{repository}:{version}"}:
        raise versions.ReleaseError(f"{packaged}: the image is {', '.join(sorted(images)) or 'missing'}, not {repository}:{version}")
