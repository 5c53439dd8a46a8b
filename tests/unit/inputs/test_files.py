"""Only regular files of a bounded size are read, and no writer is waited for."""

import os
import pathlib
import socket

import pytest

from drakit.inputs import files


def refusal(path: pathlib.Path, *, limit: int = 10, follow_links: bool = True) -> str:
    with pytest.raises(OSError) as caught:
        files.read_bytes(path, limit=limit, follow_links=follow_links)
    return str(caught.value.strerror)


def test_a_file_is_read_up_to_its_limit(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert files.read_bytes(file, limit=10) == b"0123456789"
    assert refusal(file, limit=9) == "has more than 9 bytes"


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "is a pipe; use - for standard input"


def test_other_kinds_of_files_are_named(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        assert refusal(tmp_path / "socket") == "is a socket, not a regular file"
    assert refusal(pathlib.Path("/dev/zero")) == "is a character device"
    assert refusal(tmp_path) == "is a directory"
    assert refusal(tmp_path / "absent") == "No such file or directory"


def test_a_link_is_followed_only_where_asked(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.read_bytes(tmp_path / "link", limit=10) == b"x"
    assert refusal(tmp_path / "link", follow_links=False) == "is a symbolic link, which is not followed here"


def test_text_that_is_not_utf8_names_the_byte(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"ab\xff")
    with pytest.raises(OSError, match=r"is not UTF-8 text \(byte 3\)"):
        files.read_text(tmp_path / "file", limit=10)
