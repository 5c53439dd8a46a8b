"""The hook's client gets into the image: compiled where the driver looks for it, by the script a checkout uses."""

import pathlib
import re

from drakit_nic.attach import hook_program

ROOT = pathlib.Path(__file__).parents[3]


def test_the_image_is_built_with_the_client_where_the_driver_looks_for_it() -> None:
    built = re.search(r"(driver/attach/build) (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert built is not None
    assert ROOT / built[1] == hook_program.BUILD
    assert ROOT / built[2] == hook_program.BUNDLED
    assert hook_program.BUILD.stat().st_mode & 0o111


def test_a_checkout_never_commits_a_compiled_client() -> None:
    assert f"/{hook_program.BUNDLED.relative_to(ROOT)}" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_image_has_the_probe_where_probes_look_for_it() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "driver/attach/build /image/usr/local/bin/drakit-probe probe" in text
    assert "COPY --from=build /image/ /" in text
