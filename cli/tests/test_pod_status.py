"""Rules for the status of a pod in ``pod list``: kubectl's terms."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stromboli.cli.render import pod_status

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ENDED = (NOW - timedelta(minutes=5)).isoformat()
RUNNING = {"running": {"startedAt": NOW.isoformat()}}


def pod(
    *containers: dict[str, Any],
    initial: tuple[dict[str, Any], ...] = (),
    going: bool = False,
    sidecar: bool = False,
    **status: Any,
) -> pod_status.Pod:
    policy = {"restartPolicy": "Always"} if sidecar else {}
    document = {
        "metadata": {"name": "p", **({"deletionTimestamp": NOW.isoformat()} if going else {})},
        "spec": {
            "containers": [{"name": f"c{index}"} for index in range(max(len(containers), 1))],
            "initContainers": [{"name": f"i{index}", **policy} for index in range(len(initial))],
        },
        "status": {
            "containerStatuses": [
                {"name": f"c{index}", **one} for index, one in enumerate(containers)
            ],
            "initContainerStatuses": [
                {"name": f"i{index}", **one} for index, one in enumerate(initial)
            ],
            **status,
        },
    }
    return pod_status.decode(msgspec.json.encode(document))


def waiting(reason: str) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason}}}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": code, **more}}}


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (pod(phase="Pending"), "Pending"),
        (pod(), "Pending"),
        (
            pod(
                phase="Pending",
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                ],
            ),
            "SchedulingGated",
        ),
        (pod(waiting("ContainerCreating"), phase="Pending"), "ContainerCreating"),
        (pod(waiting("CrashLoopBackOff"), {"state": RUNNING}, phase="Running"), "CrashLoopBackOff"),
        (pod(ended(1, reason="OOMKilled"), phase="Failed"), "OOMKilled"),
        (pod(ended(3), phase="Failed"), "ExitCode:3"),
        (pod(ended(0, signal=9), phase="Failed"), "Signal:9"),
        (pod(phase="Failed", reason="Evicted"), "Evicted"),
        (pod({"state": RUNNING, "ready": True}, phase="Running"), "Running"),
        (pod({"state": RUNNING}, going=True, phase="Running"), "Terminating"),
        (pod(ended(0, reason="Completed"), going=True, phase="Succeeded"), "Completed"),
        (pod(phase="Running", reason="NodeLost", going=True), "Unknown"),
        (pod(initial=(ended(0), {"state": RUNNING}), phase="Pending"), "Init:1/2"),
        (pod(initial=(ended(2, reason="Error"),), phase="Pending"), "Init:Error"),
        (pod(initial=(ended(2),), phase="Pending"), "Init:ExitCode:2"),
        (pod(initial=(waiting("ImagePullBackOff"),), phase="Pending"), "Init:ImagePullBackOff"),
        (pod(initial=(waiting("PodInitializing"),), phase="Pending"), "Init:0/1"),
        (
            pod(
                ended(0, reason="Completed"),
                {"state": RUNNING, "ready": True},
                phase="Running",
                conditions=[{"type": "Ready", "status": "True"}],
            ),
            "Running",
        ),
        (
            pod(ended(0, reason="Completed"), {"state": RUNNING, "ready": True}, phase="Running"),
            "NotReady",
        ),
    ],
)
def test_the_status_is_the_one_of_kubectl(seen: pod_status.Pod, word: str) -> None:
    assert pod_status.status(seen) == word


def test_ready_counts_running_containers_and_sidecars() -> None:
    up = {"state": RUNNING, "ready": True, "started": True}
    assert pod_status.ready(pod(up, {"state": RUNNING})) == "1/2"
    assert pod_status.ready(pod(up, initial=(up,), sidecar=True)) == "2/2"
    assert pod_status.ready(pod(up, initial=(ended(0),))) == "1/1"
    assert pod_status.status(pod(up, initial=(up,), sidecar=True, phase="Running")) == "Running"


def test_restarts_show_the_time_of_the_last_one() -> None:
    again = {
        "state": RUNNING,
        "restartCount": 2,
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": ENDED}},
    }
    assert pod_status.restarts(pod({"state": RUNNING}), NOW) == "0"
    assert pod_status.restarts(pod(again, {"state": RUNNING, "restartCount": 1}), NOW) == (
        "3 (5m ago)"
    )
    beginning = {"state": RUNNING, "restartCount": 4}
    assert pod_status.restarts(pod(again, initial=(beginning,)), NOW) == "4"
