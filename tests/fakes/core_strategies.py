"""Hypothesis strategies for core values: quantities as text, and inventories with counter sets, taints, lists and mixins."""

from hypothesis import strategies as st

from drakit.core import capacity, device, inventory, quantity

SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E-2", "e+7", "E12")
COUNTERS = ("memory", "slice-0", "slice-1", "copies")


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Text that Kubernetes parses."""
    whole = draw(st.integers(0, 10**12))
    part = draw(st.none() | st.text("0123456789", max_size=12))
    sign = draw(st.sampled_from(("", "", "-", "+")))
    return f"{sign}{whole}{'' if part is None else f'.{part}'}{draw(st.sampled_from(SUFFIXES))}"


def quantities() -> st.SearchStrategy[quantity.Quantity]:
    return quantity_texts().map(quantity.Quantity.parse)


_AMOUNTS = st.dictionaries(st.sampled_from(COUNTERS), st.integers(1, 4).map(quantity.Quantity.of), min_size=1)
_WHOLE = {name: quantity.Quantity.of(64) for name in COUNTERS}
_ATTRIBUTES: st.SearchStrategy[dict[str, device.AttributeValue]] = st.dictionaries(
    st.sampled_from(("model", "index", "ready", "list")),
    st.sampled_from(("a", "b", 0, 1, True, False, ("p", "q"), (1,), (True,))),
    max_size=4,
)
_CAPACITY = st.dictionaries(st.sampled_from(("memory", "copies")), st.integers(0, 3).map(capacity.Capacity.of), max_size=2)
_TAINTS = st.just(()) | st.just((device.Taint(key="example.com/bad"),))
_SHARED = inventory.Mixins(
    device=tuple(inventory.DeviceMixin(name=f"d{n}", attributes={"shared": n, f"only{n}": n}) for n in range(12)),
    counter_set=tuple(inventory.CounterSetMixin(name=f"s{n}", counters={f"extra-{n}": quantity.ONE}) for n in range(12)),
    consumption=tuple(inventory.ConsumptionMixin(name=f"c{n}", counters={"memory": quantity.Quantity.of(n)}) for n in range(12)),
)


def _includes(prefix: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.integers(0, 11).map(lambda n: f"{prefix}{n}"), max_size=3, unique=True).map(tuple)


@st.composite
def devices(draw: st.DrawFn, name: str, sets: tuple[str, ...], *, with_mixins: bool) -> device.Device:
    drawn = draw(st.lists(st.sampled_from(sets), max_size=2, unique=True)) if sets else []
    return device.Device(
        name=name,
        attributes=draw(_ATTRIBUTES),
        capacity=draw(_CAPACITY),
        taints=draw(_TAINTS),
        includes=draw(_includes("d")) if with_mixins else (),
        consumes=tuple(
            device.CounterConsumption(counter_set=one, counters=draw(_AMOUNTS), includes=draw(_includes("c")) if with_mixins else ())
            for one in drawn
        ),
    )


@st.composite
def inventories(draw: st.DrawFn, *, with_mixins: bool = True, largest: int = 150) -> inventory.Inventory:
    """Up to ``largest`` devices, cut from a few prototypes so that large inventories stay cheap to draw, and up to 20 counter sets."""
    names = tuple(f"set-{n}" for n in range(draw(st.integers(0, 20))))
    kinds = [draw(devices(f"kind-{n}", names, with_mixins=with_mixins)) for n in range(draw(st.integers(1, 5)))]
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=largest))
    held = draw(_includes("s")) if with_mixins else ()
    return inventory.Inventory(
        devices=tuple(_renamed(kind, f"device-{n}") for n, kind in enumerate(chosen)),
        counter_sets=tuple(device.CounterSet(name=name, counters=_WHOLE, includes=held) for name in names),
        mixins=_SHARED if with_mixins else inventory.Mixins(),
    )


def _renamed(item: device.Device, name: str) -> device.Device:
    fields = {key: value for key, value in vars(item).items() if key != "name"}
    return device.Device(name=name, **fields)
