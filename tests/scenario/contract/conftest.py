"""A world for each test."""

from collections.abc import Iterator

import pytest

from fakes import served


@pytest.fixture
def world() -> Iterator[served.World]:
    with served.world() as made:
        yield made
