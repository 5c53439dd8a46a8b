"""Texts of the API are read from the package of models, without importing it."""

import subprocess
import sys

from drakit_cluster.objects import resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import api_models, table, unknown_fields, workloads


def test_a_model_has_texts_types_and_required_fields() -> None:
    model = api_models.model("V1PodSpec")
    assert model.text == "PodSpec is a description of a pod."
    assert model.required == ("containers",)
    assert model.fields["containers"].type == "List[V1Container]"
    assert "hostNetwork" in model.fields


def test_every_kind_that_1_37_serves_has_a_model() -> None:
    gates = FeatureGates()
    served_kinds = [served for served in resources.SERVED if gates.serves(served)]
    lacking = [served.qualified for served in served_kinds if not api_models.model(api_models.name_of(served)).fields]
    assert lacking == []


def test_an_unknown_model_is_empty() -> None:
    assert api_models.model("V1Nothing") == api_models.Model()


def test_reading_texts_imports_no_model() -> None:
    code = "import sys; from drakit_cluster.objects.schema import api_models; api_models.model('V1Pod').fields['spec']"
    code += "; print('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_typo_in_a_pod_is_unknown_at_any_depth() -> None:
    container: Json = {
        "name": "c",
        "imag": "x",
        "env": [{"name": "a", "valu": "b"}],
        "livenessProbe": {"httpGet": {"prot": 80, "port": 80}},
    }
    spec: Json = {
        "containers": [container],
        "resourceclaims": [],
        "nodeSelector": {"any": "label"},
        "volumes": [{"name": "v", "csi": {"driver": "d"}}],
    }
    found = [*unknown_fields.find(workloads.POD.fields["spec"], "V1PodSpec", spec, "spec")]
    assert found == [
        "spec.containers[0].imag",
        "spec.containers[0].env[0].valu",
        "spec.containers[0].livenessProbe.httpGet.prot",
        "spec.resourceclaims",
    ]


def test_free_json_and_what_only_a_shape_knows_is_known() -> None:
    slice_spec: Json = {"mixins": {"device": []}, "devices": []}
    body: Json = {"spec": slice_spec, "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
    assert [*unknown_fields.find(table.shape_of(resources.SLICE), "V1ResourceSlice", body, "")] == []
    claim: Json = {"spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"anything": {"goes": 1}}}}]}}}
    assert [*unknown_fields.find(table.shape_of(resources.CLAIM), "ResourceV1ResourceClaim", claim, "")] == []
