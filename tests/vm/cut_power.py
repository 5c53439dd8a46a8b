"""Cut the power of a whole machine again and again, while its drivers prepare and unprepare claims: ``make vm VM_ARGS="--power-cuts 8"``.

The machine keeps its disk. QEMU is killed, so the machine has no moment to write anything. The next boot is a new one for everything in it: systemd
starts the drivers' service again, which checks what is left (``cut_life``).
"""

import pathlib
import random
import sys
import time

from vm import machine as machines

INSTALL = """
set -e
cp -a /root/drakit /opt/under-test
cat >/etc/systemd/system/drakit-under-test.service <<'UNIT'
[Unit]
After=jobs.service
[Service]
Environment=DRAKIT_VM=1 PYTHONPATH=/opt/under-test/driver:/opt/under-test/tests PATH=/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/venv/bin/python -m vm.cut_life /var/lib/drakit-under-test /host
[Install]
WantedBy=multi-user.target
UNIT
sync
systemctl enable drakit-under-test.service
systemctl start drakit-under-test.service
"""
AT_WORK_SECONDS = (1, 15)
DRIVERS = 2


def cut_often(machine: machines.Machine, cuts: int, *, checkout: pathlib.Path, timeout_s: float) -> int:
    """Cut the power of a machine this often, and return 0 if every boot found all as it must be, 1 otherwise. Raises MachineError.

    ``timeout_s`` is the limit for each boot.
    """
    chance = random.Random()
    machine.run(INSTALL, checkout=checkout, keep=True, timeout_s=timeout_s)
    for number in range(cuts + 1):
        started = time.monotonic()
        while len(_lines(machine.share / "boots")) < DRIVERS * (number + 1):
            if failed := _lines(machine.share / "failed"):
                _say("\n".join(failed))
                return 1
            if machine.pid is None or time.monotonic() > started + timeout_s:
                raise machines.MachineError("the machine ended, or its drivers did not start", machines.DIED)
            time.sleep(1)
        _say(f"boot {number + 1}: both drivers found all as it must be, {time.monotonic() - started:.0f} s after the start")
        if number < cuts:
            time.sleep(chance.uniform(*AT_WORK_SECONDS))
            machine.stop(grace_s=0)
            machine.start(again=True)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _lines(file: pathlib.Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []
