"""The settings of a program: the framework's groups, and one group for each device family of the program.

The program ``drakit`` has all groups and those of the installed families. The program of one driver (``drakit.run``) has fewer groups of the
framework, and variables of its own for its driver's group: ``ssd.device`` in the file is ``SSD_DEVICE`` in the environment.
"""

import contextvars
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic
import pydantic.dataclasses

from drakit import families
from drakit.settings.groups import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """The settings of one program: the groups that it knows, its families, and the family whose variables have no prefix, if any.

    ``is_of_one_driver`` is false for drakit's own program.
    """

    model: type[Settings]
    groups: tuple[str, ...]
    families: tuple[families.Family[Any], ...]
    own: str = ""
    is_of_one_driver: bool = True

    def known_keys(self) -> Iterator[tuple[str, object]]:
        """Return every key with its default."""
        for group in self.groups:
            model = self.model.model_fields[group].annotation
            fields: Mapping[str, pydantic.fields.FieldInfo] = getattr(model, "__pydantic_fields__", {})
            yield from ((f"{group}.{name}", field.default) for name, field in fields.items())

    def variable(self, key: str) -> str:
        """Return the environment variable of a key."""
        group, _, name = key.partition(".")
        return f"{group}_{name}".upper() if group == self.own else ENV_PREFIX + key.replace(".", ENV_NESTING).upper()

    def is_variable(self, name: str) -> bool:
        """Return whether an environment variable has the prefix of a setting of this program, known or not."""
        return name.startswith(ENV_PREFIX) or (bool(self.own) and name.startswith(f"{self.own}_".upper()))


ENV_PREFIX = "DRAKIT_"
ENV_NESTING = "__"
FRAMEWORK = ("node", "api", "publish", "report", "serve", "webhook", "log")
"""The groups that every driver's program has."""
PUBLISHING = ("election",)
"""The additional groups of programs with ``publish``."""
_GROUP = re.compile(r"[a-z][a-z0-9_]*")
CURRENT: contextvars.ContextVar[Schema | None] = contextvars.ContextVar("CURRENT", default=None)
"""The settings of the program of one driver; None in drakit's own."""


def current() -> Schema:
    """Return the settings of this program. Raises SettingsError for an installed family that cannot be loaded."""
    return CURRENT.get() or _of_drakit()


@functools.cache
def _of_drakit() -> Schema:
    served = families.installed()
    return Schema(
        model=_model(served),
        groups=(*Settings.model_fields, *(family.name for family in served if family.options is not None)),
        families=served,
        is_of_one_driver=False,
    )


def of_driver(family: families.Family[Any], *, publishes: bool = False) -> Schema:
    """Return the settings of the program of one driver. Raises TypeError for options that are no frozen dataclass with defaults."""
    groups = (*FRAMEWORK, *PUBLISHING) if publishes else FRAMEWORK
    if family.options is None:
        return Schema(model=Settings, groups=groups, families=(family,))
    return Schema(model=_model((family,)), groups=(*groups, family.name), families=(family,), own=family.name)


def _model(served: Sequence[families.Family[Any]]) -> type[Settings]:
    """Return the settings with a group for each family that has options."""
    fields = {}
    for family in served:
        if family.options is not None:
            checked = _checked(family.name, family.options)
            fields[family.name] = (checked, pydantic.Field(default_factory=checked))
    return pydantic.create_model("Settings", __base__=Settings, **fields)  # type: ignore[call-overload, no-any-return] # the fields are named at run time


def _checked(group: str, own: type[Any]) -> type[Any]:
    """Return the dataclass with checks of its fields when a value is made."""
    if not dataclasses.is_dataclass(own) or not own.__dataclass_params__.frozen:  # type: ignore[attr-defined] # the standard library sets it
        raise TypeError(f"settings={own.__name__} is no frozen dataclass; write @dataclasses.dataclass(frozen=True, kw_only=True)")
    if not _GROUP.fullmatch(group) or group in Settings.model_fields:
        raise TypeError(f"settings cannot have the group {group!r}; give drakit.run(group=...) another name of a-z, 0-9 and _")
    try:
        own()
    except TypeError as error:
        raise TypeError(f"every field of {own.__name__} needs a default: {error}") from error
    checked: type[Any] = pydantic.dataclasses.dataclass(own, frozen=True, config=pydantic.ConfigDict(extra="forbid"))
    return checked


def options_of(settings: Settings, family: families.Family[Any]) -> Any:
    """Return the family's own settings; None for a family that has none."""
    return None if family.options is None else settings.group(family.name)
