"""A driver whose devices are in several pools of a node: banks of memory."""

from typing import ClassVar

import drakit


class BankDriver(drakit.Driver[drakit.NoConfig]):
    """``pools`` says in which pool each bank is, ``made`` what the hardware holds; ``refusals`` are raised for the bank slow-0, one each."""

    name = "bank.example.com"
    device_metadata: ClassVar[bool] = True

    def __init__(self, pools: dict[str, str | None], made: dict[str, str]) -> None:
        self.pools = pools
        self.made = made
        self.refusals: list[Exception] = []

    def start(self, context: drakit.DriverContext) -> None:
        self.context = context

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory.of(
            drakit.Device(name=name, pool=pool, attributes={"bank": name.partition("-")[0]}) for name, pool in self.pools.items()
        )

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        if grant.device.name == "slow-0" and self.refusals:
            raise self.refusals.pop(0)
        self.made[grant.device.name] = grant.pool
        return drakit.Prepared(edits=drakit.Edits(env={grant.device.name.upper().replace("-", "_"): grant.pool}))

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        self.made.pop(grant.device.name, None)
