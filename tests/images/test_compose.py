"""Checks of compose.yaml without starting anything."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import promql_parser
import pytest
import yaml
from opentelemetry.sdk import environment_variables as telemetry_variables

from stromboli.admission.settings import Settings as AdmissionSettings
from stromboli.shared.bus.kafka import KafkaSettings
from tests.images.support import compose_services, image_build
from tools.compose import dashboards

FOUND = compose_services.parsed()
SERVICES: Mapping[str, Any] = FOUND["services"]
GRAFANA = {
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
    "GF_ANALYTICS_CHECK_FOR_UPDATES",
    "GF_ANALYTICS_REPORTING_ENABLED",
    "GF_AUTH_ANONYMOUS_ENABLED",
    "GF_AUTH_ANONYMOUS_ORG_ROLE",
    "GF_AUTH_BASIC_ENABLED",
    "GF_AUTH_DISABLE_LOGIN_FORM",
    "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
    "GF_PATHS_PROVISIONING",
}
"""From Grafana's documentation of its configuration; it does not complain of others."""
OF_OTHERS = {
    "apiserver_request_total",  # Kubernetes' API server
    "traces_span_metrics_duration_milliseconds",  # the collector's spanmetrics
    "process_resident_memory_bytes",  # the client library's
    "process_cpu_seconds_total",
}


def version(path: str, pattern: str) -> str:
    """What a file of tools/ pins."""
    match = re.search(pattern, (image_build.ROOT / "tools" / path).read_text())
    assert match
    return match[1]


def known(struct: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    """Names of the variables that a service reads."""
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from known(field.type, f"STROM_{field.name.upper()}_")
        else:
            yield prefix + field.name.upper()


def unknown(service: str, environment: Mapping[str, str]) -> set[str]:
    """Names that the program of a service does not read. A broker checks those of Kafka."""
    match service:
        case "grafana":
            return set(environment) - GRAFANA
        case "setup":
            return set(environment) - {"HOME"}
        case "kafka":
            return set()
    standard = {name for name in vars(telemetry_variables).values() if isinstance(name, str)}
    return (
        set(environment)
        - set(known(compose_services.SETTINGS[service], f"STROM_{service.upper()}_"))
        - standard
    )


WITH_ENVIRONMENT = sorted(
    name for name, each in SERVICES.items() if each.get("environment") and name != "kafka"
)


@pytest.mark.parametrize("service", WITH_ENVIRONMENT)
def test_every_variable_is_one_that_its_program_reads(service: str) -> None:
    """And one that is written wrongly is noticed."""
    environment = SERVICES[service]["environment"]
    assert unknown(service, environment) == set()
    for name in environment:
        wrong = name[:-1] + "Q"
        assert unknown(service, {**environment, wrong: "1"}) == {wrong}


def test_nothing_listens_beyond_this_machine() -> None:
    published = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert published
    assert all(str(port).startswith("127.0.0.1:") for port in published)


def test_rest_without_accounts_is_documented_at_its_published_port() -> None:
    """It takes two settings and a port on loopback together, so it cannot happen by mistake."""
    admission = SERVICES["admission"]
    assert admission["environment"]["STROM_ADMISSION_REST_OPEN_TO_ALL"] == "true"
    assert admission["ports"] == ["127.0.0.1:8480:8480"]
    assert AdmissionSettings(kafka=KafkaSettings()).rest_open_to_all is False


def test_the_console_without_accounts_is_at_a_port_of_loopback_alone() -> None:
    """As REST, which it calls by a name that REST accepts."""
    console, admission = SERVICES["console"], SERVICES["admission"]["environment"]
    assert console["environment"]["STROM_CONSOLE_OPEN_TO_ALL"] == "true"
    assert console["ports"] == ["127.0.0.1:8487:8487"]
    name = urlsplit(console["environment"]["STROM_CONSOLE_SERVER"]).hostname
    assert name == admission["STROM_ADMISSION_REST_HOSTS"]


def test_every_image_can_be_given_by_digest() -> None:
    """Without a variable it is the version that the tests run."""
    text = compose_services.FILE.read_text()
    own = {f"stromboli-{service}" for service in compose_services.OURS}
    images = set(re.findall(r"^    image: (\S+)$", text, re.MULTILINE)) - own
    assert len(images) == len({each["image"] for each in SERVICES.values()} - own)
    assert all(re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[^}@]+:[^}@]+\}", image) for image in images)
    assert all(
        SERVICES[service]["build"]["args"]["PYTHON_IMAGE"] == "python:3.13-slim"
        for service in compose_services.OURS
    )


def test_versions_are_those_that_the_tests_run() -> None:
    kwok = version("go/kwok/go.mod", r"sigs\.k8s\.io/kwok (v\S+)")
    kubernetes = version("go/go.mod", r"k8s\.io/kubernetes (v\S+)")
    kafka = version("kafka/pom.xml", r"kafka_2\.13</artifactId>\s*<version>([^<]+)")
    # As a Go module 3.11.3 is called v0.311.3.
    module = version("go/prometheus/go.mod", r"prometheus/prometheus v0\.(\d+\.\d+)")
    prometheus = f"{module[0]}.{int(module[1:3])}{module[3:]}"
    images = {name: each["image"] for name, each in SERVICES.items()}
    assert images["control-plane"].startswith(f"registry.k8s.io/kwok/cluster:{kwok}-k8s.v")
    assert images["setup"] == f"registry.k8s.io/kubectl:{kubernetes}"
    assert images["kafka"] == f"apache/kafka:{kafka}"
    assert images["prometheus"] == f"prom/prometheus:v{prometheus}"
    assert all(
        re.search(r":v?\d+\.\d+\.\d+", images[name])
        for name in set(images) - set(compose_services.OURS)
    )


@pytest.mark.parametrize("service", compose_services.OURS)
def test_services_run_with_the_commands_of_their_images(service: str) -> None:
    each = SERVICES[service]
    assert (each["read_only"], each["tmpfs"], each["cap_drop"]) == (True, ["/tmp"], ["ALL"])
    assert each["build"]["dockerfile"] == f"services/{service}/Dockerfile"
    assert (compose_services.FOLDER / each["build"]["context"]).resolve() == image_build.ROOT
    steps = {step.instruction: step.value for step in image_build.dockerfile(service)}
    port = steps["EXPOSE"].split()[0]
    assert f"http://127.0.0.1:{port}/readyz" in each["healthcheck"]["test"][-1]
    scraped = yaml.safe_load((compose_services.FOLDER / "prometheus/prometheus.yaml").read_text())
    ours = next(job for job in scraped["scrape_configs"] if job["job_name"] == "stromboli")
    assert {"targets": [f"{service}:{port}"], "labels": {"service": service}} in ours[
        "static_configs"
    ]


def test_traces_lead_from_the_services_through_the_collector_to_prometheus() -> None:
    """The collector receives them at the configured address with configured components, and
    Prometheus scrapes its metrics.
    """
    folder = compose_services.FOLDER
    collector = yaml.safe_load((folder / "collector/collector.yaml").read_text())
    parts = {kind: set(collector[kind]) for kind in ("receivers", "processors", "exporters")}
    joints = set(collector["connectors"])
    for pipeline in collector["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= parts["receivers"] | joints
        assert set(pipeline["exporters"]) <= parts["exporters"] | joints
        assert set(pipeline.get("processors", ())) <= parts["processors"]
    taken = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    sent = {
        SERVICES[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
        for name in compose_services.OURS
    }
    assert sent == {f"http://collector:{taken}"}
    reported = collector["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    scraped = yaml.safe_load((folder / "prometheus/prometheus.yaml").read_text())
    targets = {each["job_name"]: each["static_configs"] for each in scraped["scrape_configs"]}
    assert targets["traces"] == [{"targets": [f"collector:{reported}"]}]


def test_every_service_restarts_and_has_a_health_check() -> None:
    """Except the collector, whose image has no client for a check, and containers that exit."""
    assert all("restart" in each for each in SERVICES.values())
    requested = {name for name, each in SERVICES.items() if "healthcheck" in each}
    assert set(SERVICES) - requested == {"collector", "setup", "files"}


def test_every_file_that_is_mounted_is_there() -> None:
    volumes = set(FOUND["volumes"])
    mounts = [mount for each in SERVICES.values() for mount in each.get("volumes", [])]
    for source in (mount.split(":")[0] for mount in mounts):
        assert source in volumes or (compose_services.FOLDER / source).exists()


def test_only_the_service_that_copies_files_mounts_a_folder_of_the_clone() -> None:
    """Others are not root, and a clone made with a umask of 077 is readable by its owner alone."""
    for name, each in SERVICES.items():
        sources = {mount.split(":")[0] for mount in each.get("volumes", [])}
        mounts_clone = not sources <= set(FOUND["volumes"])
        assert mounts_clone is (name == "files")
        if "files" in sources and name != "files":
            gate = "setup" if name in compose_services.OURS else "files"
            last = "control-plane" if name == "setup" else gate
            assert last in each["depends_on"]


def metrics_of(promql: str) -> set[str]:
    """Metric names of an expression. Raises ValueError for invalid PromQL."""
    names: set[str] = set()

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            names.add(node.name)
        return True

    promql_parser.walk(promql_parser.parse(promql), visit)
    return names


def documented() -> set[str]:
    """Names on the page of metrics; those that share a beginning are written once."""
    names = set()
    page = (image_build.ROOT / "docs" / "metrics.md").read_text()
    for line in page.splitlines():
        if line.startswith("| `"):
            first, *endings = re.findall(r"`([^`]+)`", line.split("|")[1])
            names |= {first, *(first.removesuffix("_milli_cpu") + end for end in endings)}
    return names


@pytest.mark.parametrize(("title", "promql"), list(dashboards.queries()))
def test_a_panel_queries_existing_metrics(title: str, promql: str) -> None:
    """Metrics that the page promises, which other tests hold the services to."""
    requested = {re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics_of(promql)}
    assert requested
    assert requested <= documented() | OF_OTHERS


def alerts() -> list[tuple[str, str]]:
    """Name and expression of each rule that the file of Prometheus loads."""
    folder = compose_services.FOLDER / "prometheus"
    (name,) = yaml.safe_load((folder / "prometheus.yaml").read_text())["rule_files"]
    groups = yaml.safe_load((folder / name).read_text())["groups"]
    return [(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


@pytest.mark.parametrize(("alert", "promql"), alerts())
def test_an_alert_queries_existing_metrics(alert: str, promql: str) -> None:
    queried = metrics_of(promql)
    assert queried
    assert queried <= documented()


@pytest.mark.parametrize("board", dashboards.ALL, ids=lambda board: board.name)
def test_a_dashboard_has_the_schema_of_grafana(board: dashboards.Dashboard) -> None:
    """Each panel has a unique id and position and queries the existing data source."""
    document = msgspec.json.decode(board.text())
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    squares = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(squares)) == len(squares)
    assert all(0 <= x < dashboards.WIDTH for x, _ in squares)
    folder = compose_services.FOLDER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    assert {"type": source["type"], "uid": source["uid"]} == dashboards.SOURCE
    (provider,) = yaml.safe_load((folder / "dashboards/dashboards.yaml").read_text())["providers"]
    inside = Path(provider["options"]["path"])
    below = inside.relative_to("/etc/stromboli")
    assert (compose_services.FOLDER / below / f"{board.name}.json").is_file()
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == inside
