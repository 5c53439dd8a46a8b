"""Lay out what the image adds to its base: the installed packages without what no command imports, and bytecode.

Run by the base image's Python. The base has no bytecode for the standard library, and a container with a read-only root cannot keep any: without
this, every start would compile it anew. The bytecode is unchecked, so it stays valid whatever a build does to the files' times.
"""

import pathlib
import py_compile
import shutil
import sys
import sysconfig
from collections.abc import Iterator

LEFT_OUT = pathlib.Path(__file__).with_name("left-out.txt")
UNUSED_LIBRARIES = {"ensurepip", "idlelib", "pydoc_data", "test", "tkinter", "turtledemo", "site-packages", "dist-packages"}
"""Folders of the standard library that are not compiled: programs, tests, and what others installed there."""


def patterns() -> list[str]:
    """Return the patterns of left-out.txt."""
    return [line for line in LEFT_OUT.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def matches(site: pathlib.Path, left_out: list[str]) -> Iterator[pathlib.Path]:
    """Yield what the patterns name below site-packages; raises SystemExit for a pattern that matches nothing, because it is out of date."""
    for pattern in left_out:
        paths = sorted(site.glob(pattern))
        if not paths:
            raise SystemExit(f"{LEFT_OUT.name}: nothing matches {pattern}; correct or remove the line")
        yield from paths


def remove(paths: list[pathlib.Path]) -> None:
    """Remove files and folders."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def compile_below(source: pathlib.Path, into: pathlib.Path, at: pathlib.Path, unused: set[str]) -> None:
    """Write bytecode below ``into`` for the modules below ``source``, which lie in ``at`` when they run."""
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source)
        if unused.isdisjoint(name.parts):
            cached = into / name.parent / "__pycache__" / f"{name.stem}.{sys.implementation.cache_tag}.pyc"
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(path), str(cached), dfile=str(at / name), doraise=True, invalidation_mode=mode)


def main(site: pathlib.Path, root: pathlib.Path) -> None:
    """Move the packages installed in ``site`` to where the base's Python looks for them, below ``root``."""
    remove(list(matches(site, patterns())))
    library, packages, commands = (pathlib.Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "scripts"))
    below = {path: root / path.relative_to("/") for path in (library, packages, commands)}
    for folder in (below[commands], below[packages].parent):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.move(site / "bin" / "drakit", below[commands])
    shutil.rmtree(site / "bin")
    shutil.move(site, below[packages])
    compile_below(below[packages], below[packages], packages, set())
    compile_below(library, below[library], library, UNUSED_LIBRARIES)


if __name__ == "__main__":
    main(*(pathlib.Path(argument) for argument in sys.argv[1:]))
