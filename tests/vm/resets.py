"""Reset the machine many times while drivers in it prepare and unprepare claims: ``make vm VM_ARGS="--resets 10"``.

QEMU's ``system_reset`` is the reset button of a computer: the kernel stops at any instruction, and what it had not given to its disks is lost. The
disks keep all that they were given, flushed or not; ``disk_log`` has disks that lose the rest too. The next start of the same machine checks that no
answered claim is lost and nothing is left (``reset_node``).
"""

import collections
import pathlib
import random
import sys
import time

from vm import disk_log, machine, reset_node

SERVED_SECONDS = (1, 15)
"""How long a life serves before its reset."""
JOB = "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests exec python -m vm.reset_node /host/lives {arguments}\n"
DISKS = tuple(disk_log.MOUNTED)


def run(
    resettable: machine.Machine,
    count: int,
    *,
    checkout: pathlib.Path,
    timeout_s: float,
    served_s: tuple[float, float] = SERVED_SECONDS,
) -> int:
    """Reset a machine so often, and return the exit status of the first life that fails, or 0. Raises MachineError."""
    deadline, chance, words = time.monotonic() + timeout_s, random.Random(count), collections.Counter[str]()
    lives = resettable.share / "lives"
    lives.mkdir()
    for life in range(count):
        resettable.submit(JOB.format(arguments=life), checkout=checkout, keep=True)
        status = resettable.wait(deadline, until=lives / f"serving-{life}")
        if status is not None:
            return status
        time.sleep(chance.uniform(*served_s))
        resettable.reset()
        pasts = [reset_node.past(lives, life, name) for name in reset_node.NODES]
        words.update(word for past in pasts for word in past.last.values())
        _say(f"reset {life + 1} of {count}: {', '.join(f'{number} {word}' for word, number in sorted(words.items()))} until now")
    resettable.submit(JOB.format(arguments=f"{count} last"), checkout=checkout, keep=False)
    status = resettable.wait(deadline)
    _say(f"{count} resets, {len(reset_node.NODES)} drivers: " + ("a check failed" if status else "no claim lost, nothing left"))
    return 1 if status is None else status


def _say(text: str) -> None:
    sys.stdout.write(f"vm: {text}\n")
    sys.stdout.flush()
