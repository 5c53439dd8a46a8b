"""What a kubelet may do to a driver, on purpose: every switch does the real thing on the real socket.

A driver must bear all of it: calls are repeated, come for claims it never saw, and end when a connection breaks in the middle.
"""

import threading
from dataclasses import dataclass


@dataclass(kw_only=True)
class Faults:
    """Switches of one kubelet; set and cleared at any time, from any thread.

    ``call_twice`` sends every call a second time at the same moment, and uses the first answer. ``unprepare_first`` sends an Unprepare
    before every Prepare. ``drop_calls`` is how many of the coming calls lose their connection ``drop_after`` seconds after they began.
    """

    call_twice: bool = False
    unprepare_first: bool = False
    drop_calls: int = 0
    drop_after: float = 0.05

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def take_drop(self) -> bool:
        """Say whether the call that begins now is to lose its connection, and count it."""
        with self._lock:
            if self.drop_calls <= 0:
                return False
            self.drop_calls -= 1
            return True
