"""Run tests on real drivers, in an emulated machine with a kernel of a Debian release: ``make vm VM_ARGS="--kernel 6.1 -k sriov"``.

The machine is built from Debian's packages the first time. Results (``results.xml``), the output, the journal and the serial console's log are in
``build/vm/KERNEL``. Ends with pytest's exit status; with 77 where QEMU or a package cannot be had, 124 after the time limit, and 125 if the machine
ended before its tests.
"""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from vm import machine as machines
from vm import resets

CHECKOUT = pathlib.Path(__file__).parents[2]


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this command, and the arguments for pytest."""
    parser = argparse.ArgumentParser(
        prog='make vm VM_ARGS="..."', description=__doc__, epilog="Other arguments are pytest's; without a path, it runs tests/vm."
    )
    parser.add_argument("--kernel", choices=machines.KERNELS, default=machines.KERNELS[0], help="the kernel (default: %(default)s)")
    parser.add_argument("--iommu", action="store_true", help="start the machine with an IOMMU, which VFIO needs")
    parser.add_argument("--selinux", action="store_true", help="start the machine with SELinux, and run only the tests of it")
    parser.add_argument("--keep", action="store_true", help="leave the machine running; later runs use it, until one without --keep")
    parser.add_argument("--timeout", type=float, default=3600, metavar="SECONDS", help="limit for start and tests (default: %(default)s)")
    parser.add_argument("--shell", metavar="SCRIPT", help="run a shell script in the checkout instead of pytest")
    parser.add_argument("--resets", type=int, default=0, metavar="COUNT", help="reset the machine so often while drivers prepare claims")
    return parser.parse_known_args(arguments)


def script_of(shell: str | None, arguments: Sequence[str]) -> str:
    """Return what the machine runs."""
    named = any(not argument.startswith("-") and (CHECKOUT / argument.partition("::")[0]).exists() for argument in arguments)
    return shell or machines.pytest_script(arguments if named else ["tests/vm", *arguments])


def main() -> int:
    """Build what is missing, start the machine unless it runs, and run the job."""
    options, arguments = parse(sys.argv[1:])
    cache = machines.cache_folder().absolute()
    built = subprocess.run([str(CHECKOUT / "tests/vm/build"), str(cache)], check=False)
    if built.returncode:
        return built.returncode
    kinds = [name for name in ("iommu", "selinux", "resets") if getattr(options, name)]
    machine = machines.Machine(
        kernel=options.kernel,
        cache=cache,
        folder=CHECKOUT / "build/vm" / "-".join([options.kernel, *kinds]),
        iommu=options.iommu,
        selinux=options.selinux,
        disks=resets.DISKS if options.resets else (),
    )
    done = False
    try:
        if machine.pid is None:
            _say(f"starting kernel {options.kernel}; its console: {machine.folder / 'console.log'}")
            machine.start()
        if options.resets:
            status = resets.run(machine, options.resets, checkout=CHECKOUT, timeout_s=options.timeout)
        else:
            status = machine.run(script_of(options.shell, arguments), checkout=CHECKOUT, keep=options.keep, timeout_s=options.timeout)
        done = True
    except machines.MachineError as error:
        _say(f"{error}")
        status = error.status
    finally:
        if not options.keep:
            machine.stop(grace_s=20 if done else 0)
    if options.keep:
        _say(f"the machine runs; for a shell: socat -,raw,echo=0,escape=0x1d unix:{machine.folder / 'console'}")
    _say(f"results and logs are in {machine.folder}")
    return status


def _say(text: str) -> None:
    sys.stderr.write(f"vm: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
