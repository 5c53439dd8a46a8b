"""Which settings a program has: all of drakit's, or the framework's and those of an author's own driver.

An author's settings are a frozen dataclass. Its fields are one more group, such as ``ssd.device`` in the file, and ``SSD_DEVICE`` in the environment.
"""

import contextvars
import dataclasses
import re
from collections.abc import Iterator, Mapping

import pydantic
import pydantic.dataclasses

from drakit.core import errors
from drakit.settings.groups import Settings

ENV_PREFIX = "DRAKIT_"
ENV_NESTING = "__"
FRAMEWORK = ("node", "api", "publish", "report", "serve", "webhook", "log")
"""The groups that every driver's program has."""
PUBLISHING = ("election",)
"""The additional groups of programs with ``publish``."""
_GROUP = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """The settings of one program: the groups that it knows, and the group of an author's own settings, empty where there are none."""

    model: type[Settings] = Settings
    groups: tuple[str, ...] = tuple(Settings.model_fields)
    own: str = ""

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


CURRENT: contextvars.ContextVar[Schema] = contextvars.ContextVar("CURRENT", default=Schema())  # noqa: B039 - it is frozen
"""The settings of this program."""


def of_driver(group: str = "", own: type | None = None, *, publishes: bool = False) -> Schema:
    """Return the settings of an author's program; its own settings are the fields of a frozen dataclass. Raise TypeError for an invalid dataclass."""
    groups = (*FRAMEWORK, *PUBLISHING) if publishes else FRAMEWORK
    if own is None:
        return Schema(groups=groups)
    if not dataclasses.is_dataclass(own) or not own.__dataclass_params__.frozen:  # type: ignore[attr-defined] # the standard library sets it
        raise TypeError(f"settings={own.__name__} is no frozen dataclass; write @dataclasses.dataclass(frozen=True, kw_only=True)")
    if not _GROUP.fullmatch(group) or group in FRAMEWORK + PUBLISHING:
        raise TypeError(f"settings cannot have the group {group!r}; give drakit.run(group=...) another name of a-z, 0-9 and _")
    try:
        own()
    except TypeError as error:
        raise TypeError(f"every field of {own.__name__} needs a default: {error}") from error
    config = pydantic.ConfigDict(extra="forbid")
    checked = pydantic.dataclasses.dataclass(own, frozen=True, config=config)
    model = pydantic.create_model("Settings", __base__=Settings, **{group: (checked, pydantic.Field(default_factory=checked))})  # type: ignore[call-overload] # the fields are named at run time
    return Schema(model=model, groups=(*groups, group), own=group)


def group_of(driver_name: str) -> str:
    """Return the default group of a driver's settings: ``ssd`` for ``ssd.example.com``."""
    return driver_name.partition(".")[0].replace("-", "_")


def own_of(settings: Settings) -> object:
    """Return an author's own settings. Raise SettingsError where the program has none."""
    group = CURRENT.get().own
    if not group:
        raise errors.SettingsError("this program has no settings of its own", key="settings")
    return getattr(settings, group)
