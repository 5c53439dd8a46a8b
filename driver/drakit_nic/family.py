"""The NIC family as drakit's commands know it, before the kernel is asked for interfaces."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, ClassVar

import drakit
from drakit_nic.options import NicOptions


class NicFamily(drakit.Family[NicOptions]):
    """Network interfaces: shared with a bandwidth for each claim, or whole."""

    name = "nic"
    options = NicOptions
    machine_key: ClassVar[str] = "nics"

    def driver_name(self, options: NicOptions) -> str:
        return options.driver_name

    def is_enabled(self, options: NicOptions) -> bool:
        return options.enabled

    def build(self, options: NicOptions, site: drakit.Site) -> drakit.Driver[Any]:
        from drakit_nic import driver, kernel_port, mock_port, port  # noqa: PLC0415 - commands that open no interface need none of it
        from drakit_nic.attach import sandboxes, service  # noqa: PLC0415

        name = site.driver_name
        hardware: port.Port
        if site.machine is None:
            hardware, bus = kernel_port.KernelPort(options.netns, driver=name, uses_ipvlan=options.uses_ipvlan), None
        else:
            hardware = mocked = mock_port.MockPort(site.machine)
            bus = mocked.bus
        kernel = sandboxes.KernelSandboxes(options.netns)
        return driver.NicDriver(
            hardware,
            node=site.node,
            options=options,
            name=name,
            intents=site.intents,
            bus=bus,
            attachment=None if site.machine is not None else service.Service(site.home, hardware, kernel, node=site.node),
        )

    def rules(self, options: NicOptions) -> drakit.Rules:
        from drakit_nic import config as parameters  # noqa: PLC0415
        from drakit_nic import pod_checks, share  # noqa: PLC0415

        check_pod = functools.partial(pod_checks.of_pod, passes_to_machines=bool(options.vfio))
        return dataclasses.replace(parameters.rules(), check_pod=check_pod, check_device=share.check_device)

    def check_node(self, options: NicOptions, site: drakit.Site) -> Iterator[drakit.Finding]:
        from drakit_nic import checks  # noqa: PLC0415

        yield from checks.of_node(site.home, options.netns)
        yield from checks.of_vfio(is_on=bool(options.vfio))


FAMILY = NicFamily()
