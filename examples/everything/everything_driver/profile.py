"""What the profiles have in common: health, the attributes of made-up hardware, and the variables that every container gets."""

import uuid
from collections.abc import Mapping
from typing import TypeVar

import drakit
from everything_driver import settings

Config = TypeVar("Config")


class Profile(drakit.Driver[Config]):
    """A driver of made-up devices of one kind, such as ``gpu``; a real driver needs no such layer."""

    kind: str
    device_metadata = True
    watch_interval = 5.0

    def __init__(self, own: settings.Settings) -> None:
        self._own = own

    def attributes(self, number: int) -> dict[str, drakit.AttributeValue]:
        """Return the attributes of the device with this number. Its UUID on a node is the same after every restart."""
        made = uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.kind}-{number}.{self.node_name}")
        model, version = f"LATEST-{self.kind.upper()}-MODEL", drakit.Version("1.0.0")
        return {"index": number, "uuid": f"{self.kind}-{made}", "model": model, "driverVersion": version}

    def prepared(self, grant: drakit.Grant[Config], values: Mapping[str, str]) -> drakit.Prepared:
        """Return variables for the container: the device under "", and ``values``. One of a share has the share's id in its name."""
        share = f"_{grant.share_id[:8].upper()}" if grant.share_id else ""
        device = grant.device.name.upper().replace("-", "_")
        prefix = f"{self.kind.upper()}_DEVICE_"
        variable = f"{prefix}{device.partition('_')[2]}{share}"
        env = {"KUBERNETES_NODE_NAME": grant.pool, "DRA_RESOURCE_DRIVER_NAME": self.name}
        env |= {f"{prefix}{device}{share}_RESOURCE_CLAIM": grant.claim.uid}
        env |= {f"{variable}_{name}" if name else variable: value for name, value in values.items()}
        env |= {"DRA_ADMIN_ACCESS": "true"} if grant.admin_access else {}
        return drakit.Prepared(edits=drakit.Edits(env=env))

    def watch(self, context: drakit.DriverContext) -> None:
        """Report the health of every device, and keep pods away from broken ones."""
        taint = drakit.Taint(key=f"{self.name}/unhealthy", value="true", effect=drakit.TaintEffect.NO_SCHEDULE)
        for device in self.discover().devices:
            if (self._own.folder / device.name).exists():
                context.taint(device.name, taint)
                context.report_health(drakit.HealthReport(device=device.name, health=drakit.Health.UNHEALTHY, message="marked as broken"))
            else:
                context.untaint(device.name, taint.key)
                context.report_health(drakit.HealthReport(device=device.name, health=drakit.Health.HEALTHY))
