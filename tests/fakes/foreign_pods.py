"""Pods that are none of the driver's business, as a CNI with a bridge makes and removes them: a program of its own, run beside what is measured.

``python foreign_pods.py NAMESPACE PODS_A_MINUTE SECONDS``: each pod is a network namespace with one end of a veth pair, whose other end is a port of
the bridge ``cni0`` in NAMESPACE.
"""

import os
import subprocess
import sys
import time

LIFE = 0.4


def ip(*words: str) -> None:
    """Run ``ip``, which must succeed."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def live(node: str, number: int) -> None:
    """One pod comes and goes."""
    pod, end = f"foreign-{os.getpid()}-{number}", f"veth{number}"
    ip("netns", "add", pod)
    try:
        ip("-n", node, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", pod)
        ip("-n", node, "link", "set", end, "master", "cni0", "up")
        ip("-n", pod, "address", "add", f"10.88.0.{number % 250 + 2}/24", "dev", "eth0")
        ip("-n", pod, "link", "set", "eth0", "up")
        time.sleep(LIFE)
        ip("-n", node, "link", "delete", end)
    finally:
        ip("netns", "delete", pod)


def main(node: str, rate: float, seconds: float) -> int:
    """Let pods come and go for so long; how many there were."""
    ip("-n", node, "link", "add", "cni0", "type", "bridge")
    ip("-n", node, "link", "set", "cni0", "up")
    start, number = time.monotonic(), 0
    while (now := time.monotonic() - start) < seconds:
        if now < number * 60 / rate:
            time.sleep(min(number * 60 / rate - now, seconds - now))
            continue
        live(node, number)
        number += 1
    ip("-n", node, "link", "delete", "cni0")
    return number


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))}\n")
