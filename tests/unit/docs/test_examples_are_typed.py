"""The drivers that the guides for authors show pass mypy in strict mode, as the contract's page two asks of authors."""

import pathlib
import subprocess
import sys

from unit.docs import markdown


def test_every_python_file_of_the_guides_passes_mypy_strict(tmp_path: pathlib.Path) -> None:
    pages = (markdown.ROOT / "docs" / "howto").glob("*.md")
    shown = [block for page in pages for block in markdown.blocks(page) if block.mark == "file" and block.value.endswith(".py")]
    names = [block.value for block in shown]
    assert "tap.py" in names
    assert len(names) == len(set(names)), "two pages show a file of one name"
    for block in shown:
        (tmp_path / block.value).write_text(block.text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache"), *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
