"""Texts of the API are read from the package of models, without importing it."""

import subprocess
import sys

from drakit_cluster.api.http import api_texts
from drakit_cluster.objects import resources
from drakit_cluster.objects.features import FeatureGates


def test_a_model_has_texts_types_and_required_fields() -> None:
    model = api_texts.model("V1PodSpec")
    assert model.text == "PodSpec is a description of a pod."
    assert model.required == ("containers",)
    assert model.fields["containers"].type == "List[V1Container]"
    assert "hostNetwork" in model.fields


def test_every_kind_that_1_37_serves_has_a_model() -> None:
    gates = FeatureGates()
    served_kinds = [served for served in resources.SERVED if gates.serves(served)]
    lacking = [served.qualified for served in served_kinds if not api_texts.model(api_texts.name_of(served)).fields]
    assert lacking == []


def test_an_unknown_model_is_empty() -> None:
    assert api_texts.model("V1Nothing") == api_texts.Model()


def test_reading_texts_imports_no_model() -> None:
    code = "import sys; from drakit_cluster.api.http import api_texts; api_texts.model('V1Pod').fields['spec']; print('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
