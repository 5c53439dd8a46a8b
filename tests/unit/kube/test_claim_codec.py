import copy
from typing import Any

import pytest

from drakit.core import errors
from drakit.kube import claim_codec
from fakes import claim_samples as samples

ABSENT = object()
RESULT = "status.allocation.devices.results[1]"
CONFIG = "status.allocation.devices.config[1]"


def changed(path: str, value: object) -> dict[str, Any]:
    """The sample claim with one field changed, or taken away."""
    found = copy.deepcopy(samples.CLAIM)
    *steps, last = path.replace("[", ".").replace("]", "").split(".")
    target: Any = found
    for step in steps:
        target = target[int(step) if step.isdigit() else step]
    key = int(last) if last.isdigit() else last
    if value is ABSENT:
        del target[key]
    else:
        target[key] = value
    return found


@pytest.mark.parametrize(
    "path, value, field, message",
    [
        ("status", "x", "status", 'must be an object, not "x"'),
        ("status.allocation", [], "status.allocation", "must be an object, not a list"),
        ("status.allocation.devices.results", {}, "status.allocation.devices.results", "must be a list, not an object"),
        (RESULT, 7, RESULT, "must be an object, not 7"),
        (f"{RESULT}.request", ABSENT, f"{RESULT}.request", "is required"),
        (f"{RESULT}.request", "a/b/c", f"{RESULT}.request", "'a/b/c' is not a request name"),
        (f"{RESULT}.driver", "", f"{RESULT}.driver", "is required"),
        (f"{RESULT}.driver", "../x", f"{RESULT}.driver", "'../x' is not a driver name"),
        (f"{RESULT}.pool", "a//b", f"{RESULT}.pool", "'a//b' is not a pool name"),
        (f"{RESULT}.pool", None, f"{RESULT}.pool", "is required"),
        (f"{RESULT}.device", "../../etc", f"{RESULT}.device", "'../../etc' is not a DNS label"),
        (f"{RESULT}.device", 3, f"{RESULT}.device", "must be text, not 3"),
        (f"{RESULT}.shareID", "share-1", f"{RESULT}.shareID", "'share-1' is not a lower-case UUID"),
        (f"{RESULT}.consumedCapacity.bandwidth", "fast", f"{RESULT}.consumedCapacity.bandwidth", "'fast' is not a quantity"),
        (
            f"{RESULT}.consumedCapacity.bandwidth",
            True,
            f"{RESULT}.consumedCapacity.bandwidth",
            "must be a quantity such as 40Gi or 500m, not true",
        ),
        (f"{RESULT}.consumedCapacity.0th", "5Gi", f'{RESULT}.consumedCapacity["0th"]', "write the capacity's name, such as memory"),
        (f"{RESULT}.adminAccess", "yes", f"{RESULT}.adminAccess", 'must be true or false, not "yes"'),
        (f"{CONFIG}.source", "FromNowhere", f"{CONFIG}.source", 'must be one of "FromClass", "FromClaim", not "FromNowhere"'),
        (f"{CONFIG}.opaque", ABSENT, f"{CONFIG}.opaque.driver", "is required"),
        (f"{CONFIG}.opaque.parameters", "text", f"{CONFIG}.opaque.parameters", 'must be an object, not "text"'),
        (f"{CONFIG}.opaque.driver", ABSENT, f"{CONFIG}.opaque.driver", "is required"),
        (f"{CONFIG}.requests", ["a b"], f"{CONFIG}.requests[0]", "'a b' is not a request name"),
        ("metadata.uid", ABSENT, "metadata.uid", "is required"),
    ],
)
def test_a_malformed_claim_is_refused_with_the_field_named(path: str, value: object, field: str, message: str) -> None:
    with pytest.raises(errors.ClaimError) as raised:
        claim_codec.decode(changed(path, value), samples.REF)
    assert raised.value.fault is errors.ClaimFault.MALFORMED
    assert raised.value.field == field
    assert message in str(raised.value)


@pytest.mark.parametrize("path", ["status", "status.allocation"])
def test_a_claim_without_allocation_is_distinguished_from_a_malformed_one(path: str) -> None:
    for value in (ABSENT, None):
        with pytest.raises(errors.ClaimError) as raised:
            claim_codec.decode(changed(path, value), samples.REF)
        assert raised.value.fault is errors.ClaimFault.NOT_ALLOCATED


def test_an_allocation_without_devices_is_a_claim_without_results() -> None:
    found = claim_codec.decode(changed("status.allocation.devices", {}), samples.REF)
    assert (found.results, found.configs) == ((), ())


def test_a_driver_of_another_vendor_in_upper_case_is_accepted() -> None:
    found = claim_codec.decode(changed(f"{RESULT}.driver", "GPU.Example.com"), samples.REF)
    assert found.results[1].driver == "GPU.Example.com"


def test_fields_of_later_versions_are_ignored() -> None:
    found = claim_codec.decode(changed(f"{RESULT}.skipNodeOperations", ["*"]), samples.REF)
    assert found == claim_codec.decode(samples.CLAIM, samples.REF)


def test_what_was_decoded_cannot_be_changed() -> None:
    found = claim_codec.decode(samples.allocated(), samples.REF)
    with pytest.raises(TypeError):
        found.configs[1].parameters["sharing"] = 1  # type: ignore[index] # the point of the test
    with pytest.raises(TypeError):
        found.results[1].consumed_capacity["bandwidth"] = 1  # type: ignore[index] # the point of the test


@pytest.mark.parametrize("noted, name", [("gpu", "gpu"), ("", ""), (7, ""), ("../etc", ""), (None, "")])
def test_the_pods_name_for_a_claim_made_for_it_is_read_where_it_is_one(noted: object, name: str) -> None:
    found = copy.deepcopy(samples.CLAIM)
    found["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": noted}
    assert claim_codec.decode(found, samples.REF).pod_claim_name == name
    assert claim_codec.decode(samples.CLAIM, samples.REF).pod_claim_name == ""
