"""What the kernel refuses, as the errors of the port."""

import contextlib
from collections.abc import Iterator

from drakit.core import errors


@contextlib.contextmanager
def failing_as(call: str) -> Iterator[None]:
    """Turn an OSError into a HardwareError of that call, with the kernel's own words."""
    try:
        yield
    except OSError as error:
        raise errors.HardwareError(call, error.strerror or str(error)) from error
