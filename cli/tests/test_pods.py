"""Rules of ``strom pod list``."""

import json
from typing import Any

import pytest

from stromboli.cli.commands import pods as pod_list
from stromboli.cli.render import pod_status
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit import builders


@pytest.fixture
def pods(api_server: Any) -> None:
    """Pods of two jobs, one pod in the queue of its label, and one without a job or queue."""
    api_server.create_namespace("other")
    made: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("a-worker-0", "default", {keys.JOB_NAME: "a", keys.QUEUE_NAME: "research", "team": "x"}),
        ("a-worker-1", "default", {keys.JOB_NAME: "a"}),
        ("b-worker-0", "other", {keys.JOB_NAME: "b"}),
        ("stranger", "default", {}),
    )
    for name, namespace, labels in made:
        pod = builders.make_pod(name, namespace=namespace, labels=labels, task="worker", node="n1")
        api_server.create(kinds.PODS, pod)


def names(strom: Any, *filters: str) -> list[str]:
    listed = json.loads(strom("pod", "list", "-o", "json", *filters).stdout)
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.mark.usefixtures("pods")
def test_list_shows_pods_of_jobs_and_no_others(strom: Any) -> None:
    shown = strom("pod", "list").stdout.splitlines()
    assert shown[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [line.split()[0] for line in shown[1:]] == ["a-worker-0", "a-worker-1"]
    assert strom("pod", "list", "-A").stdout.splitlines()[3].split()[:2] == ["other", "b-worker-0"]


@pytest.mark.usefixtures("pods")
def test_list_shows_pending_unmanaged_pods_with_the_reason(api_server: Any, strom: Any) -> None:
    """For example those of a Deployment: no other command shows them."""
    api_server.create(kinds.PODS, builders.make_pod("web-x", "podgroup-1"))
    api_server.create(kinds.PODS, builders.make_pod("web-y", labels={keys.QUEUE_NAME: "absent"}))
    assert names(strom) == ["a-worker-0", "a-worker-1", "web-x", "web-y"]
    assert names(strom, "--job", "a") == ["a-worker-0", "a-worker-1"]
    refused = {"type": "PodScheduled", "status": "False", "message": "overused cpu"}
    waiting = pod_status.decode(json.dumps({"status": {"conditions": [refused]}}).encode())
    assert (
        pod_list.wide_cells(waiting)[-1]
        == pod_status.unschedulable_message(waiting)
        == "overused cpu"
    )


@pytest.mark.usefixtures("pods")
def test_list_filters_by_job_queue_and_labels(strom: Any) -> None:
    assert names(strom, "--job", "a") == ["a-worker-0", "a-worker-1"]
    assert names(strom, "--job", "b") == []
    assert names(strom, "--queue", "research") == ["a-worker-0"]
    assert names(strom, "-A", "-l", "team!=x") == ["a-worker-1", "b-worker-0"]
    listed = strom("pod", "list", "-j", "b")
    assert listed.stderr == "No pods in namespace default match the filter (3 without it).\n"


@pytest.mark.usefixtures("pods")
def test_wide_shows_node_and_owner_and_name_is_for_scripts(strom: Any) -> None:
    first = strom("pod", "list", "-o", "wide").stdout.splitlines()[1].split()
    assert first[-6:] == ["a", "worker", "research", "-", "n1", "-"]
    assert strom("pod", "list", "-o", "name").stdout == "pod/a-worker-0\npod/a-worker-1\n"


@pytest.mark.usefixtures("pods")
def test_get_and_describe_show_one_pod(api_server: Any, strom: Any) -> None:
    uid = next(
        metadata.uid
        for metadata in map(kinds.metadata_of, api_server.all(kinds.PODS))
        if metadata.name == "a-worker-0"
    )
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"uid": uid},
        "type": "Warning",
        "reason": "FailedMount",
        "message": "no such volume",
    }
    api_server.create(kinds.EVENTS, event)
    shown = strom("pod", "get", "a-worker-0").stdout
    assert shown.splitlines()[0].split() == ["pod", "default/a-worker-0"]
    assert "FailedMount" not in shown
    described = strom("pod", "describe", "a-worker-0").stdout
    assert described.splitlines()[-1].split()[:2] == ["Warning", "FailedMount"]
    assert json.loads(strom("pod", "get", "a-worker-0", "-o", "json").stdout)["kind"] == "Pod"
    missing = strom("pod", "get", "none")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (
        1,
        "strom: pod default/none: not found",
    )
