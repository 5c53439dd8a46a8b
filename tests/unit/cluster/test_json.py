"""JSON as it comes in: read as Kubernetes' server reads it."""

import httpx
import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


@pytest.mark.parametrize(
    "text, value",
    [
        (r'"\ud800"', "\ufffd"),
        (r'"a\udc00b"', "a\ufffdb"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'{"\ud800": ["\\ud800", 1, null]}', {"\ufffd": [r"\ud800", 1, None]}),
        (r'"\u00fc"', "\u00fc"),
    ],
)
def test_half_a_surrogate_pair_is_replaced(text: str, value: Json) -> None:
    assert json_types.parse(text) == value
    assert json_types.parse(text.encode()) == value


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]", "", "{", "{'a': 1}", "[1,]", '"\n"', b"\xff"])
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json_types.parse(text)


def test_the_server_stores_only_what_it_can_send(raw: httpx.Client) -> None:
    odd = r'{"metadata": {"name": "odd", "annotations": {"a": "\ud800"}}, "spec": {}}'
    made = raw.post(CLASSES, content=odd, headers={"content-type": "application/json"})
    assert made.status_code == 201
    assert raw.get(f"{CLASSES}/odd").json()["metadata"]["annotations"] == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "value, kind",
    [("NaN", "application/merge-patch+json"), (".nan", "application/apply-patch+yaml"), ("!!set {a}", "application/apply-patch+yaml")],
)
def test_a_body_without_json_is_a_bad_request(raw: httpx.Client, value: str, kind: str) -> None:
    parameters = f'{{"driver": "a.dev", "parameters": {{"a": {value}}}}}'
    content = (
        f'{{"spec": {{"config": [{{"opaque": {parameters}}}]}}}}' if "merge" in kind else f"spec: {{config: [{{opaque: {parameters}}}]}}"
    )
    answer = raw.patch(f"{CLASSES}/odd", params={"fieldManager": "me"}, content=content, headers={"content-type": kind})
    assert answer.status_code == 400
    assert "body: not " in answer.json()["message"]
