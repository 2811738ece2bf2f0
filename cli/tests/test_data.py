"""Rules of ``strom data``, and of data sets that a job's pods wait for."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stromboli.cli.render import data_view, explanation_view, pod_status
from stromboli.client import responses
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.api.views.data_copies import CopyState, DataSetCopies, NodeCopy
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.testkit import builders, objects

NOW = builders.NOON + timedelta(minutes=5)
IMAGES, TEXT, OTHER = "s3://c/images", "s3://c/text", "s3://other/plan"
DIGEST = f"sha256:{'a' * 64}"
GB = 10**9


def key(uri: str) -> str:
    return data_sets.content_key(uri, "")


def node_copy(node: str, state: CopyState = "Complete", **fields: Any) -> NodeCopy:
    return NodeCopy(node=node, state=state, observed_at=builders.NOON, **fields)


def data_set(*nodes: NodeCopy, uri: str = IMAGES, size: int = 12 * GB) -> DataSetCopies:
    return DataSetCopies(key=key(uri), uri=uri, bytes=size, nodes=nodes)


# --- rows ------------------------------------------------------------------------------------


def test_a_data_set_has_its_copies_by_state_and_the_first_reason() -> None:
    copies = data_set(
        node_copy("n1", in_use=True),
        node_copy("n2", "Fetching"),
        node_copy("n3", "Failed", reason="403"),
        node_copy("n4", "Failed", reason="404"),
    )
    row = data_view.row(copies, NOW)
    assert row == (IMAGES, "12.0GB", "1", "1", "0", "2", "1", key(IMAGES), "n3: 403")
    assert len(row) == len(data_view.HEADERS)


def test_a_copy_has_its_progress_use_and_reason() -> None:
    waits = node_copy("n1", "Waiting", reason="short of room: needs 12.0 GB")
    used = node_copy("n2", bytes=700, fetched_bytes=700, in_use=True, last_used_at=builders.NOON)
    rows = data_view.node_rows(data_set(waits, used), NOW)
    assert rows == [
        ("n1", "Waiting", "", "", "no", "", "short of room: needs 12.0 GB"),
        ("n2", "Complete", "700B", "700B", "yes", "5m", ""),
    ]
    assert {len(row) for row in rows} == {len(data_view.NODE_HEADERS)}
    on_node = data_view.on_node_row(data_set(waits, used), used, NOW)
    assert len(on_node) == len(data_view.ON_NODE_HEADERS)
    assert on_node[:2] == (IMAGES, "Complete")


def test_a_cache_that_stopped_to_report_is_named_as_such() -> None:
    """What it had is shown, and may be outdated."""
    silent = node_copy("n1", "Failed", reason="403", silent_since=builders.NOON)
    ((*_, reason),) = data_view.node_rows(data_set(silent), NOW)
    assert reason == "403; the cache has not reported for 5m"


def test_facts_of_a_data_set_count_its_copies() -> None:
    copies = data_set(node_copy("n1"), node_copy("n2"), node_copy("n3", "Failed"))
    copies = msgspec.structs.replace(copies, digest=DIGEST)
    assert data_view.facts(copies) == [
        f"data set {IMAGES}",
        f"key      {key(IMAGES)}",
        f"digest   {DIGEST}",
        "size     12.0 GB",
        "copies   1 failed, 2 complete",
    ]
    assert data_view.facts(data_set(size=0))[2:] == [
        "digest   unknown",
        "size     unknown",
        "copies   none",
    ]


# --- pods that wait --------------------------------------------------------------------------


def pod(
    name: str = "p",
    node: str = "n1",
    *uris: str,
    estimate: str = "",
    phase: str = "Pending",
    container: dict[str, Any] | None = None,
) -> pod_status.Pod:
    requests = tuple(
        data_sets.DataSetRequest(name=f"d{number}", uri=uri, key=key(uri))
        for number, uri in enumerate(uris)
    )
    annotations = {keys.DATA_SETS: data_sets.annotation(requests)} if uris else {}
    annotations |= {keys.DATA_TO_FETCH: estimate} if estimate else {}
    statuses = [] if container is None else [{"name": "c", "state": container}]
    document = {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "containerStatuses": statuses},
    }
    return pod_status.decode(json.dumps(document).encode())


def test_only_bound_pods_that_have_not_started_wait_for_data() -> None:
    creating = {"waiting": {"reason": "ContainerCreating"}}
    waits = [pod("b", "n2", IMAGES), pod("a", "n2", IMAGES, container=creating)]
    others = [
        pod("c", "", IMAGES),
        pod("d", "n1"),
        pod("e", "n1", IMAGES, phase="Running"),
        pod("f", "n1", IMAGES, container={"running": {}}),
        pod("g", "n1", "fluid://default/x"),
    ]
    pods = data_view.waiting_for_data([*waits, *others[:4]])
    assert [each.metadata.name for each in pods] == ["a", "b"]
    assert data_view.waiting_for_data(others[4:]) == []


def test_an_awaited_data_set_has_the_estimate_and_the_progress_of_its_copy() -> None:
    pods = [
        pod("a", "n1", IMAGES, TEXT, estimate="12.0 GB to fetch, about 40 s"),
        pod("b", "n1", IMAGES, TEXT, estimate="12.0 GB to fetch, about 40 s"),
        pod("c", "n2", IMAGES),
    ]
    known = [
        data_set(node_copy("n1", "Fetching", bytes=12 * GB, fetched_bytes=3 * GB)),
        data_set(node_copy("n1"), uri=TEXT),
    ]
    assert data_view.waiting_lines(pods, {each.key: each for each in known}, NOW) == (
        "n1: 12.0 GB to fetch, about 40 s, as of the bind",
        f"n1: {IMAGES}: fetching, 3.0 GB of 12.0 GB",
        f"n2: {IMAGES}: the node's cache has not begun to fetch it",
    )


def test_an_awaited_copy_that_failed_has_its_reason() -> None:
    known = data_set(node_copy("n1", "Failed", reason="403; next attempt in 10 s"))
    assert data_view.waiting_lines([pod("a", "n1", IMAGES)], {known.key: known}, NOW) == (
        f"n1: {IMAGES}: failed: 403; next attempt in 10 s",
    )


def test_pods_whose_data_is_complete_wait_for_no_data() -> None:
    known = data_set(node_copy("n1"))
    done = pod("a", "n1", IMAGES, estimate="12.0 GB to fetch, about 40 s")
    assert data_view.waiting_lines([done], {known.key: known}, NOW) == ()


def test_without_reports_only_the_estimate_is_shown() -> None:
    """An older server, or a pod that another controller describes."""
    unknown = [pod("a", "n1", IMAGES, estimate="data to fetch"), pod("b", "n2", IMAGES)]
    assert data_view.waiting_lines(unknown, {}, NOW) == ("n1: data to fetch, as of the bind",)


def test_many_lines_about_data_are_counted() -> None:
    pods = [pod(f"p{at}", f"n{at:02}", IMAGES, estimate="data to fetch") for at in range(20)]
    lines = data_view.waiting_lines(pods, {}, NOW)
    assert len(lines) == data_view.LINES_SHOWN + 1
    assert lines[-1] == "and 12 more"


def test_a_job_whose_pods_wait_for_data_says_so() -> None:
    explanation = responses.Explanation("default/train", "Pending", "default/train-1", None)
    waiting = explanation_view.WaitingPods(bound=1, data=("n1: 12.0 GB to fetch, about 40 s",))
    assert waiting
    assert explanation_view.render(explanation, waiting) == [
        "default/train is pending: its pods are bound and wait for their data sets.",
        "  data       n1: 12.0 GB to fetch, about 40 s",
    ]


# --- commands --------------------------------------------------------------------------------


def report(node: str, *copies: data.DataCopy) -> envelope.Record:
    message = data.DataObserved(node=node, observed_at=builders.NOON, copies=copies)
    draft = envelope.Draft(topic=topics.DATA, key=node, message=message, time=builders.NOON)
    return builders.make_record(draft)


@pytest.fixture
def caches(api_server: Any) -> Any:
    """Two nodes with data sets; a job in the default namespace names one of them, and one that no
    node has."""

    def copy(uri: str, state: CopyState, **fields: Any) -> data.DataCopy:
        return data.DataCopy(key=key(uri), uri=uri, state=state, bytes=12 * GB, **fields)

    api_server.tell(
        report("n1", copy(IMAGES, "Complete", fetched_bytes=12 * GB), copy(OTHER, "Complete"))
    )
    api_server.tell(report("n2", copy(IMAGES, "Failed", reason="403")))
    named = [
        {"name": f"d{at}", "uri": uri, "mountPath": f"/d{at}", "size": "1G"}
        for at, uri in enumerate((IMAGES, TEXT))
    ]
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    tasks = [{"name": "w", "replicas": 1, "template": template}]
    spec = {"dataSets": named, "tasks": tasks}
    made = objects.make(kinds.JOBS, "train", {"namespace": "default"}, spec=spec)
    api_server.create(kinds.JOBS, msgspec.json.decode(made))
    return api_server


def test_data_sets_of_a_namespace_are_listed_by_uri(caches: Any, strom: Any) -> None:
    lines = strom("data", "list").stdout.splitlines()
    assert [line.split()[:6] for line in lines[1:]] == [
        [IMAGES, "12.0GB", "1", "0", "0", "1"],
        [TEXT, "1.0GB", "0", "0", "0", "0"],
    ]
    assert lines[1].endswith("n2: 403")
    everything = strom("data", "list", "-A").stdout
    assert OTHER in everything
    assert TEXT not in everything


def test_data_sets_of_a_node_are_listed_with_their_copies(caches: Any, strom: Any) -> None:
    lines = strom("data", "list", "-A", "--node", "n1").stdout.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        [IMAGES, "Complete", "12.0GB", "12.0GB"],
        [OTHER, "Complete", "12.0GB", "-"],
    ]
    found = json.loads(
        strom("data", "list", "-A", "--node", "n1", "--uri", "s3://c/", "-o", "json").stdout
    )
    assert [item["uri"] for item in found["items"]] == [IMAGES]
    assert [it["node"] for it in found["items"][0]["nodes"]] == ["n1"]


@pytest.mark.parametrize("name", [IMAGES, key(IMAGES)])
def test_a_data_set_is_shown_by_key_or_uri(caches: Any, strom: Any, name: str) -> None:
    lines = strom("data", "get", name).stdout.splitlines()
    assert lines[0] == f"data set {IMAGES}"
    assert [line.split()[:2] for line in lines[-2:]] == [["n1", "Complete"], ["n2", "Failed"]]


@pytest.mark.parametrize("name", ["s3://c/", OTHER])
def test_a_data_set_that_no_job_of_the_namespace_names_is_not_found(
    caches: Any, strom: Any, name: str
) -> None:
    """A prefix is no name."""
    answer = strom("data", "get", name)
    assert answer.exit_code != 0
    assert f"data set {name}: not found" in answer.stderr
    assert "strom data list -n default" in answer.stderr


def test_a_namespace_without_data_sets_is_named(api_server: Any, strom: Any) -> None:
    assert "No data sets found in namespace default." in strom("data", "list").stderr


def test_a_pending_job_shows_what_its_nodes_fetch(caches: Any, strom: Any) -> None:
    """``strom explain`` and ``strom job view`` have the estimate and the state of the copies."""
    requests = (data_sets.DataSetRequest(name="d0", uri=IMAGES, key=key(IMAGES)),)
    annotations = {
        keys.DATA_SETS: data_sets.annotation(requests),
        keys.DATA_TO_FETCH: "12.0 GB to fetch, about 40 s",
    }
    made = builders.make_pod("train-w-0", labels={keys.JOB_NAME: "train"}, task="w", node="n2")
    document = msgspec.json.decode(msgspec.json.encode(made))
    document["metadata"]["annotations"] = document["metadata"].get("annotations", {}) | annotations
    caches.create(kinds.PODS, document)
    for command in (("explain", "train"), ("job", "view", "train")):
        shown = strom(*command).stdout
        assert "its pods are bound and wait for their data sets" in shown
        assert "data       n2: 12.0 GB to fetch, about 40 s, as of the bind" in shown
        assert f"n2: {IMAGES}: failed: 403" in shown
