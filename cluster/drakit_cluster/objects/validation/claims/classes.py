"""Rules of DeviceClasses."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import claims, formats
from drakit_cluster.objects.validation import failure, fields, rules
from drakit_cluster.objects.validation.claims import expressions, opaque
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_CONFIGS = 32


def create(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new class."""
    return _spec(new, {}, context)


def update(new: Object, old: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed class. Selectors, and configurations, that are all as before count as stored ones."""
    return _spec(new, json_types.mapping(old, "spec"), context)


def _spec(new: Object, old: Object, context: Context) -> Iterator[Failure]:
    spec = json_types.mapping(new, "spec")
    selectors_unchanged = fields.same(claims.SELECTORS, spec.get("selectors"), old.get("selectors"))
    configs_unchanged = fields.same(claims.CONFIG, spec.get("config"), old.get("config"))

    def config(value: Json, where: str) -> Iterator[Failure]:
        return opaque.check(value, where, stored=configs_unchanged)

    yield from expressions.selectors(spec, "spec", context, stored=selectors_unchanged)
    yield from rules.items("config", config, limit=MAX_CONFIGS)(spec, "spec")
    if (name := spec.get("extendedResourceName")) is not None and not _is_extended(str(name)):
        detail = "must be domain/name, neither of kubernetes.io nor beginning with requests."
        yield failure.invalid("spec.extendedResourceName", name, detail)


def _is_extended(name: str) -> bool:
    """Return whether a name can be that of an extended resource, and of the quota for it."""
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not formats.label_key(f"requests.{name}")
