"""``make release``: build everything that a release consists of into dist/, and check it in clean environments."""

import argparse
import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from release import chart, environments, notes, provenance, versions

ROOT = pathlib.Path(__file__).parents[2]
DIST = ROOT / "dist"
LOCKS = ("requirements/image.txt", "requirements/dev.txt", "requirements/sbom.txt")
DISTRIBUTIONS = ("drakit", "drakit_cluster", "drakit_gpu", "drakit_nic", "drakit_tools")


def main(arguments: Sequence[str]) -> int:
    """Build and check a release; return the exit status."""
    given = _options(arguments)
    try:
        _release(given)
    except (versions.ReleaseError, environments.CheckError) as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--rehearse", action="store_true", help="build what is checked out, also without a tag, a clean tree or a section in CHANGELOG.md"
    )
    parser.add_argument(
        "--python", action="append", metavar="VERSION", help=f"check with this Python only; default: {', '.join(environments.PYTHONS)}"
    )
    parser.add_argument(
        "--without-python", action="append", default=[], metavar="VERSION", help="leave out a Python that cannot be had here"
    )
    parser.add_argument(
        "--image-repository",
        default=chart.DEFAULT,
        metavar="NAME",
        help="the image's name in the chart, such as ghcr.io/OWNER/drakit; default: %(default)s, which nodes cannot pull",
    )
    parser.add_argument("--without-image", action="store_true", help="build no image, where there is no container engine")
    return parser.parse_args(arguments)


def _release(given: argparse.Namespace) -> None:
    version = versions.agreed(ROOT)
    commit = _git("rev-parse", "HEAD")
    if not given.rehearse:
        _require_tag(version)
    text = notes.of((ROOT / "CHANGELOG.md").read_text("utf-8"), version, is_rehearsal=given.rehearse)
    pythons = [python for python in given.python or environments.PYTHONS if python not in given.without_python]
    found = _interpreters(pythons)
    _make("dist")
    _make("sbom")
    _chart(version, given.image_repository)
    if not given.without_image:
        _image(version)
    (DIST / "NOTES.md").write_text(text, "utf-8")
    for number, (name, python) in enumerate(found.items()):
        _check(name, python, version, with_sources=not number)
    provenance.write(DIST, version=version, commit=commit, inputs=[ROOT / lock for lock in LOCKS], root=ROOT)
    left_out = [f"Python {python}" for python in environments.PYTHONS if python not in found] + ["the image"] * given.without_image
    _say(f"dist/ has drakit {version} of commit {commit[:12]}{', a rehearsal' if given.rehearse else ''}")
    _say(f"checked with Python {', '.join(found)}; left out: {', '.join(left_out) or 'nothing'}")


def _require_tag(version: str) -> None:
    if _git("status", "--porcelain"):
        raise versions.ReleaseError("the checkout has changes; commit them, or add --rehearse")
    if f"v{version}" not in _git("tag", "--points-at", "HEAD").split():
        raise versions.ReleaseError(f"the commit has no tag v{version}; run: git tag --annotate v{version}, or add --rehearse")


def _interpreters(pythons: Sequence[str]) -> dict[str, pathlib.Path]:
    found = {python: environments.interpreter(python, ROOT) for python in pythons}
    missing = [python for python, path in found.items() if path is None]
    if missing:
        fix = " ".join(f"--without-python {python}" for python in missing)
        raise versions.ReleaseError(f"no Python {', '.join(missing)} here, and uv cannot download it; install it, or add {fix}")
    return {python: path for python, path in found.items() if path is not None}


def _chart(version: str, repository: str) -> None:
    helm = shutil.which("helm") or str(ROOT / ".venv" / "bin" / "helm")
    with _step(f"the chart, with the image {repository}:{version}"):
        chart.package(ROOT / "daemonset" / "chart", DIST, helm=helm, version=version, repository=repository, run=_run)


def _image(version: str) -> None:
    _make("image")
    engine = "docker" if shutil.which("docker") else "podman"
    with _step("the image's archive"):
        _run([engine, "save", "--output", str(DIST / f"drakit-{version}-image.tar"), f"drakit:{version}"])


def _check(name: str, python: pathlib.Path, version: str, *, with_sources: bool) -> None:
    wheels = [DIST / f"{distribution}-{version}-py3-none-any.whl" for distribution in DISTRIBUTIONS]
    sources = [DIST / f"{distribution}-{version}.tar.gz" for distribution in DISTRIBUTIONS] if with_sources else []
    title = f"Python {name}: wheels{' and source distributions' if with_sources else ''}"
    with _step(title), tempfile.TemporaryDirectory(prefix="drakit-") as folder:
        environments.check(python, wheels, version, pathlib.Path(folder), sources=sources)


def _make(target: str) -> None:
    with _step(f"make {target}"):
        _run(["make", "--no-print-directory", target])


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    _say(f"{name} ...")
    yield
    _say(f"{name}: ok")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _git(*arguments: str) -> str:
    return _run(["git", *arguments]).strip()


def _run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise versions.ReleaseError(f"{' '.join(command)}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
