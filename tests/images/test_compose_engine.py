"""`docker compose build` and `up` under Docker's engine, as docs/compose.md tells a user.

Collector and Grafana are left out: no image of them can be made without a registry.
"""

import asyncio
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.testkit.parts.engine import images
from stromboli.testkit.parts.engine.daemon import Engine
from stromboli.testkit.parts.tools import EngineTools, Tools
from tests.images.support import compose_services
from tests.images.support.compose_project import OTHERS, PROMETHEUS, SERVICES, ComposeProject
from tools import sbom
from tools.dist import images as release_images

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def engine(engine_tools: EngineTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with asyncio.Runner() as runner:
        opened = Engine(engine_tools, tmp_path_factory.mktemp("engine"))
        runner.run(opened.start())
        try:
            yield opened
        finally:
            runner.run(opened.stop())


@pytest.fixture(scope="module")
def project(
    engine: Engine, real_tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ComposeProject]:
    """Built and started; a gang has run through it."""
    compose_project = ComposeProject(engine, real_tools, tmp_path_factory.mktemp("compose"))
    compose_project.make_images(real_tools)
    compose_project.copy_clone()
    try:
        compose_project.compose("build")
        compose_project.up()
        compose_project.run_example("gang", "gang")
        yield compose_project
    finally:
        compose_project.compose("down", "--volumes", "--timeout=1")


def test_every_container_is_healthy_or_has_ended_well(project: ComposeProject) -> None:
    """From a clone that only its owner may read."""
    states = {name: each["State"] for name, each in project.containers().items()}
    assert {name: states[name]["Health"]["Status"] for name in SERVICES} == dict.fromkeys(
        SERVICES, "healthy"
    )
    assert {states[name]["ExitCode"] for name in ("files", "setup")} == {0}


@pytest.mark.parametrize("name", compose_services.OURS)
def test_a_service_runs_without_privileges(name: str, project: ComposeProject) -> None:
    """As an unprivileged user without capabilities, who cannot write to the image."""
    status = project.compose("exec", "-T", name, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["65532"] * 4
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert project.containers()[name]["HostConfig"]["ReadonlyRootfs"] is True


def test_programs_of_this_machine_use_the_published_ports(project: ComposeProject) -> None:
    """REST, Kubernetes, Kafka and Prometheus, as the table in docs/compose.md has them."""
    assert "gang" in project.strom("job", "list")
    assert "Completed" in project.kubectl("get", "vcjob", "gang")
    assert "gang" in project.run("bash", "-c", READ_EVENTS, sys.executable)
    query = f"{PROMETHEUS}/api/v1/targets"
    read = f"import urllib.request as u; print(u.urlopen('{query}').read().decode())"
    answer = project.run(sys.executable, "-c", read)
    targets = json.loads(answer)["data"]["activeTargets"]
    up = {each["labels"].get("service") for each in targets if each["health"] == "up"}
    assert up >= set(compose_services.OURS)


READ_EVENTS = """
exec 3< <(timeout 60 "$0" -u ../examples/consumer.py)
grep -m1 'gang.*Completed' <&3
kill $!
"""
"""The consumer of the examples follows the topic until it is stopped."""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_be_restarted(name: str, project: ComposeProject) -> None:
    """Nothing is lost: its container ends by itself, and a further job finishes afterwards."""
    project.compose("stop", name)
    assert project.containers()[name]["State"]["ExitCode"] in ENDED
    project.compose("restart", name)
    project.up()
    job = f"after-{name}"
    project.strom("job", "run", job, "--replicas", "2", "--image", "busybox", "--", "true")
    project.strom("job", "wait", job)


ENDED = {0, 143}
"""Status of a program that ends on SIGTERM; Java's is 143. Killed: 137."""


def test_all_services_end_by_themselves_and_up_finds_the_state_after_down(
    project: ComposeProject,
) -> None:
    """Services and collector stop at the same time, then what they depend on."""
    project.compose("stop")
    statuses = {name: each["State"]["ExitCode"] for name, each in project.containers().items()}
    assert set(statuses.values()) <= ENDED, statuses
    project.compose("down")
    assert project.containers() == {}
    project.up()
    assert "Completed" in project.kubectl("get", "vcjob", "gang")
    assert "gang" in project.strom("job", "list")
    project.run_example("priority", "urgent")
    assert set(OTHERS) <= set(project.containers())


def test_the_images_of_a_release_are_oci_archives(
    project: ComposeProject, engine: Engine, tmp_path: Path
) -> None:
    """`make dist` where an engine runs; the layers of Compose's build are used again."""
    given = {**engine.environment(), "CA_CERTIFICATES": images.certificates()}
    docker = release_images.engine(given)
    assert docker is not None
    archives = release_images.build(docker, project.clone, "0.1.0", tmp_path, given)
    assert [archive.name for archive in archives] == [
        f"stromboli-{service}-0.1.0.oci.tar" for service in sbom.SERVICES
    ]
    for archive in archives:
        with tarfile.open(archive) as opened:
            layout, index = (
                json.loads(opened.extractfile(name).read())  # type: ignore[union-attr]  # a file
                for name in ("oci-layout", "index.json")
            )
        assert layout == {"imageLayoutVersion": "1.0.0"}
        assert len(index["manifests"]) == 1
