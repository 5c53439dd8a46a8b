"""GPUs as devices: the whole GPU and every MIG partition, one counter set for each GPU, written with mixins.

From Hopper on a GPU is offered as all its partitions, small ones first, and as a whole at the end: drakit changes its MIG mode for a claim. On Ampere
a change of MIG mode needs a reset, so the admin decides: with MIG mode on, the GPU is offered as partitions; with it off, as a whole without
counters. GPUs without MIG and vGPUs are offered as a whole.

Where an admin allows it, a whole GPU has one more form for virtual machines, named with ``-vfio`` at the end, which draws the same counters.

Where sharing is on, every device has a second form that several claims may hold at once. It is a separate device, named with ``-shared`` at the end,
that draws the same counters. So only one of the two forms is in use at a time, and all shares of one device draw its counters once.

Where an admin fixed the layout of a GPU, only its partitions are offered, or only the whole GPU if it has none. They never overlap, so they
consume no counters, and the GPU has no counter set.

The counters that a foreign instance occupies are subtracted from the GPU's, and devices that no longer fit are not offered. A foreign instance that
is a complete MIG device is offered under the name of its partition, with its ``uuid`` and without counters.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import drakit
from drakit_gpu import port, share_policy
from drakit_gpu.inventory import attributes
from drakit_gpu.mig import counters, layouts, partitioning

_SLUG_MAX = 32
_ONE = {"device": drakit.ONE}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuView:
    """A discovered GPU: its partitions (none where it cannot have any now), and the foreign instances on it.

    ``static`` maps the foreign instances that are complete MIG devices to their UUIDs. ``unfinished`` are those that this driver began
    to create for a claim that the journal lost; a claim for that place completes them. ``can_be_whole`` is False where the GPU can only be used as
    partitions now. ``layout`` are the partitions of a fixed layout, None without one; ``why_outside`` says why others are not offered, and ``own``
    are the instances of claims.
    ``peers`` and ``clique`` are its NVLink neighbours. ``terms`` is how it is shared. ``vfio`` is set where it is offered to virtual machines.
    """

    gpu: port.Gpu
    partitions: tuple[partitioning.Partition, ...] = ()
    foreign: tuple[port.GpuInstance, ...] = ()
    static: Mapping[port.GpuInstance, str] = dataclasses.field(default_factory=dict)
    unfinished: frozenset[port.GpuInstance] = frozenset()
    can_be_whole: bool = True
    layout: tuple[partitioning.Partition, ...] | None = None
    why_outside: str = ""
    own: tuple[port.GpuInstance, ...] = ()
    mig_mode: port.MigMode | None = None
    peers: tuple[port.Gpu, ...] = ()
    clique: str | None = None
    terms: share_policy.SharePolicy = share_policy.NOT_SHARED
    vfio: bool = False

    @functools.cached_property
    def counting(self) -> counters.GpuCounters:
        """The counters of the GPU."""
        return counters.counters_of(self.partitions)

    @functools.cached_property
    def left(self) -> partitioning.Counters:
        """The part of its counters that drakit may allocate."""
        return self.counting.remaining(self.foreign)

    @property
    def offered(self) -> tuple[partitioning.Partition, ...]:
        """The partitions that fit into ``left``; of a fixed layout those that fit beside all instances."""
        if self.layout is not None:
            return layouts.free(self.layout, self.counting, self.foreign, self.own)
        return tuple(partition for partition in self.partitions if partitioning.fits(self.counting.draw(partition), self.left))

    @property
    def is_whole(self) -> bool:
        """Whether the whole GPU can be allocated."""
        return self.can_be_whole and not self.foreign

    @property
    def memory(self) -> drakit.Quantity | None:
        """The memory of the whole GPU; where it can have partitions, that of the largest."""
        whole = partitioning.largest_amounts(self.partitions)
        return whole["memory"] if whole else attributes.memory(self.gpu)

    def static_uuid(self, partition: partitioning.Partition) -> str | None:
        """Return the UUID of an admin's MIG device in the place of this partition, or None."""
        uuids = (
            uuid
            for instance, uuid in self.static.items()
            if (instance.profile_id, instance.placement) == (partition.profile.id, partition.placement)
        )
        return next(uuids, None)

    def is_unfinished(self, partition: partitioning.Partition) -> bool:
        """Return whether an unfinished instance is in the place of this partition."""
        place = partition.profile.id, partition.placement
        is_wanted = self.layout is None or partition in self.layout
        return is_wanted and any((instance.profile_id, instance.placement) == place for instance in self.unfinished)

    @property
    def counter_set(self) -> str:
        """The name of the GPU's counter set."""
        return counter_set_name(whole_name(self.gpu))

    @property
    def is_counted(self) -> bool:
        """Whether the GPU has a counter set: for its partitions, or to keep its forms apart."""
        return self.has_partition_counters or (self.can_be_whole and (self.is_shared or self.vfio))

    @property
    def has_partition_counters(self) -> bool:
        """Whether the partitions of the GPU, and the whole GPU beside them, draw from counters: not in a fixed layout."""
        return bool(self.partitions) and self.layout is None

    @property
    def is_shared(self) -> bool:
        """Whether the whole GPU is offered in a shared form: not where sharing divides memory and its size is unknown."""
        return self.terms.whole and bool(self.terms.capacity(self.memory))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Product:
    """GPUs described by the same mixins; ``slug`` is part of the mixins' names."""

    slug: str
    sample: GpuView

    @property
    def whole(self) -> str:
        return f"whole-{self.slug}"

    @property
    def common(self) -> str:
        return f"product-{self.slug}"

    def profile(self, profile: port.GpuInstanceProfile) -> str:
        return f"{self.slug}-{partitioning.profile_slug(profile)}"

    @property
    def profiles(self) -> tuple[port.GpuInstanceProfile, ...]:
        return tuple(dict.fromkeys(partition.profile for partition in self.sample.partitions))


def whole_name(gpu: port.Gpu) -> str:
    """Return the device name of a whole GPU."""
    return f"gpu-{gpu.minor}"


def partition_name(gpu: port.Gpu, partition: partitioning.Partition) -> str:
    """Return the device name of a partition; the profile's hardware id distinguishes variants of one size."""
    return f"gpu-{gpu.minor}-mig-{partitioning.profile_slug(partition.profile)}-{partition.placement.start}"


def shared_name(name: str) -> str:
    """Return the device name of the shared form."""
    return f"{name}-shared"


def vfio_name(name: str) -> str:
    """Return the device name of the form for virtual machines."""
    return f"{name}-vfio"


def counter_set_name(name: str) -> str:
    """Return the name of the counter set of a GPU, or of a partition whose instance exists, by the name of its device."""
    return f"{name}-counter-set"


def locks_of(name: str) -> tuple[str, ...]:
    """Return every lock that a device may have, by its name: its counter set, or without one its own name in both forms."""
    return name, shared_name(name), counter_set_name(name)


def outside_layout(view: GpuView) -> Mapping[str, str]:
    """Return the names of all forms that a GPU could have and does not offer by its fixed layout, with why. They may be in use from before."""
    if view.layout is None:
        return {}
    named = {partition_name(view.gpu, partition) for partition in view.layout}
    possible = {partition_name(view.gpu, partition) for partition in view.partitions} - named
    if not view.can_be_whole:
        possible.add(whole_name(view.gpu))
    return dict.fromkeys(possible | {shared_name(name) for name in possible | named}, view.why_outside)


def build_inventory(versions: port.Versions, views: Sequence[GpuView]) -> drakit.Inventory:
    """Return the inventory of a node with mixins, GPU by GPU."""
    products = _products(views)
    return drakit.Inventory(
        devices=tuple(device for view in views for device in _devices(view, products[_product_key(view)])),
        counter_sets=tuple(counter_set for view in views for counter_set in _counter_sets(view, products[_product_key(view)])),
        mixins=drakit.Mixins(
            device=tuple(_device_mixins(versions, views, tuple(products.values()))),
            counter_set=tuple(
                drakit.CounterSetMixin(name=product.whole, counters=product.sample.counting.pool)
                for product in products.values()
                if product.sample.has_partition_counters
            ),
            consumption=tuple(_consumption_mixins(tuple(products.values()))),
        ),
    )


def _devices(view: GpuView, product: _Product) -> Iterator[drakit.Device]:
    offered = frozenset(view.offered)
    for partition in view.partitions:
        uuid = view.static_uuid(partition)
        is_unfinished = view.is_unfinished(partition)
        if uuid is None and not is_unfinished and partition not in offered:
            continue
        exclusive = _partition_device(view, partition, product)
        if uuid is not None:
            exclusive = _static_device(view, exclusive, uuid)
        elif is_unfinished:
            exclusive = dataclasses.replace(exclusive, consumes=_own_draw(view, exclusive))
        if view.terms.mig:
            yield _shared_partition(exclusive, product.profile(partition.profile))
        yield exclusive
    if view.is_whole:
        if view.is_shared:
            yield _shared_whole(view, product)
        yield _whole_device(view, product)
        if view.vfio:
            yield _vfio_device(view, product)


def _partition_device(view: GpuView, partition: partitioning.Partition, product: _Product) -> drakit.Device:
    profile = product.profile(partition.profile)
    placement = _placement_slug(partition.placement)
    draw = drakit.CounterConsumption(counter_set=view.counter_set, includes=(f"mig-{profile}", f"slices-{placement}"))
    return drakit.Device(
        name=partition_name(view.gpu, partition),
        includes=("system", product.common, f"mig-{profile}", _parent(view), f"placement-{placement}"),
        consumes=(draw,) if view.has_partition_counters else (),
    )


def _static_device(view: GpuView, partition: drakit.Device, uuid: str) -> drakit.Device:
    """Return the device of an admin's MIG device."""
    return dataclasses.replace(partition, attributes={attributes.UUID: uuid}, consumes=_own_draw(view, partition))


def _own_draw(view: GpuView, partition: drakit.Device) -> tuple[drakit.CounterConsumption, ...]:
    """Return what a device of an existing instance draws: the GPU's counters exclude it already, so only the counter of its two forms."""
    return (drakit.CounterConsumption(counter_set=counter_set_name(partition.name), counters=_ONE),) if view.terms.mig else ()


def _shared_partition(exclusive: drakit.Device, profile: str) -> drakit.Device:
    includes = tuple(f"shared-{profile}" if name == f"mig-{profile}" else name for name in exclusive.includes)
    return dataclasses.replace(exclusive, name=shared_name(exclusive.name), includes=includes, allow_multiple_allocations=True)


def _whole_device(view: GpuView, product: _Product) -> drakit.Device:
    mode = attributes.mig_mode(view.gpu, view.mig_mode, is_partitioned=view.has_partition_counters)
    links = attributes.links(view.gpu, view.peers, view.clique)
    draws: tuple[drakit.CounterConsumption, ...] = ()
    if view.has_partition_counters:
        draws = (drakit.CounterConsumption(counter_set=view.counter_set, includes=(product.whole,)),)
    elif view.is_counted:
        draws = (drakit.CounterConsumption(counter_set=view.counter_set, counters=_ONE),)
    return drakit.Device(
        name=whole_name(view.gpu),
        includes=("system", product.common, product.whole),
        attributes={
            attributes.UUID: view.gpu.uuid,
            **attributes.board(view.gpu),
            **links,
            **({} if mode is None else {attributes.MIG_MODE: mode}),
        },
        consumes=draws,
    )


def _shared_whole(view: GpuView, product: _Product) -> drakit.Device:
    exclusive = _whole_device(view, product)
    return dataclasses.replace(
        exclusive,
        name=shared_name(exclusive.name),
        includes=("system", product.common),
        attributes={attributes.TYPE: attributes.TYPE_SHARED_GPU, **exclusive.attributes},
        capacity=view.terms.capacity(view.memory),
        allow_multiple_allocations=True,
    )


def _vfio_device(view: GpuView, product: _Product) -> drakit.Device:
    whole = _whole_device(view, product)
    return dataclasses.replace(
        whole,
        name=vfio_name(whole.name),
        includes=("system", product.common),
        attributes={**whole.attributes, attributes.TYPE: attributes.TYPE_VFIO},
        capacity=attributes.memory_only(view.gpu),
    )


def _counter_sets(view: GpuView, product: _Product) -> Iterator[drakit.CounterSet]:
    if view.has_partition_counters:
        taken = {name: amount for name, amount in view.left.items() if amount != view.counting.pool[name]}
        yield drakit.CounterSet(name=view.counter_set, includes=(product.whole,), counters=taken)
    elif view.is_counted:
        yield drakit.CounterSet(name=view.counter_set, counters=_ONE)
    if view.terms.mig:
        for partition in view.partitions:
            if view.static_uuid(partition) is not None or view.is_unfinished(partition):
                yield drakit.CounterSet(name=counter_set_name(partition_name(view.gpu, partition)), counters=_ONE)


def _device_mixins(versions: port.Versions, views: Sequence[GpuView], products: Sequence[_Product]) -> Iterator[drakit.DeviceMixin]:
    if views:
        yield drakit.DeviceMixin(name="system", attributes=attributes.system(versions))
    for product in products:
        yield from _product_mixins(product)
    for view in views:
        if view.partitions:
            parent = {attributes.PARENT_UUID: view.gpu.uuid, **attributes.board(view.gpu)}
            yield drakit.DeviceMixin(name=_parent(view), attributes=parent)
    for placement in _placements(views):
        yield drakit.DeviceMixin(name=f"placement-{_placement_slug(placement)}", attributes=attributes.placement(placement))


def _product_mixins(product: _Product) -> Iterator[drakit.DeviceMixin]:
    gpu, whole = product.sample.gpu, partitioning.largest_amounts(product.sample.partitions)
    yield drakit.DeviceMixin(name=product.common, attributes=attributes.product(gpu))
    yield drakit.DeviceMixin(
        name=product.whole,
        attributes={attributes.TYPE: attributes.TYPE_GPU},
        capacity=attributes.capacity(whole) if whole else attributes.memory_only(gpu),
    )
    for profile in product.profiles:
        yield drakit.DeviceMixin(
            name=f"mig-{product.profile(profile)}",
            attributes=attributes.profile(profile),
            capacity=attributes.capacity(partitioning.profile_counters(profile)),
        )
        if product.sample.terms.mig:
            yield drakit.DeviceMixin(
                name=f"shared-{product.profile(profile)}",
                attributes={**attributes.profile(profile), attributes.TYPE: attributes.TYPE_SHARED_MIG},
                capacity=product.sample.terms.capacity(partitioning.profile_counters(profile)["memory"]),
            )


def _consumption_mixins(products: Sequence[_Product]) -> Iterator[drakit.ConsumptionMixin]:
    counted = [product for product in products if product.sample.has_partition_counters]
    for product in counted:
        yield drakit.ConsumptionMixin(name=product.whole, counters=product.sample.counting.pool)
        for profile in product.profiles:
            yield drakit.ConsumptionMixin(name=f"mig-{product.profile(profile)}", counters=product.sample.counting.shared[profile.id])
    for placement in _placements([product.sample for product in counted]):
        yield drakit.ConsumptionMixin(name=f"slices-{_placement_slug(placement)}", counters=partitioning.slice_counters(placement))


def _products(views: Sequence[GpuView]) -> Mapping[object, _Product]:
    """Return the products of the GPUs. Each has a slug: the product's name, numbered where two products have the same name."""
    samples: dict[object, GpuView] = {}
    for view in views:
        samples.setdefault(_product_key(view), view)
    taken: dict[str, int] = {}
    products: dict[object, _Product] = {}
    for key, sample in samples.items():
        slug = _slug(sample.gpu.product_name)
        taken[slug] = taken.get(slug, 0) + 1
        products[key] = _Product(slug=slug if taken[slug] == 1 else f"{slug}-{taken[slug]}", sample=sample)
    return products


def _product_key(view: GpuView) -> object:
    """Return the key of a GPU's product: GPUs with equal keys share mixins."""
    gpu = view.gpu
    properties = (gpu.product_name, gpu.brand, gpu.architecture, gpu.compute_capability, gpu.addressing_mode, gpu.memory)
    return (*properties, view.partitions, view.has_partition_counters)


def _placements(views: Sequence[GpuView]) -> tuple[port.Placement, ...]:
    return tuple(sorted({partition.placement for view in views for partition in view.partitions}))


def _placement_slug(placement: port.Placement) -> str:
    return f"{placement.start}-{placement.size}"


def _parent(view: GpuView) -> str:
    return f"parent-gpu-{view.gpu.minor}"


def _slug(text: str) -> str:
    """Return text as part of a DNS label."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return "-".join(part for part in plain.split("-") if part)[:_SLUG_MAX].rstrip("-") or "gpu"
