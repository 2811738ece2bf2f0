"""A bound pod that no kubelet takes, and a node whose kubelet is gone, are reasons to show."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stromboli.cli.render import pod_status, usage
from stromboli.cli.render.nodes import node_health
from stromboli.shared.api import coordination, kinds, meta
from stromboli.testkit import builders

NOON = builders.NOON
NOW = NOON + timedelta(seconds=60)


def pod(
    node: str = "n1", *, bound_s: float = 0, started: bool = False, phase: str = "Pending"
) -> Any:
    """A pod that was bound so many seconds after noon."""
    bound = (NOON + timedelta(seconds=bound_s)).isoformat()
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}],
    }
    if started:
        status["startTime"] = bound
    document = {"metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": status}
    return pod_status.decode(json.dumps(document).encode())


def lease(renewed_s: float) -> coordination.Lease:
    """A lease that was renewed so many seconds after noon."""
    renewed = (NOON + timedelta(seconds=renewed_s)).isoformat()
    return coordination.Lease(
        metadata=meta.ObjectMeta(name="n1"), spec=coordination.LeaseSpec(renew_time=renewed)
    )


def text(pods: list[Any], leases: dict[str, coordination.Lease | None]) -> list[str]:
    return node_health.lines(node_health.stuck_pods(pods, leases, NOW), NOW)


def test_pods_that_no_kubelet_takes_are_shown_with_the_age_of_the_lease() -> None:
    pods = [pod(bound_s=17), pod(bound_s=20), pod(started=True)]
    assert text(pods, {"n1": lease(12)}) == [
        "2 pods bound to node n1 since 43 s, not acknowledged by its kubelet; "
        "node's lease renewed 48 s ago"
    ]
    assert text(pods[:1], {"n1": None}) == [
        "1 pod bound to node n1 since 43 s, not acknowledged by its kubelet; the node has no lease"
    ]


def test_a_pod_that_was_just_bound_is_not_late() -> None:
    assert text([pod(bound_s=57)], {"n1": lease(55)}) == []


def test_running_pods_of_a_node_without_a_live_lease_are_shown() -> None:
    running = pod(started=True, phase="Running")
    assert text([running], {"n1": lease(-240)}) == [
        "1 pod on node n1, whose kubelet does not respond; node's lease renewed 300 s ago"
    ]
    assert text([running], {"n1": lease(50)}) == []
    ended = pod(started=True, phase="Succeeded")
    assert text([ended], {"n1": lease(-240)}) == []


@pytest.mark.parametrize("leases", [{}, {"n1": None}])
def test_a_node_without_known_lease_is_not_taken_for_lost(
    leases: dict[str, coordination.Lease | None],
) -> None:
    assert text([pod(started=True, phase="Running")], leases) == []


@pytest.fixture
def late_pod(api_server: Any, strom: Any) -> None:
    """A job whose pod is bound to a node, and is not acknowledged by its kubelet."""
    strom("job", "run", "train", "--", "true")
    now = datetime.now(UTC)
    api_server.create_namespace("kube-node-lease")
    api_server.create(kinds.NODES, builders.make_node("node"))
    renewed = (now - timedelta(seconds=200)).isoformat()
    lease = {
        "metadata": {"name": "node", "namespace": "kube-node-lease"},
        "spec": {"renewTime": renewed},
    }
    api_server.create(kinds.LEASES, lease)
    api_server.start_pod("train", 0, b"", phase="Pending")
    bound = (now - timedelta(seconds=30)).isoformat()
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
    api_server.set_pod_status("train-w-0", conditions=[condition])


@pytest.mark.usefixtures("late_pod")
@pytest.mark.parametrize("command", [("explain",), ("job", "get"), ("job", "describe")])
def test_a_job_reports_a_bound_pod_that_its_kubelet_has_not_taken(
    strom: Any, command: tuple[str, ...]
) -> None:
    shown = strom(*command, "train").stdout
    assert "default/train is pending: its pods are bound, and kubelets" in shown
    (line,) = (line for line in shown.splitlines() if "not acknowledged by its kubelet" in line)
    seconds = re.search(r"1 pod bound to node node since (\d+) s.* lease renewed (\d+) s ago", line)
    assert seconds is not None
    assert (int(seconds[1]) >= 30, int(seconds[2]) >= 200) == (True, True)


@pytest.mark.usefixtures("late_pod")
def test_a_list_of_nodes_shows_the_age_of_each_lease(strom: Any) -> None:
    header, row = strom("node", "list").stdout.splitlines()
    assert header.split()[:3] == ["NAME", "STATUS", "LEASE"]
    assert row.split()[0] == "node"
    assert re.fullmatch(r"[3-9]m(\d+s)?", row.split()[2])  # it was renewed 3m20s before the start
    assert strom("node", "list", "-l", "gpu").stdout == ""


def test_a_list_of_nodes_shows_what_no_pod_requests() -> None:
    """As ``sinfo`` does. It is unknown where the user may not list all pods."""
    gpu = {"nvidia.com/gpu": "1"}
    node = builders.make_node("n", "8", "32Gi", extra={"nvidia.com/gpu": "4"})
    pods = [
        builders.make_pod("a", cpu="1500m", memory=None, phase="Running", node="n"),
        builders.make_pod("b", cpu=None, memory=None, extra=gpu, node="n"),
        builders.make_pod("c", phase="Succeeded", node="n"),
        builders.make_pod("d"),
    ]
    held = usage.by_node(filter(usage.is_active, pods))["n"].held
    assert usage.free_cells(node, held) == ("6.5", "32Gi", "3")
    assert usage.free_cells(node, None) == ("", "", "")


@pytest.mark.usefixtures("late_pod")
def test_a_node_without_agent_shows_its_status(strom: Any) -> None:
    shown = strom("node", "get", "node")
    assert shown.exit_code == 0
    assert re.search(r"lease       renewed [2-9]\d\d s ago", shown.stdout)
    assert "No node agent has reported its hardware" in shown.stderr


def test_a_node_shows_the_pods_that_hold_it(api_server: Any, strom: Any) -> None:
    api_server.create(kinds.NODES, builders.make_node("node"))
    strom("job", "run", "train", "-r", "2", "--", "true")
    for index, phase in enumerate(("Running", "Succeeded")):
        api_server.start_pod("train", index, b"", phase=phase)
    shown = strom("node", "get", "node").stdout.splitlines()
    headers, *rows = shown[shown.index("") + 1 :]
    assert headers.split() == ["NAMESPACE", "POD", "STATUS", "REQUESTS", "AGE"]
    assert [row.split()[:4] for row in rows] == [
        ["default", "train-w-0", "Running", "cpu=1,memory=1Gi"]
    ]
