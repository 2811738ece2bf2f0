"""The service on the embedded log and cluster: the same code as on the real ones."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.service_harness import Harness
from stromboli.controller.execution import command_executor
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.batch import LifecyclePolicy
from stromboli.shared.messages import batch, log, scheduling
from stromboli.shared.runtime import runtime
from stromboli.testkit.builders import (
    make_command,
    make_job,
    make_node,
    make_pod,
    make_queue,
    make_task,
    tombstone_of,
)
from stromboli.testkit.doubles import interruptible_bus

J = "default/j1"


@pytest.fixture(
    params=[None, service_harness.SEED, service_harness.SEED + 1],
    ids=["in order", "disorder 1", "disorder 2"],
)
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with service_harness.set_up(tmp_path, request.param) as made:
        await made.submit(make_node())
        yield made


async def enqueued(harness: Harness, replicas: int = 2, **job: Any) -> scheduling.DecisionAnswered:
    await harness.submit(make_job(tasks=[make_task(replicas=replicas)], **job))
    decision = await harness.enqueue(await harness.group(J))
    await harness.sent(topics.BATCH_EVENTS, batch.JobPhaseChanged, lambda it: it.job == J)
    return await harness.answer(decision)


async def test_a_job_goes_through_its_life_cycle(harness: Harness) -> None:
    async with harness.controller():
        answer = await enqueued(harness)
        assert answer.enqueue == "executed"
        pods = await harness.pods(2)
        decision = await harness.place(await harness.group(J), pods)
        placed = await harness.answer(decision)
        assert [it.result for it in placed.tasks] == ["executed", "executed"]
        for pod in await harness.pods(2):
            assert (pod.spec.node_name, pod.metadata.annotation(keys.DECISION)) == ("n1", decision)
            assert pod.metadata.annotation("meant-for") == pod.metadata.name
            await harness.report(pod, "Running")
        await harness.job(J, "Running")
        for pod in await harness.pods(2):
            await harness.report(pod, "Succeeded")
        done = await harness.job(J, "Completed")
        assert done.status.succeeded == 2
        await harness.sent(
            topics.BATCH_EVENTS, batch.JobPhaseChanged, lambda it: it.after == "Completed"
        )
    assert harness.phases() == ["Pending", "Running", "Completed"]


async def test_what_always_exists_is_created_and_open(harness: Harness) -> None:
    async with harness.controller():
        for name in ("root", "default"):
            await harness.until(kinds.QUEUES, name, lambda it: it.status.state == "Open")


async def test_plugins_objects_come_and_go_with_the_job(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness, 1, plugins={"svc": (), "env": ()})
        assert await harness.names(kinds.SERVICES) == ["j1"]
        assert await harness.names(kinds.NETWORK_POLICIES) == ["j1"]
        assert "j1-svc" in await harness.names(kinds.CONFIG_MAPS)
        (pod,) = await harness.pods(1)
        await harness.report(pod, "Succeeded")
        await harness.until(kinds.JOBS, J, lambda it: it.status.succeeded == 1)
        await harness.until(
            kinds.JOBS,
            J,
            lambda it: it.status.state.phase == "Completed" and not it.status.controlled_resources,
        )
        assert await harness.names(kinds.SERVICES) == []


async def test_a_deleted_job_leaves_nothing_and_is_reported(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness)
        await harness.pods(2)
        await harness.cluster.delete(kinds.JOBS, "default", "j1")
        assert (
            await harness.sent(topics.BATCH_EVENTS, batch.JobDeleted, lambda it: it.job == J)
        ).uid
        assert await harness.pods(0) == []


async def test_a_bind_of_another_uid_is_refused_and_the_rest_is_done(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness)
        one, two = await harness.pods(2)
        group = await harness.group(J)
        binds = [
            scheduling.Bind(namespace="default", pod=it.metadata.name, uid=uid, node="n1")
            for it, uid in ((one, "another"), (two, two.metadata.uid))
        ]
        decision = await harness.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, binds=tuple(binds)
        )
        answer = await harness.answer(decision)
        assert [(it.result, it.reason) for it in answer.tasks] == [
            ("refused", "PodGone"),
            ("executed", ""),
        ]


async def test_an_eviction_deletes_the_pod_and_spares_a_finished_one(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness, 2)
        one, two = await harness.pods(2)
        await harness.answer(await harness.place(await harness.group(J), [one, two]))
        await harness.report(one, "Succeeded")
        await harness.report(two, "Running")
        group = await harness.group(J)
        decision = await harness.evict(group, one, two, reason="reclaim")
        answer = await harness.answer(decision)
        assert [it.result for it in answer.tasks] == ["refused", "executed"]


async def test_a_pod_that_is_evicted_at_once_was_preempted(harness: Harness) -> None:
    """It is marked before it is deleted, as Kubernetes does, so that policies by cause act."""
    policy = LifecyclePolicy(event="Preempted", action="RestartPod", max_retries=1)
    async with harness.controller():
        await enqueued(harness, 2, policies=[policy])
        pods = await harness.pods(2)
        group = await harness.group(J)
        await harness.answer(await harness.place(group, pods))
        for pod in pods:
            await harness.report(pod, "Running")
        await harness.job(J, "Running")
        one = pods[0].metadata
        decision = await harness.evict(group, pods[0])
        await harness.answer(decision)
        await harness.until(kinds.JOBS, J, lambda job: job.status.policy_retries == {"/0": 1})
        sent = await harness.sent(
            topics.BATCH_EVENTS,
            batch.TaskChanged,
            lambda it: it.pod_uid == one.uid and it.after == "Terminating",
        )
        assert sent.reason == "Preempted"


@pytest.mark.parametrize("harness", [None, 1, 2, 1027], indirect=True)
async def test_an_evicted_pod_is_notified_first_and_ends_at_the_announced_time(
    harness: Harness,
) -> None:
    """Also after a restart of the controller, or if another client writes the pod concurrently
    (1027); meanwhile other decisions are executed.
    """
    async with harness.controller(max_inflight_decisions=1):
        await enqueued(harness, 2)
        one, two = await harness.pods(2)
        await harness.answer(await harness.place(await harness.group(J), [one]))
        await harness.report(one, "Running")
        group = await harness.group(J)
        decision = await harness.evict(group, one, notice_s=3600.0)
        sent = await harness.until(
            kinds.PODS,
            one.metadata.key,
            lambda it: any(each.type == "DisruptionTarget" for each in it.status.conditions),
        )
        due = sent.metadata.annotation(keys.EVICTED_AT)
        assert due
        assert sent.metadata.deletion_timestamp is None
        await harness.answer(await harness.place(group, [two]))
    harness.ahead = timedelta(hours=1)
    async with harness.controller(sync_max_age_s=10**6):
        answer = await harness.answer(decision)
        assert [it.result for it in answer.tasks] == ["executed"]


async def test_a_decision_is_answered_once_for_all_however_often_it_comes(harness: Harness) -> None:
    """In disorder the log repeats decisions and the cluster loses answers."""
    async with harness.controller():
        await enqueued(harness, 5)
        group, pods = await harness.group(J), await harness.pods(5)
        decisions = [await harness.place(group, [pod]) for pod in pods]
        for decision in decisions:
            await harness.answer(decision)
    answers = harness.all_seen(topics.OUTCOMES, scheduling.DecisionAnswered)
    for decision in decisions:
        results = {it.tasks[0].result for it in answers if it.decision == decision}
        assert results == {"executed"}


async def test_answers_say_from_where_a_restart_has_to_read(harness: Harness) -> None:
    async with harness.controller():
        answer = await enqueued(harness)
        last = await harness.bus.last_record(topics.DECISIONS)
        assert last is not None
        assert answer.unanswered_from <= last.offset
        assert answer.outcomes_from <= last.offset + 100
        *_, opened = [it for it in harness.read[topics.OUTCOMES.name] if it.key == log.OPENED_KEY]
        assert answer.outcomes_from > opened.offset


async def test_a_decision_for_a_pod_group_that_is_deleted_is_refused(harness: Harness) -> None:
    async with harness.controller():
        decision = await harness.decide(pod_group="default/none", pod_group_uid="u", enqueue=True)
        assert (await harness.answer(decision)).enqueue == "refused"


async def test_records_of_sessions_are_no_decisions(harness: Harness) -> None:
    async with harness.controller():
        await harness.submit(make_job(name="later"))
        await harness.group("default/later")
        recorded = scheduling.SessionRecorded(
            session=1, offsets={}, now=runtime.utc_now(), configuration=""
        )
        draft = envelope.Draft(
            topic=topics.DECISIONS, key="$session", message=recorded, time=runtime.utc_now()
        )
        await harness.append_decision(draft)
        decision = await harness.enqueue(await harness.group("default/later"))
        assert (await harness.answer(decision)).enqueue == "executed"


async def test_a_command_is_executed(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness)
        await harness.submit(make_command("c1", "TerminateJob", await harness.job(J, "Pending")))
        await harness.job(J, "Terminated")
        await harness.sent(
            topics.BATCH_EVENTS, batch.CommandAccepted, lambda it: it.command == "c1"
        )
        assert await harness.names(kinds.COMMANDS) == []


async def test_a_finished_job_goes_when_its_time_is_up(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness, 1, ttl_seconds_after_finished=0)
        (pod,) = await harness.pods(1)
        await harness.report(pod, "Succeeded")
        await harness.sent(topics.BATCH_EVENTS, batch.JobDeleted, lambda it: it.job == J)


async def test_the_next_controller_continues_where_the_last_one_stopped(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness, 3)
        pods = await harness.pods(3)
    await harness.cluster.delete(
        kinds.PODS, "default", pods[0].metadata.name, uid=pods[0].metadata.uid, grace_seconds=0
    )
    decision = await harness.place(await harness.group(J), pods[1:])
    async with harness.controller():
        answer = await harness.answer(decision)
        assert [it.result for it in answer.tasks] == ["executed", "executed"]
        again = await harness.pods(3)
    assert {it.metadata.name for it in again} == {it.metadata.name for it in pods}
    assert harness.phases() == ["Pending"], "nothing is told twice"


async def test_jobs_of_other_schedulers_are_not_changed(harness: Harness) -> None:
    async with harness.controller():
        await harness.submit(make_job("theirs", scheduler="default-scheduler"))
        await enqueued(harness)
        theirs = await harness.until(kinds.JOBS, "default/theirs", lambda _: True)
    assert theirs.status.state.phase == ""


async def test_many_jobs_do_not_wait_for_a_large_one(tmp_path: Path) -> None:
    """A job waits for the requests of another one that are ahead of its own, which are at most
    ``STAGE_WORKERS``. Both jobs are admitted while no controller runs, so that the next one begins
    them together. Without faults, which delay one of the two."""
    few = 32  # requests that begin while the small job's phase is written
    async with service_harness.set_up(tmp_path, None) as harness:
        async with harness.controller():
            await harness.submit(make_job("large", tasks=[make_task(replicas=300)]))
            large = await harness.group("default/large")
            await harness.submit(make_job("small"))
            small = await harness.group("default/small")
        await harness.enqueue(large)
        await harness.enqueue(small)
        behind = (await harness.cluster.list(kinds.PODS)).resource_version
        created: list[str] = []
        async with (
            harness.controller(max_inflight_requests=2),
            contextlib.aclosing(harness.cluster.watch(kinds.PODS, behind)) as changes,
        ):
            async for event in changes:
                if event.type == "ADDED":
                    created.append(kinds.PODS.decode(event.object).metadata.name)
                if created[-1:] == ["small-worker-0"]:
                    break
    assert len(created) - 1 <= command_executor.STAGE_WORKERS + few


async def test_a_controller_stopped_in_the_middle_leaves_nothing_double(harness: Harness) -> None:
    async with harness.controller(max_inflight_requests=4):
        await harness.submit(make_job(tasks=[make_task(replicas=40)]))
        await harness.enqueue(await harness.group(J))
        await harness.until(kinds.PODS, "default/j1-worker-3", lambda _: True)
    async with harness.controller():
        pods = await harness.pods(40)
        await harness.until(kinds.JOBS, J, lambda job: job.status.pending == 40)
    assert {pod.metadata.name for pod in pods} == {f"j1-worker-{i}" for i in range(40)}


async def test_a_tree_of_queues_is_closed_and_opened_though_the_controller_changes(
    harness: Harness,
) -> None:
    """The next controller finishes what the previous one started; the queue's counts are always
    updated.
    """
    for name, parent in (("org", "root"), ("team", "org"), ("leaf", "team")):
        await harness.submit(make_queue(name, parent=parent, state=""))
    async with harness.controller():
        await enqueued(harness, 2, queue="leaf")
        await harness.answer(await harness.place(await harness.group(J), await harness.pods(2)))
        await harness.until(
            kinds.QUEUES, "root", lambda it: (it.status.allocated or {}).get("pods") == "2"
        )
        org = await harness.until(kinds.QUEUES, "org", lambda it: it.status.state == "Open")
        await harness.submit(make_command("c1", "CloseQueue", org))
        await harness.until(kinds.QUEUES, "org", lambda it: it.status.state == "Closed")
    async with harness.controller():
        await harness.until(kinds.QUEUES, "leaf", lambda it: it.status.state == "Closing")
        for pod in await harness.pods(2):
            await harness.report(pod, "Succeeded")
        await harness.job(J, "Completed")
        await harness.until(kinds.QUEUES, "leaf", lambda it: it.status.state == "Closed")
        await harness.until(kinds.QUEUES, "root", lambda it: it.status.allocated == {})
        assert await harness.names(kinds.COMMANDS) == []
        await harness.submit(make_command("c2", "OpenQueue", org))
    async with harness.controller():
        await harness.until(kinds.QUEUES, "leaf", lambda it: it.status.state == "Open")


async def test_pods_of_a_replica_set_are_placed_though_the_controller_changes(
    harness: Harness,
) -> None:
    """Not a job of Stromboli: a label names the queue, and all objects are deleted with
    the owner.
    """
    kind, labels = kinds.REPLICA_SETS, {keys.QUEUE_NAME: "default"}
    metadata = {"name": "web", "annotations": {keys.GROUP_MIN_MEMBER: "2"}}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    made = await harness.cluster.create(kind, "default", msgspec.json.encode(body))
    owner = kinds.metadata_of(made)
    refers = meta.OwnerReference(
        api_version=kind.api_version, kind=kind.kind, name="web", uid=owner.uid, controller=True
    )
    for name in ("web-a", "web-b"):
        pod = make_pod(name, labels=labels)
        owned = msgspec.structs.replace(pod.metadata, owner_references=(refers,))
        await harness.submit(msgspec.structs.replace(pod, metadata=owned))
    key = f"default/podgroup-{owner.uid}"
    async with harness.controller():
        group = await harness.until(kinds.POD_GROUPS, key, lambda it: it.spec.min_member == 2)
    async with harness.controller():
        for name in ("web-a", "web-b"):
            await harness.until(
                kinds.PODS,
                f"default/{name}",
                lambda it: it.metadata.annotation(keys.GROUP_NAME) == group.metadata.name,
            )
        await harness.answer(await harness.enqueue(group))
        placed = await harness.answer(await harness.place(group, await harness.pods(2)))
        assert [it.result for it in placed.tasks] == ["executed", "executed"]
        for pod in await harness.pods(2):
            await harness.report(pod, "Running")
        await harness.until(kinds.POD_GROUPS, key, lambda it: it.status.phase == "Running")
    async with harness.controller():
        now = {"metadata": {"annotations": {keys.GROUP_MIN_MEMBER: "1"}}}
        changed = msgspec.json.encode(now)
        await harness.cluster.patch(kind, "default", "web", changed, patch_type="merge")
        await harness.until(kinds.POD_GROUPS, key, lambda it: it.spec.min_member == 1)
        again = {"metadata": {"annotations": {keys.PREEMPTABLE: "true"}}}
        changed = msgspec.json.encode(again)
        await harness.cluster.patch(kind, "default", "web", changed, patch_type="merge")
        await harness.until(
            kinds.POD_GROUPS, key, lambda it: it.metadata.annotation(keys.PREEMPTABLE) == "true"
        )
        await harness.cluster.delete(kind, "default", "web")
        while (listing := await harness.cluster.list(kinds.POD_GROUPS)).items:
            await harness.change(kinds.POD_GROUPS, listing.resource_version)


async def test_a_gang_that_was_sent_back_is_enqueued_again_whatever_was_seen_of_it(
    harness: Harness,
) -> None:
    """The scheduler may know sooner than the controller that its PodGroup waits outside again."""
    back = msgspec.json.encode({"status": {"phase": "Pending"}})
    async with harness.controller():
        await enqueued(harness)
        group = await harness.group(J)
        namespace, name = group.metadata.namespace, group.metadata.name
        for _ in range(5):
            await harness.cluster.patch(kinds.POD_GROUPS, namespace, name, back, patch_type="merge")
            answer = await harness.answer(await harness.enqueue(group))
            raw = await harness.cluster.get(kinds.POD_GROUPS, namespace, name)
            entered = kinds.POD_GROUPS.decode(raw)
            assert entered.status.phase == "Inqueue"
            assert (answer.enqueue, answer.enqueued_version) == (
                "executed",
                entered.metadata.version,
            )


async def test_repeated_decisions_enqueue_no_gang_twice(harness: Harness) -> None:
    """They were answered, but an earlier one is still in hand when the controller stops."""
    back = msgspec.json.encode({"status": {"phase": "Pending"}})
    async with harness.controller():
        await enqueued(harness)
        one, _ = await harness.pods(2)
        group = await harness.group(J)
        await harness.evict(group, one, notice_s=86_400)
        namespace, name = group.metadata.namespace, group.metadata.name
        await harness.cluster.patch(kinds.POD_GROUPS, namespace, name, back, patch_type="merge")
        entries = []
        for _ in range(3):
            entries.append(await harness.enqueue(group))
            await harness.answer(entries[-1])
            await harness.cluster.patch(kinds.POD_GROUPS, namespace, name, back, patch_type="merge")
    async with harness.controller():
        again = [await harness.republish(decision) for decision in entries]
        answers = [await harness.answer_at(offset) for offset in again]
        raw = await harness.cluster.get(kinds.POD_GROUPS, namespace, name)
        seen = kinds.POD_GROUPS.decode(raw)
        assert seen.status.phase == "Pending"
        for answer in answers:
            assert answer.enqueue == "executed"
            assert 0 < answer.enqueued_version <= seen.metadata.version
        new = await harness.answer(await harness.enqueue(group))
        assert new.enqueued_version > seen.metadata.version, "a new decision does"


async def test_a_replaced_scheduler_is_not_obeyed_by_a_controller_that_was_away(
    harness: Harness,
) -> None:
    """Nothing else protects nodes against decisions that the paused scheduler made on old data."""
    paused = await harness.bus.open_writer("scheduler", "paused")
    async with harness.controller():
        await enqueued(harness)
        await harness.submit(make_job("j2"))
        other = await harness.group("default/j2")
    late = scheduling.StatementDecided(
        session=1, pod_group=other.metadata.key, pod_group_uid=other.metadata.uid, enqueue=True
    )
    draft = envelope.Draft(
        topic=topics.DECISIONS, key=late.pod_group, message=late, time=runtime.utc_now()
    )
    (zombie,) = await paused.append(draft)
    async with harness.controller():
        await harness.answer(await harness.enqueue(await harness.group(J)))
    answered = harness.all_seen(topics.OUTCOMES, scheduling.DecisionAnswered)
    assert zombie.id not in {answer.decision for answer in answered}
    assert (await harness.group("default/j2")).status.phase == "Pending"


async def test_a_replaced_monitor_is_not_believed_after_the_log_was_away(harness: Harness) -> None:
    """It resumes while the controller cannot read, and reports a job as deleted."""
    assert harness.replaced_monitor is not None
    breaking_bus = interruptible_bus.InterruptibleBus(harness.bus)
    harness.bus = breaking_bus
    async with harness.controller():
        await enqueued(harness)
        one, two = await harness.pods(2)
        async with breaking_bus.cut(folds=1):
            await harness.replaced_monitor.append(tombstone_of(await harness.job(J, "Pending")))
        await harness.answer(await harness.place(await harness.group(J), [one, two]))
        for pod in (one, two):
            await harness.report(pod, "Running")
        await harness.job(J, "Running")
    assert harness.all_seen(topics.BATCH_EVENTS, batch.JobDeleted) == []
