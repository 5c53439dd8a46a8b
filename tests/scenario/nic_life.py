"""One life of the NIC driver as a process of its own, for tests of two drivers at once; ``python nic_life.py NAMESPACE FOLDER``.

It opens, recovers and serves, and then does what lines on standard input say: ``prepare N``, ``unprepare N``; each answered by one line, as is the
start. It ends with its input. Which driver it is, the module path decides: a test may give it an older or newer one.
"""

import pathlib
import sys

from fakes import netns, nic_attach


def main(namespace: str, folder: str) -> None:
    """Serve until the input ends."""
    world = nic_attach.World(netns.Namespace(namespace), pathlib.Path(folder))
    with world.driver() as driver:
        print("serving", flush=True)  # noqa: T201 - the answer
        for line in sys.stdin:
            verb, number = line.split()
            wanted = nic_attach.claim(int(number))
            if verb == "prepare":
                driver.prepare(wanted)
            else:
                driver.unprepare(wanted.ref)
            print("done", flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
