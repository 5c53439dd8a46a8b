"""A ``testing.Node`` whose driver reads the intents of its journal, as the drivers of GPUs and NICs do."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from drakit import testing
from drakit.core import driver as drivers
from drakit.core import names, ports, records
from drakit.node import engine, local_node
from drakit.testing import node as nodes


class Intents:
    """The intents of the journal that is open now; none before one is."""

    def __init__(self) -> None:
        self.read: ports.Intents = ports.no_intents

    def __call__(self, claim: names.ClaimUid | None = None) -> Iterable[records.Record]:
        return self.read(claim)


class NodeWithIntents(testing.Node):
    """A node whose driver is made with the intents of its journal."""

    def __init__(self, make: Callable[[Intents], drivers.Driver[Any]], *, folder: pathlib.Path) -> None:
        self._intents = Intents()
        super().__init__(lambda: make(self._intents), folder=folder)

    def _local(self, made: drivers.Driver[Any]) -> local_node.LocalNode:
        def build(intents: ports.Intents) -> drivers.Driver[Any]:
            self._intents.read = intents
            return made

        identity = engine.NodeIdentity(pool=nodes.POOL, boot_id=self.boot_id)
        spec = local_node.DriverSpec(driver_name=made.name, build=build, identity=identity)
        folders = local_node.Folders(home=self.folder / "home", cdi=self.folder / "cdi")
        return local_node.LocalNode.open(spec, folders, self.claims)
