"""The queue of PodGroups that third-party operators create and update.

mpi-operator writes the whole spec whenever it differs from the one that it wants, in which the
queue is left out; the definition's default for it is `default`.
"""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders

Document = dict[str, Any]


@pytest.fixture
async def admission(tmp_path: Path) -> AsyncIterator[AdmissionService]:
    """A service that knows a namespace with a default queue."""
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        service = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        annotations = {keys.NAMESPACE_QUEUE: "research"}
        space = core.Namespace(metadata=meta.ObjectMeta(name="default", annotations=annotations))
        service.fold(builders.make_record(builders.snapshot_of(space)))
        yield service


def group(queue: str, **spec: Any) -> Document:
    """A PodGroup of an operator, as the API server completes it."""
    head = {"apiVersion": kinds.POD_GROUPS.api_version, "kind": kinds.POD_GROUPS.kind}
    metadata = {"name": "pi", "namespace": "default"}
    return {**head, "metadata": metadata, "spec": {"minMember": 3, "queue": queue, **spec}}


async def mutated(
    admission: AdmissionService, after: Document, before: Document | None
) -> list[Document]:
    """The patch for a PodGroup."""
    kind = kinds.POD_GROUPS
    request = {
        "uid": "1",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "operation": "UPDATE" if before else "CREATE",
        "namespace": "default",
        "object": after,
        "oldObject": before,
    }
    answer = await admission.answer("/podgroups/mutate", msgspec.json.encode({"request": request}))
    response = msgspec.json.decode(answer)["response"]
    patch = response.get("patch")
    return [] if patch is None else list(msgspec.json.decode(base64.b64decode(patch)))


async def test_a_new_podgroup_gets_the_queue_of_its_namespace(admission: AdmissionService) -> None:
    (added,) = await mutated(admission, group("default"), None)
    assert (added["path"], added["value"]) == ("/spec/queue", "research")


async def test_an_update_that_leaves_the_queue_out_keeps_the_one_of_the_namespace(
    admission: AdmissionService,
) -> None:
    (kept,) = await mutated(admission, group("default", minMember=4), group("research"))
    assert (kept["path"], kept["value"]) == ("/spec/queue", "research")


@pytest.mark.parametrize(
    ("after", "before"),
    [("default", "default"), ("default", "urgent"), ("urgent", "research")],
    ids=["created before the namespace had a queue", "moved out of another", "moved to another"],
)
async def test_other_updates_of_a_podgroup_keep_the_queue_that_they_write(
    admission: AdmissionService, after: str, before: str
) -> None:
    changed = group(after, priorityClassName="high")
    assert await mutated(admission, changed, group(before)) == []


def test_updates_of_podgroups_are_sent_to_us() -> None:
    registered = {
        rule["resources"][0]: rule["operations"]
        for configuration in webhooks.configurations("https://127.0.0.1", b"")
        for webhook in configuration["webhooks"]
        if webhook["name"].startswith("mutate.")
        for rule in webhook["rules"]
    }
    assert registered["podgroups"] == ["CREATE", "UPDATE"]
