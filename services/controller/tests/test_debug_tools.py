"""Debug tools of a job: their node, what they share with the job, and when they are deleted."""

import contextlib
from typing import Any

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from services.controller.tests.support.scenarios import enqueued, running
from stromboli.controller.core.pods import debug_tool_pods
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import debug_tools
from stromboli.testkit.builders import make_command, make_job, make_task

POD = "default/j1-tool-jupyter"


def asking(*requests: debug_tools.DebugToolRequest, replicas: int = 2) -> batch.Job:
    volume = batch.VolumeSpec(mount_path="/data", volume_claim_name="shared")
    job = make_job(tasks=[make_task(replicas=replicas)], volumes=(volume,))
    return wanting(job, *requests)


def wanting(job: batch.Job, *requests: debug_tools.DebugToolRequest) -> batch.Job:
    annotations = {
        **(job.metadata.annotations or {}),
        keys.TOOLS: debug_tools.encode_annotation(requests),
    }
    metadata = msgspec.structs.replace(job.metadata, annotations=annotations)
    return msgspec.structs.replace(job, metadata=metadata)


def annotate(harness: CoreHarness, *requests: debug_tools.DebugToolRequest) -> None:
    request(harness, *requests)
    harness.settle()


def request(harness: CoreHarness, *requests: debug_tools.DebugToolRequest) -> None:
    """The user's request, before the controller has read it."""
    body = harness.objects["jobs", "default/j1"]
    body["metadata"].setdefault("annotations", {})[keys.TOOLS] = debug_tools.encode_annotation(
        requests
    )
    harness.put(kinds.JOBS, body)


def on_node(harness: CoreHarness, name: str, node: str) -> None:
    body = harness.objects["pods", f"default/{name}"]
    body["spec"]["nodeName"] = node
    harness.put(kinds.PODS, body)
    harness.settle()


@pytest.fixture
def harness() -> CoreHarness:
    """A job that runs on n1 and n2, with a notebook."""
    made = running(asking())
    on_node(made, "j1-worker-0", "n1")
    on_node(made, "j1-worker-1", "n2")
    annotate(made, debug_tools.DebugToolRequest(tool="jupyter"))
    return made


def objects(harness: CoreHarness) -> set[str]:
    """Kinds of the tool's existing objects."""
    return {plural for plural, key in harness.objects if key == POD}


def test_a_tool_is_where_the_job_runs_with_its_volumes(harness: CoreHarness) -> None:
    body = harness.objects["pods", POD]
    assert body["spec"]["nodeName"] == "n1"
    claims = [it["persistentVolumeClaim"]["claimName"] for it in body["spec"]["volumes"]]
    assert claims == ["shared"]
    (container,) = body["spec"]["containers"]
    assert [it["mountPath"] for it in container["volumeMounts"]] == ["/data"]
    assert "--ServerApp.root_dir=/data" in container["command"]
    assert body["metadata"]["ownerReferences"][0]["uid"] == harness.job().metadata.uid
    assert keys.GROUP_NAME not in body["metadata"]["annotations"]


def test_its_service_and_its_token_are_the_jobs_and_are_in_the_status(
    harness: CoreHarness,
) -> None:
    assert objects(harness) == {"pods", "services", "secrets"}
    service = harness.objects["services", POD]
    assert service["spec"]["selector"] == {keys.TOOL: "jupyter", keys.TOOL_OF: "j1"}
    assert harness.job().status.controlled_resources["tool-jupyter"] == "jupyter"
    names = {it["name"] for it in harness.objects["pods", POD]["spec"]["containers"][0]["env"]}
    assert names == {debug_tools.TOKEN, "JUPYTER_TOKEN"}


def test_a_tools_pod_is_none_of_the_jobs(harness: CoreHarness) -> None:
    """Neither its start nor its end is counted, and no policy applies to it."""
    assert harness.job().status.running == 2
    harness.change_pod(POD, "Failed", exit_code=1)
    harness.settle()
    assert (harness.phase(), harness.job().status.failed) == ("Running", 0)


def test_the_requests_of_a_tool_are_counted_on_its_node(harness: CoreHarness) -> None:
    (container,) = harness.objects["pods", POD]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "512Mi"}}
    annotate(harness, debug_tools.DebugToolRequest(tool="jupyter", cpu="2", memory="8Gi"))
    harness.reap(POD)
    harness.settle()
    (container,) = harness.objects["pods", POD]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "8Gi"}}


def test_a_tool_that_its_node_rejects_is_created_again_after_a_while(harness: CoreHarness) -> None:
    """A full node rejects each pod at once: without a pause, the API server would be busy."""
    uid = harness.objects["pods", POD]["metadata"]["uid"]
    harness.change_pod(POD, "Failed", reason="OutOfcpu")
    harness.settle()
    assert "deletionTimestamp" not in harness.objects["pods", POD]["metadata"]
    harness.wait(30)
    harness.settle()
    harness.reap(POD)
    harness.settle()
    assert harness.objects["pods", POD]["metadata"]["uid"] != uid


@pytest.mark.parametrize(("phase", "reason"), [("Succeeded", ""), ("Failed", "DeadlineExceeded")])
def test_an_idle_tool_is_withdrawn_with_all_that_is_its_own(
    harness: CoreHarness, phase: str, reason: str
) -> None:
    """Its process ends when it is idle, its pod when its time is over. A user starts it again."""
    annotate(
        harness,
        debug_tools.DebugToolRequest(tool="jupyter"),
        debug_tools.DebugToolRequest(tool="tensorboard"),
    )
    harness.change_pod(POD, phase, reason=reason)
    harness.settle()
    harness.reap(POD)
    harness.settle()
    left = [request.tool for request in debug_tools.requested_tools(harness.job())]
    assert (left, objects(harness)) == (["tensorboard"], set())
    assert "ToolEnded" in {event.reason for event in harness.events.values()}
    assert harness.phase() == "Running"


def test_a_tool_ends_when_it_is_idle_and_in_any_case() -> None:
    harness = running(asking(debug_tools.DebugToolRequest(tool="jupyter", idle="30m")))
    annotate(
        harness,
        debug_tools.DebugToolRequest(tool="jupyter", idle="30m"),
        debug_tools.DebugToolRequest(tool="terminal"),
    )
    spec = harness.objects["pods", POD]["spec"]
    assert "--ServerApp.shutdown_no_activity_timeout=1800" in spec["containers"][0]["command"]
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("OnFailure", 43200)
    terminal = harness.objects["pods", "default/j1-tool-terminal"]["spec"]["containers"][0]
    assert {"name": "TMOUT", "value": "3600"} in terminal["env"]


def test_no_tool_before_the_job_runs_somewhere() -> None:
    harness = enqueued(asking(debug_tools.DebugToolRequest(tool="jupyter")))
    assert objects(harness) == {"services", "secrets"}


def test_a_tool_that_is_not_wanted_any_more_is_deleted_with_all_that_is_its_own(
    harness: CoreHarness,
) -> None:
    annotate(harness)
    assert harness.objects["pods", POD]["metadata"]["deletionTimestamp"]
    harness.reap(POD)
    harness.settle()
    assert objects(harness) == set()
    assert "tool-jupyter" not in harness.job().status.controlled_resources


@pytest.mark.parametrize("commands_before", range(10))
@pytest.mark.parametrize("is_new", [False, True])
def test_nothing_is_left_of_a_tool_whose_request_is_removed_while_no_controller_runs(
    commands_before: int, *, is_new: bool
) -> None:
    """Whatever the last controller did before it was killed, also for a job that was submitted with
    the tool: the status names the tool before its objects exist."""
    tool = debug_tools.DebugToolRequest(tool="jupyter")
    if is_new:
        harness = CoreHarness()
        harness.submit(asking(tool))
    else:
        harness = running(asking())
        on_node(harness, "j1-worker-0", "n1")
        request(harness, tool)
    harness.see()
    harness.commands_left = commands_before
    with contextlib.suppress(KilledError):
        harness.settle()
    request(harness)
    harness.restart()
    harness.settle()
    if ("pods", POD) in harness.objects:
        harness.reap(POD)
        harness.settle()
    assert objects(harness) == set()
    assert "tool-jupyter" not in harness.job().status.controlled_resources


def test_a_tool_is_deleted_with_the_end_of_the_job(harness: CoreHarness) -> None:
    finish_job(harness)
    harness.reap(POD)
    harness.settle()
    assert harness.phase() == "Completed"
    assert objects(harness) == set()


def finish_job(harness: CoreHarness) -> None:
    for name in ("j1-worker-0", "j1-worker-1"):
        harness.change_pod(f"default/{name}", "Succeeded")
    harness.settle()


def test_a_restart_ends_the_tools_pod_and_keeps_its_token(harness: CoreHarness) -> None:
    harness.submit(make_command("c1", "RestartJob", harness.job()))
    harness.settle()
    assert harness.objects["pods", POD]["metadata"]["deletionTimestamp"]
    assert objects(harness) >= {"services", "secrets"}


def test_a_tool_follows_the_job_to_another_node(harness: CoreHarness) -> None:
    on_node(harness, "j1-worker-0", "n3")
    assert harness.objects["pods", POD]["metadata"]["deletionTimestamp"]
    harness.reap(POD)
    harness.settle()
    assert harness.objects["pods", POD]["spec"]["nodeName"] == "n3"


def test_another_image_creates_another_pod(harness: CoreHarness) -> None:
    annotate(harness, debug_tools.DebugToolRequest(tool="jupyter", image="ours:1"))
    harness.reap(POD)
    harness.settle()
    assert harness.objects["pods", POD]["spec"]["containers"][0]["image"] == "ours:1"


def test_an_unrelated_pod_of_that_name_is_not_changed(harness: CoreHarness) -> None:
    annotate(harness)
    harness.reap(POD)
    harness.settle()
    stranger: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "j1-tool-jupyter", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    harness.put(kinds.PODS, stranger)
    annotate(harness, debug_tools.DebugToolRequest(tool="jupyter"))
    assert "nodeName" not in harness.objects["pods", POD]["spec"]
    assert "deletionTimestamp" not in harness.objects["pods", POD]["metadata"]


def test_an_ingress_only_with_a_domain_and_for_tools_that_ask_for_the_token() -> None:
    requests = (
        debug_tools.DebugToolRequest(tool="jupyter"),
        debug_tools.DebugToolRequest(tool="tensorboard"),
    )
    harness = enqueued(asking(*requests))
    assert not any(plural == "ingresses" for plural, _ in harness.objects)
    cache = controller_cache.ControllerCache(
        ["volcano"], event_history.EventHistory(), tools_domain="tools.example.org"
    )
    creates = debug_tool_pods.creations(cache, harness.job())
    (ingress,) = (it for it in creates if it.kind is kinds.INGRESSES)
    assert ingress.name == "j1-tool-jupyter"
    assert b'"host":"jupyter-j1-default.tools.example.org"' in ingress.body


def test_a_host_never_has_too_long_a_label() -> None:
    job = asking()
    named = debug_tool_pods.host(job, "x" * 60, "code-server", "d")
    label = named.removesuffix(".d")
    assert len(label) <= 63
    assert debug_tool_pods.host(job, "x" * 59 + "y", "code-server", "d") != named
    assert not label.endswith("-")
