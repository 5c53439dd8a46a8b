"""Fields that neither a shape nor Kubernetes has, in the objects that shapes describe in part only, such as pod specs.

Shapes keep fields that they do not describe. Kubernetes' models say which of them exist. Without models nothing is unknown.
"""

import re
from collections.abc import Iterable, Iterator

from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import api_models
from drakit_cluster.objects.schema.shape import ANY, ListOf, MapOf, Shape, Struct

_LIST = re.compile(r"List\[(.+)\]")
_MAP = re.compile(r"Dict\[str, (.+)\]")


def find(shape: Shape, model_name: str, value: Json, path: str) -> Iterator[str]:
    """Yield the paths of the unknown fields of ``value`` that ``shape`` would keep. ``model_name`` is the type of the value in the models."""
    if isinstance(value, list):
        inner, item_shape = _within(_LIST, model_name), shape.item if isinstance(shape, ListOf) else ANY
        for place, item in enumerate(value):
            yield from find(item_shape, inner, item, f"{path}[{place}]")
    elif isinstance(value, dict) and isinstance(shape, MapOf):
        for key, item in value.items():
            yield from find(shape.value, _within(_MAP, model_name), item, f"{path}[{key}]")
    elif isinstance(value, dict):
        known = shape.fields if isinstance(shape, Struct) else {}
        keeps = shape.open if isinstance(shape, Struct) else shape is ANY
        model = api_models.model(model_name)
        for name, item in value.items():
            where = f"{path}.{name}" if path else name
            described = model.fields.get(name)
            if name not in known and described is None:
                if keeps and model.fields and not name.startswith("$"):
                    yield where
                continue
            yield from find(known.get(name, ANY), described.type if described else "", item, where)


def known(shape: Shape, model_name: str, steps: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the fields of the object at ``steps``, each the name of a field or the index of an item, of which the other is empty."""
    for name, _ in steps:
        if name:
            described = api_models.model(model_name).fields.get(name)
            shape = shape.fields.get(name, ANY) if isinstance(shape, Struct) else ANY
            model_name = described.type if described else ""
        else:
            shape = shape.item if isinstance(shape, ListOf) else shape.value if isinstance(shape, MapOf) else ANY
            model_name = _within(_LIST, model_name) or _within(_MAP, model_name)
    own = frozenset(shape.fields) if isinstance(shape, Struct) else frozenset()
    return own if isinstance(shape, Struct) and not shape.open else own | frozenset(api_models.model(model_name).fields)


def _within(pattern: re.Pattern[str], model_name: str) -> str:
    match = pattern.fullmatch(model_name)
    return match[1] if match else ""
