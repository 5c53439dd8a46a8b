"""Fields of JSON know where they are, and say so only when an error asks."""

import pytest

from drakit.core import errors, names
from drakit.kube import fields


def test_a_path_leads_through_objects_lists_and_keys() -> None:
    root = fields.Field({"status": {"results": [{"amounts": {"memory": 1}}]}})
    (result,) = root["status"]["results"].each()
    ((_, amount),) = result["amounts"].items()
    assert [root.path, result.path, amount.path] == ["", "status.results[0]", "status.results[0].amounts[memory]"]
    assert result["gone"]["deeper"].path == "status.results[0].gone.deeper"


def test_a_path_starts_where_the_caller_says() -> None:
    assert fields.Field({"a": 1}, "claims.yaml[2]")["a"].path == "claims.yaml[2].a"


@pytest.mark.parametrize("inside", ["text", 3, [1]])
def test_a_field_of_what_is_no_object_is_an_error_that_names_it(inside: str | int | list[int]) -> None:
    with pytest.raises(errors.ConfigError, match=r"must be an object") as raised:
        fields.Field({"spec": inside})["spec"]["name"]
    assert raised.value.field == "spec"


@pytest.mark.parametrize("text", ["a", "a.b", "a-1.b-2.c", "a" * 253])
def test_subdomains_are_labels_joined_by_dots(text: str) -> None:
    assert names.is_subdomain(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "-a.b", "a.b-", "A.b", "a_b", "a\n", "a" * 254, "a/b"])
def test_what_is_no_label_between_dots_makes_no_subdomain(text: str) -> None:
    assert not names.is_subdomain(text)
