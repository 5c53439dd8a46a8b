"""One boot of a node whose power is cut: ``python -m vm.cut_life FOLDER HOST``, a service of systemd in the machine.

FOLDER is on the machine's disk and has the state of two drivers: one whose hardware is outside of the machine (``cut_node``), and the NIC driver on
the igb. HOST is a folder of the host, where the marks of the first are, so they survive every cut. A boot checks both drivers, adds its boot ID to
``HOST/boots``, and then calls both until the power ends. An error is written to ``HOST/failed``.
"""

import itertools
import pathlib
import random
import sys
import threading
import traceback

from drakit.core import claim as claims
from drakit.core import names
from fakes import nic_attach
from vm import cut_node, virtual_functions

MAC = "02:ee:00:00:00:01"
CALLS = 20


def append(file: pathlib.Path, text: str) -> None:
    """Add a line to a file of the host. 9p has no cache, so the host has it when this returns."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")


def durable(folder: pathlib.Path, host: pathlib.Path, boot: str) -> None:
    """Check the claims of the boots before, end them, and prepare and unprepare others for ever."""
    marks = host / "marks"
    world = cut_node.World(folder=folder, kind=cut_node.DurableDriver)
    if marks.exists():
        lines = marks.read_text("utf-8").split("\n")
        cut_node.NextBoot(world, cut_node.Past.of(lines[:-1])).check(boot)
        marks.rename(host / f"marks-{boot}")

    def mark(text: str) -> None:
        append(marks, text)

    world.hardware.step = cut_node.marking(mark)
    kubelet = cut_node.Kubelet(world, mark, lambda: None, random.randrange(1 << 30))
    append(host / "boots", f"durable {boot}")
    while True:
        with world.driver(boot) as local:
            local.recover()
            kubelet.serve(local, CALLS)


def fixed(claim: claims.Claim, number: int) -> claims.Claim:
    """The claim with a UID that is the same in every boot."""
    uid = names.ClaimUid(f"{number:08}-0000-4000-8000-000000000000")
    return claims.Claim(
        ref=claims.ClaimRef(uid=uid, namespace="default", name=f"claim-{number}"), results=claim.results, configs=claim.configs
    )


def volatile(folder: pathlib.Path, host: pathlib.Path, boot: str) -> None:
    """Check that the new boot has nothing of the one before, prepare its claims again, and prepare and unprepare others for ever."""
    world = virtual_functions.node(folder, virtual_functions.ROOMY)
    world.boot_id = boot
    with virtual_functions.parent(1) as parent:
        (function,) = parent.functions()
        assert (function["address"] != MAC, function["vlan_list"], function["rate"]["max_tx"]) == (True, [{}], 0), function
        device = virtual_functions.device_of(world, parent.interfaces()[0])
        shared = virtual_functions.device_of(world, parent.name).removesuffix("-whole")
        whole = fixed(virtual_functions.claim(device, {"mac": MAC, "vlan": 7, "interfaceName": "fast0"}), 1)
        share = fixed(virtual_functions.of_device(nic_attach.claim(2, bandwidth="50M", parameters={"interfaceName": "shared0"}), shared), 2)
        with world.driver() as driver, nic_attach.pod() as pod:
            assert driver.local.report.failed == ()
            assert (driver.local.journal.entries(), driver.members(), list(world.cdi.glob("*.json"))) == ((), [], [])
            refs = [driver.prepare(whole), driver.prepare(share)]
            (function,) = parent.functions()
            assert (function["address"], function["vlan_list"][0]["vlan"], function["rate"]["max_tx"]) == (MAC, 7, 50), function
            assert len(driver.members()) == 1
            assert {entry.claim.uid for entry in driver.local.journal.entries()} == {ref.uid for ref in refs}
            assert len(list(world.cdi.glob("*.json"))) == len(refs)
            for ref in refs:
                virtual_functions.attach(world, ref, pod)
            append(host / "boots", f"volatile {boot}")
            for number in itertools.count(3):
                other = nic_attach.claim(number, bandwidth="10M")
                driver.unprepare(driver.prepare(virtual_functions.of_device(other, shared)))


def main() -> None:
    """Live until the power ends."""
    folder, host = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()

    def live(name: str) -> None:
        (folder / name).mkdir(parents=True, exist_ok=True)
        try:
            {"durable": durable, "volatile": volatile}[name](folder / name, host, boot)
        except BaseException:
            append(host / "failed", f"{name} {boot}\n{traceback.format_exc()}")
            raise

    threads = [threading.Thread(target=live, args=(name,)) for name in ("durable", "volatile")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
