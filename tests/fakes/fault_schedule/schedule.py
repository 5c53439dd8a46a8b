"""Random schedules: what is done to a node, in order. Equal seeds give equal schedules."""

import dataclasses
import enum
import random
from collections.abc import Callable, Sequence

from fakes.fault_schedule import hardware

WHOLES_MAX, HALVES_MAX, SHARES_MAX = 2, 2, 3
"""What can always be placed: two chips whole, and two halves that need not be of one chip."""
STATUSES = (401, 403, 409, 410, 422, 429, 500, 503)
WHICH = ("", "", "rival")
METHODS = ("", "", "GET", "POST PUT PATCH DELETE", "PATCH")


class Action(enum.Enum):
    """One thing to do. What has a beginning and an end is ended at the end of the schedule at the latest."""

    RUN = "run"
    JOIN = "join"
    """One more pod for a claim that is there: after a restart the kubelet prepares it again under the pods that run."""
    SETTLE = "settle"
    """Wait until the pods run, a moment at most."""
    DELETE = "delete"
    DELETE_BY_FORCE = "delete by force"
    REFUSE = "refuse"
    DELAY = "delay"
    CUT = "cut"
    NONSENSE = "nonsense"
    CALM = "calm"
    HANG_UP = "hang up"
    API_DOWN = "api down"
    API_UP = "api up"
    KUBELET_DOWN = "kubelet down"
    KUBELET_UP = "kubelet up"
    KUBELET_RESTART = "kubelet restart"
    CALL_TWICE = "call twice"
    UNPREPARE_FIRST = "unprepare first"
    DROP_CALLS = "drop calls"
    KILL = "kill"
    RESTART = "restart"
    RIVAL = "rival"
    """A second process of the driver beside the first, as in a rolling update."""
    RIVAL_GONE = "rival gone"
    REBOOT = "reboot"
    DAMAGE = "damage"
    """The journal cannot be read any more."""
    FREEZE = "freeze"
    DIE = "die"
    LAG = "lag"
    UNPLUG = "unplug"
    PLUG = "plug"
    TAINT = "taint"
    DISK_FULL = "disk full"
    DISK_FREE = "disk free"
    CDI_READ_ONLY = "cdi read-only"
    CDI_WRITABLE = "cdi writable"
    CLOCK = "clock"
    UPGRADE = "upgrade"
    WIPE = "wipe"
    MEDDLE = "meddle"
    UNLINK = "unlink"


@dataclasses.dataclass(frozen=True)
class Step:
    """``what`` is which pod, device, status or step of the hardware; ``amount`` seconds, calls, or how many in a thousand."""

    do: Action
    what: str = ""
    amount: int = 0
    pause_ms: int = 0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.do.value, self.what, str(self.amount or ""), f"(+{self.pause_ms} ms)")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allocatable:
    """What the API server's feature gates leave to be allocated."""

    halves: bool = True
    shares: int = SHARES_MAX


WEIGHTS = {
    Action.RUN: 12,
    Action.JOIN: 5,
    Action.SETTLE: 4,
    Action.DELETE: 5,
    Action.DELETE_BY_FORCE: 2,
    Action.REFUSE: 8,
    Action.DELAY: 3,
    Action.CUT: 4,
    Action.NONSENSE: 2,
    Action.CALM: 2,
    Action.HANG_UP: 2,
    Action.API_DOWN: 1,
    Action.KUBELET_RESTART: 4,
    Action.KUBELET_DOWN: 1,
    Action.CALL_TWICE: 1,
    Action.UNPREPARE_FIRST: 1,
    Action.DROP_CALLS: 2,
    Action.KILL: 5,
    Action.RESTART: 2,
    Action.RIVAL: 3,
    Action.REBOOT: 2,
    Action.DAMAGE: 3,
    Action.FREEZE: 1,
    Action.DIE: 3,
    Action.LAG: 1,
    Action.UNPLUG: 4,
    Action.TAINT: 3,
    Action.DISK_FULL: 2,
    Action.CDI_READ_ONLY: 2,
    Action.CLOCK: 1,
    Action.UPGRADE: 3,
    Action.WIPE: 1,
    Action.MEDDLE: 1,
    Action.UNLINK: 2,
}
ENDS = {
    Action.API_DOWN: Action.API_UP,
    Action.KUBELET_DOWN: Action.KUBELET_UP,
    Action.RIVAL: Action.RIVAL_GONE,
    Action.UNPLUG: Action.PLUG,
    Action.DISK_FULL: Action.DISK_FREE,
    Action.CDI_READ_ONLY: Action.CDI_WRITABLE,
    Action.UPGRADE: Action.KUBELET_RESTART,
    Action.KUBELET_RESTART: Action.JOIN,
}
"""What is likely to come after a step: its end, or what brings to light what it did."""


OF_A_POD = {Action.JOIN, Action.DELETE, Action.DELETE_BY_FORCE}


class Scheduler:
    """Draws steps, and keeps count of what pods there are.

    Where an Unprepare comes before every Prepare no claim is two pods' own: the Unprepare for the second pod would take the claim from the first,
    which a kubelet that means it may do.
    """

    def __init__(self, seed: int, shop: Allocatable) -> None:
        self._random = random.Random(seed)
        self._shop = shop
        self._seed = seed
        self._pods: dict[str, str] = {}
        self._number = 0
        self._kinds: set[str] = set()
        self._due: list[Action] = []
        self._details: dict[Action, Callable[[], tuple[str, int]]] = {
            Action.REFUSE: lambda: (
                f"{self._random.choice(STATUSES)} {self._random.choice(METHODS)}".strip(),
                self._random.choice((500, 1000)),
            ),
            Action.DELAY: lambda: (self._random.choice(METHODS), self._random.choice((30, 150, 3000))),
            Action.CUT: lambda: (self._random.choice(METHODS), self._random.choice((300, 1000))),
            Action.NONSENSE: lambda: ("", self._random.choice((300, 1000))),
            Action.KILL: lambda: (self._random.choice(WHICH), 0),
            Action.RESTART: lambda: (self._random.choice(WHICH), 0),
            Action.DAMAGE: lambda: (self._random.choice(("header", "half")), 0),
            Action.DROP_CALLS: lambda: ("", self._random.randint(1, 3)),
            Action.FREEZE: lambda: ("", self._random.choice((50, 200, 900))),
            Action.DIE: lambda: (self._random.choice(("before make", "after make", "before unmake", "after unmake")), 0),
            Action.LAG: lambda: ("", self._random.choice((5, 40))),
            Action.UNPLUG: lambda: (self._random.choice(hardware.BASES), 0),
            Action.TAINT: lambda: (self._random.choice(("chip-0", "chip-3-left", "pipe")), 0),
            Action.UPGRADE: lambda: ("", self._random.randint(1, 999)),
            Action.UNLINK: lambda: (self._random.choice(("registration", "service")), 0),
            Action.CLOCK: lambda: ("", self._random.choice((-86_400, -3_600, 3_600, 400 * 86_400))),
        }

    def steps(self) -> Sequence[Step]:
        """A schedule of 4 to 11 steps, the first of which makes a pod."""
        settled = [self._step(Action.SETTLE)] if self._random.random() < 0.5 else []
        return (self._run(), *settled, *(self._next() for _ in range(self._random.randint(3, 9))))

    def _next(self) -> Step:
        is_due = self._due and self._random.random() < 0.4
        do = self._due.pop(0) if is_due else self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if do is Action.UNPREPARE_FIRST and "pair" in self._kinds:
            do = Action.CALL_TWICE
        self._kinds.add("no pair" if do is Action.UNPREPARE_FIRST else "")
        if do is Action.RUN or (not self._pods and do in OF_A_POD) or (do is Action.JOIN and "no pair" in self._kinds):
            return self._run()
        if do is Action.JOIN:
            self._kinds.add("pair")
            return self._step(do, self._random.choice(list(self._pods)))
        if do in {Action.DELETE, Action.DELETE_BY_FORCE}:
            name = self._random.choice(list(self._pods))
            del self._pods[name]
            return self._step(do, name)
        if do in ENDS:
            self._due.append(ENDS[do])
        what, amount = self._details.get(do, lambda: ("", 0))()
        return self._step(do, what, amount)

    def _run(self) -> Step:
        kinds = list(self._pods.values())
        wholes = sum(kind in {"whole", "pair"} for kind in kinds)
        free = ["whole"] if wholes < WHOLES_MAX else []
        free += ["pair"] if free and "no pair" not in self._kinds else []
        free += ["half", "half"] if self._shop.halves and kinds.count("half") < HALVES_MAX else []
        free += ["board"] if "board" not in kinds else []
        free += ["pipe"] if kinds.count("pipe") < self._shop.shares else []
        if not free:
            return self._step(Action.KILL)
        self._number += 1
        name = f"s{self._seed}-{self._number}"
        self._pods[name] = self._random.choice(free)
        self._kinds.add(self._pods[name])
        return self._step(Action.RUN, f"{self._pods[name]} {name}")

    def _step(self, do: Action, what: str = "", amount: int = 0) -> Step:
        pauses = (15, 40, 80, 150) if do in {Action.REFUSE, Action.CUT, Action.NONSENSE} else (0, 0, 5, 15, 40, 80)
        return Step(do, what, amount, pause_ms=self._random.choice(pauses))


def draw(seed: int, shop: Allocatable) -> Sequence[Step]:
    """The schedule of a seed."""
    return Scheduler(seed, shop).steps()
