"""Every test here must end the threads and close the descriptors of the servers that it starts."""

from collections.abc import Iterator

import pytest

from fakes import leftovers


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """See ``leftovers.none``."""
    with leftovers.none():
        yield
