"""The controller's cache: what it knows ahead, and what it makes of records it cannot read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.controller.core import commands
from stromboli.controller.core.jobs import job_pods
from stromboli.controller.core.queues import queues
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds, meta
from stromboli.testkit.builders import (
    NOON,
    make_command,
    make_job,
    make_pod,
    make_pod_group,
    make_queue,
    make_record,
    snapshot_of,
    tombstone_of,
    undecodable_record,
)


def empty() -> controller_cache.ControllerCache:
    return controller_cache.ControllerCache(["volcano"], event_history.EventHistory())


JOB = make_job()
POD = make_pod("j1-worker-0", "g1", owner=JOB)


def test_a_pod_touches_its_job_and_its_group() -> None:
    folded = empty().apply(make_record(snapshot_of(POD)))
    assert set(folded.items) == {
        ReconcileKey("job", "default/j1"),
        ReconcileKey("podgroup", "default/g1"),
    }


def test_an_unrelated_pod_touches_the_jobs_whose_names_it_may_hold() -> None:
    cache = empty()
    cache.apply(make_record(snapshot_of(JOB)))
    folded = cache.apply(make_record(snapshot_of(make_pod("j1-worker-0", scheduler="theirs"))))
    assert folded.items == (ReconcileKey("job", "default/j1"),)


def test_a_command_touches_its_job() -> None:
    folded = empty().apply(make_record(snapshot_of(make_command("c1", "AbortJob", JOB))))
    assert set(folded.items) == {
        ReconcileKey("command", "default/c1"),
        ReconcileKey("job", "default/j1"),
    }


@pytest.mark.parametrize("topic", [topics.JOBS, topics.PODS, topics.EXPLANATIONS])
def test_a_record_that_cannot_be_read_is_to_be_parked(topic: topics.Topic) -> None:
    assert empty().apply(undecodable_record(topic, "default/j1")).undecodable


def test_what_we_wrote_is_known_before_the_topic_shows_it() -> None:
    cache = empty()
    cache.observe(kinds.PODS, make_pod("p", owner=JOB, version=5, phase="Running"))
    cache.apply(make_record(snapshot_of(make_pod("p", owner=JOB, version=4))))
    (pod,) = cache.pods_of(JOB)
    assert pod.status.phase == "Running"


def test_an_owner_of_another_namespace_owns_nothing() -> None:
    """Users write ownerReferences: with the uid of a job of another namespace they would add pods
    to it."""
    cache = empty()
    cache.apply(make_record(snapshot_of(JOB)))
    known = job_pods.refresh(cache, JOB)
    forged = make_pod("j1-worker-0", namespace="other", owner=JOB)
    for version, found in enumerate((forged, make_pod("j1-worker-0", owner=JOB))):
        assert known.missing("worker", 9), "without its own pod"
        cache.apply(make_record(snapshot_of(found), version))
        known = job_pods.refresh(cache, JOB)
    cache.apply(make_record(tombstone_of(forged), 2))
    assert [pod.metadata.namespace for pod in job_pods.refresh(cache, JOB).pods] == ["default"]
    assert not known.missing("worker", 9)
    assert [pod.metadata.namespace for pod in cache.pods_of(JOB)] == ["default"]


def test_a_flow_of_another_namespace_has_no_such_jobs() -> None:
    cache = empty()
    for namespace in ("default", "other"):
        child = make_job("child", namespace=namespace)
        metadata = msgspec.structs.replace(
            child.metadata, owner_references=make_pod(owner=JOB).metadata.owner_references
        )
        cache.apply(make_record(snapshot_of(msgspec.structs.replace(child, metadata=metadata))))
    assert [job.metadata.namespace for job in cache.children(JOB)] == ["default"]


def test_an_owner_of_another_namespace_is_another_owner() -> None:
    """Users write ownerReferences: one with the uid of an object of another namespace neither
    reads its annotations nor hides it from its own pods."""
    cache = empty()
    owner = meta.OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name="web", uid="set-1", controller=True
    )
    for namespace in ("default", "other"):
        pod = make_pod(f"web-{namespace}", namespace=namespace)
        metadata = msgspec.structs.replace(pod.metadata, owner_references=(owner,))
        cache.observe(kinds.PODS, msgspec.structs.replace(pod, metadata=metadata))
    read = meta.ObjectMeta(
        name="web", uid="set-1", resource_version="5", annotations={keys.GROUP_MIN_MEMBER: "3"}
    )
    assert cache.note_owner("default", "set-1", read)
    assert cache.unmanaged_pods.owner("other/podgroup-set-1") is None
    assert cache.note_owner("other", "set-1", None)
    found = cache.unmanaged_pods.owner("default/podgroup-set-1")
    assert found is not None
    assert not found.is_gone


def test_what_we_delete_is_terminating_until_it_is_deleted() -> None:
    cache = empty()
    cache.apply(make_record(snapshot_of(POD)))
    cache.mark_deleting(kinds.PODS, POD.metadata.key, POD.metadata.uid)
    assert cache.is_terminating(POD)
    cache.apply(make_record(tombstone_of(POD), 1))
    assert cache.pods_of(JOB) == []
    assert not cache.is_terminating(POD)


def test_a_deletion_of_another_uid_marks_nothing() -> None:
    cache = empty()
    cache.apply(make_record(snapshot_of(POD)))
    assert cache.mark_deleting(kinds.PODS, POD.metadata.key, "another") == ()
    assert not cache.is_terminating(POD)


RECORDS: dict[str, list[meta.Object]] = {
    topics.JOBS.name: [make_job(version=1), make_job(version=2)],
    topics.PODS.name: [
        POD,
        make_pod("j1-worker-0", "g1", owner=JOB, version=2, node="n1"),
        make_pod("j1-worker-0", "g2", owner=JOB, version=3, generation=2),
    ],
    topics.POD_GROUPS.name: [make_pod_group("g1", owner=JOB), make_pod_group("g2", version=2)],
    topics.COMMANDS.name: [make_command("c1", "AbortJob", JOB)],
}


@given(st.permutations([name for name, objs in RECORDS.items() for _ in objs]))
def test_any_order_across_topics_gives_the_same_cache(order: list[str]) -> None:
    def state(turns: list[str]) -> tuple[object, ...]:
        cache = empty()
        each = {name: iter(objs) for name, objs in RECORDS.items()}
        for name in turns:
            cache.apply(make_record(snapshot_of(next(each[name]))))
        return (
            cache.pods_of(JOB),
            cache.members("default/g1"),
            cache.members("default/g2"),
            list(cache.jobs()),
            sorted(cache.items(), key=str),
        )

    assert state(order) == state(sorted(order))


def test_queues_that_always_exist_are_created_and_empty_states_are_opened() -> None:
    cache = empty()
    ((created,),) = queues.reconcile(cache, "root", NOON)
    assert isinstance(created, commands.Create)
    assert b'"reclaimable":false' in created.body
    assert queues.reconcile(cache, "other", NOON) == ()
    cache.apply(make_record(snapshot_of(make_queue("q", state=""))))
    ((patch,),) = queues.reconcile(cache, "q", NOON)
    assert isinstance(patch, commands.Patch)
    assert b'"state":"Open"' in patch.patch
    cache.apply(make_record(snapshot_of(make_queue("q", state="Closed", parent="root", version=2))))
    assert queues.reconcile(cache, "q", NOON) == ()
    cache.apply(undecodable_record(topics.QUEUES, "root"))
    assert queues.reconcile(cache, "root", NOON) == ()
