"""Why a pod ended: the causes that policies and the history share."""

from typing import Any

import msgspec
import pytest

from stromboli.controller.core import termination_causes
from stromboli.shared import decoding, keys
from stromboli.shared.api import core
from stromboli.testkit.builders import make_pod


def ended(code: int, reason: str = "") -> dict[str, Any]:
    return {"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason}}}


RUNS: dict[str, Any] = {"name": "main", "state": {}}


def condition(reason: str, status: str = "True", type_: str = "DisruptionTarget") -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, "reason": reason}]}


def containers(*statuses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containerStatuses": list(statuses), **more}


def pod(status: dict[str, Any], **annotations: str) -> core.Pod:
    pod_status = decoding.convert({"phase": "Failed", **status}, core.PodStatus)
    return msgspec.structs.replace(make_pod(annotations=annotations), status=pod_status)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (condition("PreemptionByScheduler"), "Preempted"),
        (condition("DeletionByTaintManager"), "NodeLost"),
        (condition("DeletionByPodGC"), "NodeLost"),
        (condition("PreemptionByScheduler", status="False"), ""),
        (condition("DeletionByPodGC", type_="Ready"), ""),
        (condition("EvictionByEvictionAPI"), ""),
        ({"reason": "DeadlineExceeded"}, "DeadlineExceeded"),
        ({"reason": "NodeLost"}, "NodeLost"),
        ({"reason": "NodeShutdown"}, "NodeLost"),
        ({"reason": "Terminated"}, "NodeLost"),
        ({"reason": "Preempting"}, "Preempted"),
        ({"reason": "Preempted"}, "Preempted"),
        ({"reason": "Evicted"}, ""),
        ({"phase": "Unknown"}, "NodeLost"),
        (containers(RUNS, ended(137, "OOMKilled")), "OOMKilled"),
        ({"initContainerStatuses": [ended(137, "OOMKilled")]}, "OOMKilled"),
        (containers(ended(137, "Error")), ""),
    ],
)
def test_the_cause_is_derived_from_the_pods_status(status: dict[str, Any], cause: str) -> None:
    assert termination_causes.of(pod(status)) == cause


def test_a_pod_with_an_eviction_notice_was_preempted_however_it_ended() -> None:
    evicted = pod(containers(ended(137, "OOMKilled")), **{keys.EVICTED_AT: "noon"})
    assert termination_causes.of(evicted) == "Preempted"


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (containers(ended(137, "OOMKilled"), reason="Evicted"), "OOMKilled"),
        ({"phase": "Running", "reason": "NodeShutdown"}, "NodeLost"),
        ({"phase": "Running", "reason": "Evicted"}, ""),
        ({"phase": "Succeeded", **containers(ended(0, "Completed"))}, ""),
        (containers(ended(1, "Error"), reason="Evicted"), "Evicted"),
        (containers(ended(0, "Completed"), ended(2), ended(1, "Error")), "Error"),
        (containers(ended(2)), ""),
    ],
)
def test_the_history_reports_the_cause_else_how_a_pod_failed(
    status: dict[str, Any], sent: str
) -> None:
    assert termination_causes.history_reason(pod(status)) == sent


@pytest.mark.parametrize(
    ("status", "code", "of_first"),
    [
        (containers(ended(0), ended(3)), 3, 0),
        (containers(ended(4), ended(3)), 4, 4),
        (containers(RUNS, ended(3)), 3, None),
        (containers(ended(0)), 0, 0),
        (containers(RUNS), None, None),
        ({"initContainerStatuses": [ended(5)]}, 5, None),
        ({}, None, None),
    ],
)
def test_a_pods_exit_code_is_that_of_a_container_that_failed_and_policies_mean_the_first(
    status: dict[str, Any], code: int | None, of_first: int | None
) -> None:
    ended_so = pod(status)
    assert (
        termination_causes.exit_code(ended_so),
        termination_causes.first_exit_code(ended_so),
    ) == (code, of_first)
