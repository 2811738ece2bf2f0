"""The copies of data sets that pods of process nodes mount, without a scheduler or a monitor."""

import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from embedded.tests.process_pods import NODE, Document, ProcessCluster, phase
from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.processes import data_caches, machine
from stromboli.embedded.processes.core import data_volumes, environment, volumes
from stromboli.embedded.processes.core import pod as pods
from stromboli.shared import decoding, errors, keys
from stromboli.shared.jobspec import data_sets
from stromboli.shared.runtime import runtime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")


def document(uri: str, annotation: str | None = None) -> Document:
    """The parts of a pod by which it has a data set."""
    key = data_sets.content_key(uri, "")
    request = data_sets.DataSetRequest(name="d", uri=uri, key=key)
    described = data_sets.annotation((request,)) if annotation is None else annotation
    path = data_sets.volume_path(data_sets.DEFAULT_ROOT, key)
    return {
        "metadata": {"annotations": {keys.DATA_SETS: described}},
        "volumes": [{"name": "data-d", "hostPath": {"path": path, "type": "Directory"}}],
        "container": {"volumeMounts": [{"name": "data-d", "mountPath": "/data/d"}]},
    }


def pod_of(found: Document, node: str = NODE) -> pods.Pod:
    spec = {"nodeName": node, "volumes": found["volumes"]}
    metadata = {"name": "p", "namespace": "default", "uid": "u", **found["metadata"]}
    return decoding.convert({"metadata": metadata, "spec": spec}, pods.Pod)


# --- the volumes ----------------------------------------------------------------------------


def test_a_pod_uses_the_copies_that_it_mounts_and_no_other_folder() -> None:
    found = document("https://a/b")
    key = data_sets.content_key("https://a/b", "")
    assert data_volumes.keys_of(pod_of(found)) == {key}
    for path in ("/var/lib/stromboli/data/x/content", f"{data_sets.DEFAULT_ROOT}/{key}/../content"):
        found["volumes"][0]["hostPath"]["path"] = path
        assert data_volumes.keys_of(pod_of(found)) == frozenset()


def test_the_path_of_a_copy_is_that_of_the_nodes_own_cache() -> None:
    pod = pod_of(document("https://a/b"))
    (volume,) = pod.spec.volumes
    contents = {volume.name: volumes.VolumeContent(host=volume.host_path)}
    volume_contents = data_volumes.relocated(pod, contents, lambda key: f"/cache/{key[:4]}")
    key = data_sets.content_key("https://a/b", "")
    assert volume_contents[volume.name].host == pods.HostPath(
        path=f"/cache/{key[:4]}", type="Directory"
    )


def test_a_copy_that_is_not_there_is_an_error_of_the_pod() -> None:
    def missing(key: str) -> str:
        raise environment.MissingError(f"{key[:4]} is being fetched")

    pod = pod_of(document("https://a/b"))
    (volume,) = pod.spec.volumes
    contents = {volume.name: volumes.VolumeContent(host=volume.host_path)}
    with pytest.raises(environment.MissingError, match="is being fetched"):
        data_volumes.relocated(pod, contents, missing)


def test_an_unreadable_annotation_is_an_error_and_not_no_data() -> None:
    with pytest.raises(ValueError, match="is unreadable"):
        data_volumes.wanted(pod_of(document("https://a/b", "?")))


# --- pods with data -------------------------------------------------------------------------


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    """A process node with a cache, that no monitor knows."""
    kubelets: dict[str, Kubelet] = {}
    settings = data_caches.settings_for([NODE], 2**30, ("file:///",), 0)
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        process_cluster = ProcessCluster(cluster, kubelets, (await machine.view())[0])
        process_cluster.caches = data_caches.DataCaches(
            [NODE], tmp_path / "data", settings, runtime.utc_now, None
        )
        await process_cluster.start(tmp_path / "pods")
        yield process_cluster
        await process_cluster.stop()


async def test_a_pod_gets_its_data_also_without_scheduler_and_monitor(
    processes: ProcessCluster, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"content")
    script = "cat ${STROM_POD_ROOT}/data/d/f; touch ${STROM_POD_ROOT}/data/d/new || echo -n ' ro'"
    await processes.run("p", "sh", "-c", script, **document(f"file://{tmp_path}/f"))
    assert phase(await processes.over("p")) == "Succeeded"
    log = await processes.log("p")
    assert log.startswith("content")


async def test_a_pod_with_an_unreadable_annotation_waits(
    processes: ProcessCluster, tmp_path: Path
) -> None:
    """It must not run without its data; other pods are not affected."""
    (tmp_path / "f").write_bytes(b"content")
    uri = f"file://{tmp_path}/f"
    await processes.run("bad", "true", **document(f"{uri}-bad", "?"))
    await processes.run("good", "true", **document(uri))
    assert phase(await processes.over("good")) == "Succeeded"
    bad = await processes.until("bad", lambda pod: _waiting(pod).get("message"))
    key = hashlib.sha256(f"{uri}-bad\n".encode()).hexdigest()[:32]
    assert _waiting(bad)["message"] == f"data set {key} is not requested on this node yet"


def _waiting(pod: Document) -> Document:
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    found: Document = statuses[0].get("state", {}).get("waiting") or {}
    return found


@pytest.mark.parametrize(("rejections", "lines"), [(1, 0), (2, 1), (5, 1)])
async def test_one_rejected_report_is_not_logged_and_a_lasting_problem_is_once(
    tmp_path: Path, rejections: int, lines: int
) -> None:
    """At a start, caches report before their monitor leads."""

    async def reject(node: str, report: bytes) -> bytes:
        raise errors.TransientError(f"report data of node {node}", "not the leader")

    settings = data_caches.settings_for([NODE], 0, (), capacity_bytes=1)
    caches = data_caches.DataCaches([NODE], tmp_path, settings, runtime.utc_now, reject)
    with structlog.testing.capture_logs() as logged:
        for _ in range(rejections):
            await caches._report(NODE, b"")
    assert len(logged) == lines
