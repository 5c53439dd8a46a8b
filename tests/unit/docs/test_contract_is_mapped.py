"""The page of the kubelet's contract has every number once, and names tests that exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / "tests" / "scenario" / "contract" / "README.md"
NUMBERS = {"1": 14, "2": 12, "6": 11, "10": 67, "12": 13}
WITHOUT_TESTS = ("Not built:", "Author's:", "Scheduler's:")
_ROW = re.compile(r"^\| (\d+)\.(\d+) \| (.+?) \|(.*)\|$", re.MULTILINE)


def rows() -> list[tuple[str, int, str, str]]:
    return [(area, int(number), text, tests) for area, number, text, tests in _ROW.findall(PAGE.read_text("utf-8"))]


def test_every_number_of_the_contract_is_there_once_and_in_order() -> None:
    found = {area: [number for one, number, _, _ in rows() if one == area] for area in NUMBERS}
    assert found == {area: list(range(1, last + 1)) for area, last in NUMBERS.items()}


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert named - written == set()


def test_what_has_no_test_says_why() -> None:
    silent = [f"{area}.{number}" for area, number, text, tests in rows() if "`" not in tests and not text.startswith(WITHOUT_TESTS)]
    assert silent == []


def test_every_scenario_test_of_the_contract_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    files = sorted((ROOT / "tests" / "scenario" / "contract").glob("test_*.py"))
    names = [name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)]
    assert len(files) > 1
    assert [name for name in names if f"`{name}`" not in text] == []
