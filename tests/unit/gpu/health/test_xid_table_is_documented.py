"""The page that says which Xid gives which taint says what the code does."""

import pathlib
import re

from drakit_gpu.health import xids

PAGE = pathlib.Path(__file__).parents[4] / "docs/reference/devices-gpu.md"


def test_the_page_lists_every_xid_in_the_row_of_its_gravity() -> None:
    rows = re.findall(r"^\| ((?:\d+, )*\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    shown = [[int(number) for number in row.split(", ")] for row in rows]
    grave_first = [xids.Gravity.FATAL, xids.Gravity.SUSPECT, xids.Gravity.PROGRAM, xids.Gravity.NOTHING]
    assert shown == [[xid.number for xid in xids.known() if xid.gravity is gravity] for gravity in grave_first]


def test_no_xid_is_in_the_table_twice() -> None:
    numbers = [xid.number for xid in xids.known()]
    assert len(numbers) == len(set(numbers)) > 40
    assert xids.of(4711).gravity is xids.Gravity.SUSPECT
    assert xids.of(79, ignored={79}).gravity is xids.Gravity.NOTHING
