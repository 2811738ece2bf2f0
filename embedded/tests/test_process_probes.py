"""Probes of a process node: their target, their result, and its effect."""

import sys
from pathlib import Path

import pytest

from embedded.tests.process_pods import Document, ProcessCluster, phase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

SERVES = """
import http.server, os
at = (os.environ["ADDRESS"], 8080)
http.server.HTTPServer(at, http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def serving(tmp_path: Path, **probes: Document) -> Document:
    """A container that serves a folder at its pod's address on a named port."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "here").write_text("yes")
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return {
        "env": [{"name": "ADDRESS", "valueFrom": address}],
        "ports": [{"name": "web", "containerPort": 8080}],
        "workingDir": str(tmp_path / "served"),
        **probes,
    }


@pytest.mark.parametrize(
    "how", [{"httpGet": {"path": "/here", "port": "web"}}, {"tcpSocket": {"port": 8080}}]
)
async def test_a_pod_is_ready_once_it_answers_at_its_address(
    process_cluster: ProcessCluster, tmp_path: Path, how: Document
) -> None:
    """By HTTP or TCP."""
    probe = {**how, "periodSeconds": 1}
    container = serving(tmp_path, readinessProbe=probe)
    await process_cluster.run("p", sys.executable, "-S", "-c", SERVES, container=container)
    pod = await process_cluster.until("p", lambda it: phase(it) == "Running" and ready(it))
    assert pod["status"]["containerStatuses"][0]["ready"]


def ready(pod: Document) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


async def test_an_answer_that_is_an_error_is_no_good_one(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    """Asked only once the server answers at all, however long its start takes."""
    begins = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 90}
    asks = {"httpGet": {"path": "/gone", "port": "web"}, "periodSeconds": 1, "timeoutSeconds": 60}
    container = serving(tmp_path, startupProbe=begins, livenessProbe=asks)
    spec = {"restartPolicy": "Always", "container": container}
    await process_cluster.run("p", sys.executable, "-S", "-c", SERVES, **spec)
    assert "404" in end_before_restart(await process_cluster.until("p", end_before_restart))


def end_before_restart(pod: Document) -> str:
    """The message of the last end of a container that was restarted; empty for others."""
    (status,) = pod["status"].get("containerStatuses") or [{"restartCount": 0}]
    return status["lastState"]["terminated"]["message"] if status["restartCount"] else ""


async def test_an_unsupported_probe_is_reported_in_an_event(
    process_cluster: ProcessCluster,
) -> None:
    probes = {kind: {"grpc": {"port": 1}} for kind in ("readinessProbe", "livenessProbe")}
    await process_cluster.run("p", "true", container=probes)
    await process_cluster.over("p")
    event = await process_cluster.first_event()
    for kind in probes:
        assert f"spec.containers[0].{kind}.grpc" in event["message"]


async def test_a_container_that_is_not_alive_is_restarted(process_cluster: ProcessCluster) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await process_cluster.run(
        "p", "sleep", "987", container={"livenessProbe": probe}, restartPolicy="Always"
    )
    pod = await process_cluster.until("p", end_before_restart)
    assert phase(pod) == "Running"
    assert end_before_restart(pod).startswith("its liveness probe failed")
