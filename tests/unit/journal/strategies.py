"""Hypothesis strategies for everything a grant can hold."""

import datetime

from hypothesis import strategies as st

from drakit.core import capacity, claim, device, edits, lifecycle, names, quantity, records
from fakes import journal_samples as samples

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
keys = st.one_of(identifiers, st.builds("{}.example.com/{}".format, labels, identifiers))
texts = st.text(st.characters(codec="utf-8"), max_size=12)
versions = st.builds(lambda parts: device.Version(".".join(map(str, parts))), st.tuples(*[st.integers(min_value=0, max_value=999)] * 3))
int64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
amounts = st.builds(quantity.Quantity, st.integers(min_value=0, max_value=10**30), st.sampled_from(quantity.Format))
scalars = (texts, int64, st.booleans(), versions)
attributes: st.SearchStrategy[device.AttributeValue] = st.one_of(
    *scalars, *(st.lists(kind, min_size=1, max_size=3).map(tuple) for kind in scalars)
)
json_values: st.SearchStrategy[records.Json] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
json_objects: st.SearchStrategy[records.Record] = st.dictionaries(st.text(max_size=8), json_values, max_size=3).map(records.freeze_record)


@st.composite
def policies(draw: st.DrawFn) -> capacity.RequestPolicy:
    """None, valid values, or a range, with amounts that start at one."""
    ladder = sorted(draw(st.sets(st.integers(min_value=1, max_value=1000), min_size=2, max_size=5)))
    first, *rest = [quantity.Quantity.of(value) for value in ladder]
    form = draw(st.sampled_from(["empty", "values", "range"]))
    if form == "empty":
        return capacity.RequestPolicy(default=draw(st.sampled_from([None, first])))
    if form == "values":
        return capacity.RequestPolicy(default=first, valid_values=(first, *rest))
    limit = draw(st.sampled_from([None, first + quantity.Quantity.of(100)]))
    return capacity.RequestPolicy(
        default=first, valid_range=capacity.ValidRange(min=first, max=limit, step=draw(st.sampled_from([None, quantity.ONE])))
    )


capacities = st.one_of(
    amounts.map(capacity.Capacity.of),
    st.builds(lambda rule: capacity.Capacity(value=quantity.Quantity.of(5000), policy=rule), policies()),
)
consumptions = st.builds(
    device.CounterConsumption,
    counter_set=labels,
    counters=st.dictionaries(labels, amounts, max_size=3),
    includes=st.lists(labels, max_size=2).map(tuple),
)
taints = st.builds(
    device.Taint,
    key=labels,
    value=labels,
    effect=st.sampled_from(device.TaintEffect),
    time_added=st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
)
conditions = st.lists(
    identifiers.filter(lambda text: not text.startswith("_") and not text.endswith("_")), min_size=1, max_size=2, unique=True
).map(tuple)


@st.composite
def devices(draw: st.DrawFn) -> device.Device:
    binding = draw(st.none() | conditions)
    return device.Device(
        name=draw(labels),
        attributes=draw(st.dictionaries(keys, attributes, max_size=4)),
        capacity=draw(st.dictionaries(keys, capacities, max_size=4)),
        consumes=tuple(draw(st.lists(consumptions, max_size=2, unique_by=lambda part: part.counter_set))),
        allow_multiple_allocations=True,
        taints=tuple(draw(st.lists(taints, max_size=2))),
        binds_to_node=draw(st.booleans()),
        binding_conditions=binding or (),
        binding_failure_conditions=tuple(f"Not{condition}" for condition in binding or ()),
        includes=tuple(draw(st.lists(labels, max_size=2))),
    )


numbers = st.none() | st.integers(min_value=0, max_value=2**31)
nodes = st.builds(
    edits.DeviceNode, path=texts, host_path=texts, type=texts, major=numbers, minor=numbers, file_mode=numbers, permissions=texts
)
mounts = st.builds(edits.Mount, host_path=texts, container_path=texts, options=st.lists(texts, max_size=3).map(tuple), type=texts)
environments = st.dictionaries(texts, texts, max_size=3)
hooks = st.builds(
    edits.Hook,
    name=st.sampled_from(edits.HookName),
    path=texts,
    args=st.lists(texts, max_size=3).map(tuple),
    env=environments,
    timeout=numbers,
)
net_devices = st.builds(edits.NetDevice, host_interface_name=texts, name=texts)
all_edits = st.builds(
    edits.Edits,
    env=environments,
    device_nodes=st.lists(nodes, max_size=2).map(tuple),
    mounts=st.lists(mounts, max_size=2).map(tuple),
    hooks=st.lists(hooks, max_size=2).map(tuple),
    net_devices=st.lists(net_devices, max_size=2).map(tuple),
)
share_ids = st.none() | st.uuids().map(str).map(names.ShareId)
grants = st.builds(
    lifecycle.GrantEntry,
    request=texts,
    pool=texts,
    device=devices(),
    share_id=share_ids,
    consumed_capacity=st.dictionaries(keys, amounts, max_size=3),
    admin_access=st.booleans(),
    parameters=st.none() | json_objects,
    config_source=st.none() | st.sampled_from(claim.ConfigSource),
    intent=json_objects,
    record=json_objects,
    edits=st.none() | all_edits,
)
entries = st.builds(
    lifecycle.Entry,
    claim=st.builds(claim.ClaimRef, uid=st.just(samples.uid(1)), namespace=texts, name=texts),
    state=st.sampled_from([state for state in lifecycle.State if state is not lifecycle.State.ABSENT]),
    grants=st.lists(grants, max_size=2).map(tuple),
    boot_id=texts,
)
