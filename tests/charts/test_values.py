"""Checks of the charts without Helm: they agree with the code and with each other."""

import json

import msgspec
import pytest
import yaml

from stromboli.scheduler.core.config import config_reader
from stromboli.shared.api import kinds, scheduling_view
from tests.charts.support import helm, rbac_rights
from tools.charts import schemas

HEALTH_PORTS = {
    service: {field.name: field.default for field in msgspec.structs.fields(struct)}["health_port"]
    for service, struct in schemas.SETTINGS.items()
}


def values(chart: str) -> helm.Object:
    read: helm.Object = yaml.safe_load((helm.CHARTS[chart] / "values.yaml").read_text())
    return read


def test_the_charts_default_configuration_is_the_schedulers_own() -> None:
    reported = yaml.safe_load(values("scheduler")["configuration"])
    assert reported == config_reader.DEFAULT


@pytest.mark.parametrize("service", helm.SERVICES)
def test_probes_use_the_ports_of_the_service(service: str) -> None:
    texts = (helm.CHARTS[service] / "templates").glob("*.yaml")
    assert any(f'"health" {HEALTH_PORTS[service]}' in path.read_text() for path in texts)


@pytest.mark.parametrize("chart", helm.CHARTS)
def test_every_default_is_a_valid_value(chart: str) -> None:
    """Schemas know each value that a chart's own file has, and no other."""
    schema = json.loads((helm.CHARTS[chart] / "values.schema.json").read_text())
    assert set(values(chart)) <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_settings_that_a_chart_computes_are_no_values() -> None:
    for service in helm.SERVICES:
        schema = json.loads((helm.CHARTS[service] / "values.schema.json").read_text())
        assert not schemas.OWN & set(schema["properties"]["settings"]["properties"])


def test_all_charts_are_of_one_version() -> None:
    charts = [
        yaml.safe_load((path / "Chart.yaml").read_text())
        for name, path in helm.CHARTS.items()
        if name != "kafka"
    ]
    assert len({(chart["version"], chart["appVersion"]) for chart in charts}) == 1
    umbrella = yaml.safe_load((helm.CHARTS["stromboli"] / "Chart.yaml").read_text())
    assert {each["version"] for each in umbrella["dependencies"]} == {umbrella["version"]}


def test_the_trial_broker_is_the_one_that_tests_run_with() -> None:
    chart = yaml.safe_load((helm.CHARTS["kafka"] / "Chart.yaml").read_text())
    assert (
        f"<version>{chart['appVersion']}</version>"
        in (helm.ROOT / "tools/kafka/pom.xml").read_text()
    )


def test_rest_is_off_by_default_and_all_its_kinds_may_be_submitted() -> None:
    """Admission may read, create and change all kinds that users may submit."""
    assert values("admission")["rest"]["enabled"] is False
    documented = rbac_rights.documented()
    for kind in kinds.SUBMITTED:
        for verb in ("get", "create", "patch"):
            assert rbac_rights.Right(kind.group, kind.plural, verb) in documented
    for kind in scheduling_view.SCHEDULING_KINDS:
        assert rbac_rights.Right(kind.group, kind.plural, "list") in documented
