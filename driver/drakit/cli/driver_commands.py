"""The commands that every author's program has, with help that fits any driver. A process loads only the command that it runs."""

import dataclasses
import functools
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from drakit.cli import tools

_UID = "4cf8db2d-06c0-4d70-9a51-e59b25b2c16c"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offered:
    """A command of an author's program, with a help text that fits any driver, and an example. ``load`` imports it."""

    load: Callable[[], Any]
    meaning: str
    example: str


def _import(name: str) -> Callable[[], Any]:
    return functools.partial(pkgutil.resolve_name, name)


ALWAYS: Mapping[str, Offered] = {
    "run": Offered(
        load=_import("drakit.cli.commands.run:run"),
        meaning="""Serve this node's devices to the kubelet and publish them, until SIGTERM or Ctrl-C.

        Flags override DRAKIT_ variables, which override the file of --config, which overrides the defaults. Slices stay published when the driver
        stops, so a restart does not take devices from pods.

        The driver runs as root and uses the kubelet's folders below /var/lib/kubelet, which must exist, and /var/run/cdi.""",
        example="run --node $(hostname)",
    ),
    "slices": Offered(
        load=_import("drakit.cli.commands.slices:slices"),
        meaning="""Show the ResourceSlices that this node would publish, without publishing them.

        The table compares the two forms. With -o yaml or json the command prints the objects, in the form flat unless --form is given.""",
        example="slices -o yaml",
    ),
    "show": Offered(
        load=_import("drakit.cli.commands.show:show"),
        meaning="""Show devices and prepared claims.

        Reads the hardware and the driver's journal, changes nothing, and needs no API server. If the driver is running, it also shows device
        health.""",
        example="show -o json",
    ),
    "prepare": Offered(
        load=_import("drakit.cli.commands.prepare:prepare"),
        meaning="""Prepare the devices of an allocated claim, without Kubernetes.

        A file has one or more ResourceClaims as the API server returns them, with status.allocation. The CDI files of the devices are written to
        the CDI directory, and the CDI device names are printed.""",
        example="prepare claim.yaml --node $(hostname)",
    ),
    "unprepare": Offered(
        load=_import("drakit.cli.commands.prepare:unprepare"),
        meaning="Release the devices of claims. A claim that is not prepared is not an error.",
        example=f"unprepare {_UID} --node $(hostname)",
    ),
    "doctor": Offered(
        load=_import("drakit.cli.doctor.command:doctor"),
        meaning="""Check everything that the driver needs on this node and in this cluster, and print a fix for each problem.

        Changes nothing. The exit status is 1 if a check failed, else 0, also with warnings.""",
        example="doctor --node $(hostname)",
    ),
    "uninstall-node": Offered(
        load=_import("drakit.cli.commands.uninstall:uninstall_node"),
        meaning="""List what the driver left on this node, and with --yes remove it.

        Stop the driver first. The command removes devices that were made for claims, CDI files, sockets, the journal, and this node's ResourceSlices.
        If a claim is prepared and still allocated, its pods may be running: nothing is removed without --force.""",
        example="uninstall-node --node $(hostname) --yes",
    ),
    "webhook": Offered(
        load=_import("drakit.cli.commands.webhook:webhook"),
        meaning="""Serve the admission webhook for the driver's opaque parameters, until SIGTERM or Ctrl-C.

        The API server calls it when a ResourceClaim, ResourceClaimTemplate or DeviceClass is created or its spec is changed. The webhook rejects
        parameters that prepare would reject, and names the field. It serves POST /validate and needs no rights in the cluster. It loads a new
        certificate when the files change.""",
        example="webhook --address 127.0.0.1:8443 --certificate tls.crt --key tls.key",
    ),
}
PUBLISH = Offered(
    load=lambda: functools.partial(pkgutil.resolve_name("drakit.cli.commands.publish:publish"), family=""),
    meaning="""Publish the driver's pools that belong to no node, for the whole cluster, until SIGTERM or Ctrl-C.

    If a driver has several publishers, only the holder of a Lease writes (settings election.*). It releases the Lease when it stops; if it is
    killed, another publisher takes over after election.duration. Slices stay published when the publisher stops. The publisher owns all slices of
    the driver that belong to no node, and deletes unknown pools.""",
    example="publish --set election.namespace=default",
)
JOURNAL_MEANING = """Inspect the journal, in which this driver records its prepared claims.

Every command reads a copy. The journal itself is not locked, migrated or changed, and the driver may be running."""
JOURNAL: Mapping[str, Offered] = {
    "show": Offered(
        load=_import("drakit.cli.commands.journal:show"),
        meaning="""List the claims in the journal, or show one claim in full.

        The list has each claim's state, its devices, and whether it was prepared since the last boot. The states are preparing, prepared and
        unpreparing. The kubelet's next call, or the next start of the driver, completes a claim that is preparing or unpreparing.

        With a UID, or with -o yaml or json, it prints everything that the journal has of a claim: intents, records, CDI edits, state, parameters,
        and the devices as they were allocated. Check the parameters before you share them in a bug report.""",
        example=f"journal show {_UID}",
    ),
    "verify": Offered(
        load=_import("drakit.cli.commands.journal:verify"),
        meaning="""Check that the journal is intact, that every row can be read, and that the CDI files match the journal.

        Exits with status 1 if there is a problem, and prints the fix. While the driver runs, the CDI files of claims in
        progress may be reported too; in this case, run it again.""",
        example="journal verify",
    ),
}
_LINT_MEANING = """Check slices, classes, claims, templates, taint rules and pods with the rules of the API server, and against each other.

The checks between objects find, for example, selectors that match no device, claims that fit on no node, and pods whose claims are missing.
Parameters for this driver are checked as at prepare. The exit status is 0 without errors, 1 with an error, and 2 if a file cannot be read."""


def of_driver(*, has_cluster_pools: bool) -> Mapping[str, Offered]:
    """Return the commands of a driver by name. ``lint`` is one of them where drakit-tools is installed."""
    commands = {**ALWAYS, "publish": PUBLISH} if has_cluster_pools else dict(ALWAYS)
    if tools.is_installed("lint"):
        commands["lint"] = Offered(load=lambda: tools.find("lint"), meaning=_LINT_MEANING, example="lint deploy/ claims.yaml")
    return commands
