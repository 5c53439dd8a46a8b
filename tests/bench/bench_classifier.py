"""What the classifier of a shared NIC costs for each frame, by each way to know its sender: the kernel runs the program itself (BPF_PROG_TEST_RUN).

``PYTHONPATH=tests python -m bench.bench_classifier``, as root. The floor is a program that only returns. Maps have a thousand members.
"""

import ctypes
import functools
import os
import statistics
import struct
from collections.abc import Iterator, Mapping

from bench import table
from drakit_nic.shaping import bpf, classifiers, htb, maps, socket_namespace

TEST_RUN = 10
REPEAT, RUNS = 200_000, 9
MEMBERS = 1000
FRAME = bytes.fromhex("0200000000990299000000010800") + bytes(100)


def programs(memory: maps.Maps) -> Iterator[tuple[str, bytes]]:
    """Each program by the name of its way."""
    egress = functools.partial(classifiers.egress, owners=memory.owners, ledger=memory.ledger)
    yield "floor: a program that only returns", classifiers.everything()
    yield "by address", egress(by_namespace=False)
    yield "by namespace, helper", egress(by_namespace=True)
    yield "by namespace, kernel's memory", egress(by_namespace=True, offsets=socket_namespace.read())


def nanoseconds(program: int) -> float:
    """The kernel's own mean for one run of a loaded program on a frame, whose socket is in this namespace."""
    frame = ctypes.create_string_buffer(FRAME, len(FRAME))
    request = bytearray(struct.pack("=IIIIQQIIIIQQ", program, 0, len(FRAME), 0, ctypes.addressof(frame), 0, REPEAT, 0, 0, 0, 0, 0))
    bpf._bpf_in_place(TEST_RUN, request)
    return float(struct.unpack_from("=I", request, 36)[0])


def measured(memory: maps.Maps) -> Mapping[str, float]:
    """The median of some runs of each program, in turn; a program that the kernel refuses is left out."""
    loaded = {}
    for name, program in programs(memory):
        try:
            loaded[name] = bpf.load("bench", program)
        except OSError as error:
            table.line(name, f"not on this kernel: {error}")
    taken: dict[str, list[float]] = {name: [] for name in loaded}
    for _ in range(RUNS):
        for name, descriptor in loaded.items():
            taken[name].append(nanoseconds(descriptor))
    for descriptor in loaded.values():
        os.close(descriptor)
    return {name: statistics.median(each) for name, each in taken.items()}


def main() -> None:
    """Print the table."""
    memory = maps.Maps.complete({})
    for number in range(MEMBERS):
        memory.add_member(
            htb.ShareMember(
                minor=0x8000 + number, share=0x100, cookie=10**9 + number, mac=f"02:aa:00:00:{number >> 8:02x}:{number & 255:02x}"
            )
        )
    results = measured(memory)
    memory.close()
    floor = next(iter(results.values()))
    for name, each in results.items():
        table.line(name, f"{each:6.0f} ns", each / max(floor, 1.0))


if __name__ == "__main__":
    main()
