"""The field table of pod templates: what it finds, and that it covers the fields we read."""

from typing import Any

import msgspec
import pytest

from stromboli.shared.api import core
from stromboli.shared.jobspec.crds import pod_schema


@pytest.mark.parametrize(
    ("spec", "path", "reason"),
    [
        ({"containers": {}}, "spec.containers", "is an object"),
        ({"containers": [{"command": "true"}]}, "spec.containers[0].command", "is a string"),
        (
            {"containers": [{"env": [{"name": "A", "value": 1}]}]},
            "spec.containers[0].env[0].value",
            "is an integer",
        ),
        ({"hostNetwork": "true"}, "spec.hostNetwork", "is a string"),
        ({"nodeSelector": {"a.b/c": True}}, 'spec.nodeSelector["a.b/c"]', "is a boolean"),
        ({"priority": True}, "spec.priority", "is a boolean"),
    ],
)
def test_a_value_of_the_wrong_json_type_is_an_error(
    spec: dict[str, Any], path: str, reason: str
) -> None:
    (violation,) = pod_schema.type_errors(spec, pod_schema.POD_SPEC, "spec")
    assert violation.path == path
    assert reason in violation.reason


def test_quantities_ports_and_nulls_are_accepted_like_by_an_api_server() -> None:
    probe = {"httpGet": {"port": "web"}, "tcpSocket": {"port": 80}}
    container = {
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "command": None,
        "livenessProbe": probe,
    }
    volumes = [{"name": "a", "emptyDir": {"sizeLimit": 1024}}]
    spec = {"containers": [container], "volumes": volumes}
    assert not list(pod_schema.type_errors(spec, pod_schema.POD_SPEC, "spec"))


def test_every_field_of_pods_that_services_read_is_in_the_table() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(core.PodSpec)}
    spec = dict.fromkeys(fields)
    document = {"spec": {"tasks": [{"template": {"spec": spec}}]}}
    assert not list(pod_schema.unknown_fields(document))
