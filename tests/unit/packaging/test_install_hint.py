"""An error about a missing part names a command that works where drakit itself was installed from."""

import importlib.metadata
import json
import pathlib

import pytest

from fakes import forked_cli

CODE = "import sys; sys.path.insert(0, sys.argv[1]); from drakit import extras; print(extras.command('cluster', 'tools'))"


@pytest.mark.parametrize(
    "record, command",
    [
        (None, "pip install 'drakit[cluster,tools]'"),
        ({"url": "file:///work/a%20b/wheels/drakit-0.1.0.whl"}, "pip install --find-links '/work/a b/wheels' 'drakit[cluster,tools]'"),
        (
            {"url": "https://dl.example.com/a%20b/drakit-0.1.0-py3-none-any.whl?key=1", "archive_info": {}},
            "pip install --find-links https://dl.example.com/a%20b/ 'drakit[cluster,tools]'",
        ),
        ({"url": "https://dl.example.com/x/drakit-0.1.0.tar.gz", "archive_info": {}}, "pip install 'drakit[cluster,tools]'"),
        ({"url": "file:///work/drakit-0.1.0.tar.gz", "archive_info": {}}, "pip install 'drakit[cluster,tools]'"),
        ({"url": "file:///src/drakit", "dir_info": {}}, "pip install /src/drakit/cluster /src/drakit/driver/drakit_tools"),
        (
            {"url": "https://example.com/drakit", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'git+https://example.com/drakit@abc#subdirectory=cluster' "  # noqa: ISC004 - one text
            "'git+https://example.com/drakit@abc#subdirectory=driver/drakit_tools'",
        ),
    ],
)
def test_the_command_takes_parts_from_where_drakit_came(
    tmp_path: pathlib.Path, commands: forked_cli.Commands, record: dict[str, object] | None, command: str
) -> None:
    info = tmp_path / "drakit-9.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drakit\nVersion: 9.9.9\n")
    if record is not None:
        (info / "direct_url.json").write_text(json.dumps(record))
    (tmp_path / "hint.py").write_text(CODE)
    ran = commands.run(str(tmp_path / "hint.py"), str(tmp_path), program="python")
    assert ran.stdout.strip() == command
    assert importlib.metadata.version("drakit") != "9.9.9"
