"""Short ways to ask for the verdict of an expression."""

from drakit_cluster.cel import Compiled, EnvType, Gates, RunError, Selectors
from drakit_cluster.objects.devices import DeviceView, view_of

ALL_ON = Gates(consumable_capacity=True, list_type_attributes=True)
ALL_OFF = Gates(consumable_capacity=False, list_type_attributes=False)
FISH = view_of(
    "dra.example.com",
    {
        "attributes": {
            "b": {"bool": True},
            "i": {"int": 5},
            "neg": {"int": -3},
            "s": {"string": "fish"},
            "v": {"version": "1.2.3-rc.1+b7"},
            "other.example.com/x": {"string": "o"},
        },
        "capacity": {"mem": {"value": "40Gi"}, "cpu": {"value": "1500m"}, "big": {"value": "100E"}},
    },
)
A = 'device.attributes["dra.example.com"]'
C = 'device.capacity["dra.example.com"]'


def compiled(expression: str, gates: Gates = ALL_OFF, env_type: EnvType = EnvType.NEW) -> Compiled:
    return Selectors(gates).compile(expression.replace("A.", f"{A}.").replace("C.", f"{C}."), env_type)


def verdict(expression: str, gates: Gates = ALL_OFF, device: DeviceView = FISH) -> bool:
    return Selectors(gates).verdict(compiled(expression, gates), device)


def failure(expression: str, gates: Gates = ALL_OFF, device: DeviceView = FISH) -> str:
    try:
        result = verdict(expression, gates, device)
    except RunError as error:
        return str(error)
    raise AssertionError(f"{expression} is {result}")
