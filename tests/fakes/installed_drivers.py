"""Drivers of the installed families, made as the command line makes them."""

from typing import Any

import drakit
from drakit import families, machines
from drakit.core import ports


def build(
    name: str,
    *,
    node: str,
    machine: machines.Choice,
    driver_name: str = "",
    intents: ports.Intents = ports.no_intents,
    **settings: object,
) -> drakit.Driver[Any]:
    """Return the driver of a mock machine, with the family's default settings or some of its own."""
    family = of(name)
    options = family.options(**settings) if family.options else None
    named = driver_name or family.driver_name(options)
    home = machine.directory / "home"
    return family.build(options, families.Site(node=node, driver_name=named, home=home, machine=machine, intents=intents, pods=no_pods))


def of(name: str) -> families.Family[Any]:
    (found,) = [family for family in families.installed() if family.name == name]
    return found


def no_pods(_template: str) -> ports.PodStore:
    raise AssertionError("no driver of these tests runs pods")
