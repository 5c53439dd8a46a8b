"""The check for what tests of servers leave behind finds it."""

import pathlib
import threading

from fakes import leftovers


def test_a_thread_and_an_open_file_are_named_until_they_end(tmp_path: pathlib.Path) -> None:
    left, end = leftovers.Leftovers(), threading.Event()
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    with (tmp_path / "file").open("w") as file:
        assert left.names() == ["thread forgotten", f"descriptor {file.fileno()}: {tmp_path / 'file'}"]
    end.set()
    thread.join()
    assert left.names() == []
