"""The service on the embedded log and cluster: the same code as on the real ones."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.tests import stage as stages
from services.controller.tests.stage import Stage
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.batch import LifecyclePolicy
from stromboli.shared.messages import batch, log, scheduling
from stromboli.shared.runtime import runtime
from stromboli.testkit import breaking
from stromboli.testkit.builders import (
    gone,
    make_command,
    make_job,
    make_node,
    make_pod,
    make_queue,
    make_task,
)

J = "default/j1"


@pytest.fixture(
    params=[None, stages.SEED, stages.SEED + 1], ids=["in order", "disorder 1", "disorder 2"]
)
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with stages.set_up(tmp_path, request.param) as made:
        await made.submit(make_node())
        yield made


async def enqueued(stage: Stage, replicas: int = 2, **job: Any) -> scheduling.DecisionAnswered:
    await stage.submit(make_job(tasks=[make_task(replicas=replicas)], **job))
    decision = await stage.enqueue(await stage.group(J))
    await stage.told(topics.BATCH_EVENTS, batch.JobPhaseChanged, lambda it: it.job == J)
    return await stage.answer(decision)


async def test_a_job_goes_all_its_way(stage: Stage) -> None:
    async with stage.controller():
        answer = await enqueued(stage)
        assert answer.enqueue == "executed"
        pods = await stage.pods(2)
        decision = await stage.place(await stage.group(J), pods)
        placed = await stage.answer(decision)
        assert [it.result for it in placed.tasks] == ["executed", "executed"]
        for pod in await stage.pods(2):
            assert (pod.spec.node_name, pod.metadata.annotation(keys.DECISION)) == ("n1", decision)
            assert pod.metadata.annotation("meant-for") == pod.metadata.name
            await stage.report(pod, "Running")
        await stage.job(J, "Running")
        for pod in await stage.pods(2):
            await stage.report(pod, "Succeeded")
        done = await stage.job(J, "Completed")
        assert done.status.succeeded == 2
        await stage.told(
            topics.BATCH_EVENTS, batch.JobPhaseChanged, lambda it: it.after == "Completed"
        )
    assert stage.phases() == ["Pending", "Running", "Completed"]


async def test_what_always_exists_is_made_and_open(stage: Stage) -> None:
    async with stage.controller():
        for name in ("root", "default"):
            await stage.until(kinds.QUEUES, name, lambda it: it.status.state == "Open")


async def test_plugins_objects_come_and_go_with_the_job(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage, 1, plugins={"svc": (), "env": ()})
        assert await stage.names(kinds.SERVICES) == ["j1"]
        assert await stage.names(kinds.NETWORK_POLICIES) == ["j1"]
        assert "j1-svc" in await stage.names(kinds.CONFIG_MAPS)
        (pod,) = await stage.pods(1)
        await stage.report(pod, "Succeeded")
        await stage.until(kinds.JOBS, J, lambda it: it.status.succeeded == 1)
        await stage.until(
            kinds.JOBS,
            J,
            lambda it: it.status.state.phase == "Completed" and not it.status.controlled_resources,
        )
        assert await stage.names(kinds.SERVICES) == []


async def test_a_deleted_job_leaves_nothing_and_is_told(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage)
        await stage.pods(2)
        await stage.cluster.delete(kinds.JOBS, "default", "j1")
        assert (await stage.told(topics.BATCH_EVENTS, batch.JobDeleted, lambda it: it.job == J)).uid
        assert await stage.pods(0) == []


async def test_a_bind_of_another_uid_is_refused_and_the_rest_is_done(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage)
        one, two = await stage.pods(2)
        group = await stage.group(J)
        binds = [
            scheduling.Bind(namespace="default", pod=it.metadata.name, uid=uid, node="n1")
            for it, uid in ((one, "another"), (two, two.metadata.uid))
        ]
        decision = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, binds=tuple(binds)
        )
        answer = await stage.answer(decision)
        assert [(it.result, it.reason) for it in answer.tasks] == [
            ("refused", "PodGone"),
            ("executed", ""),
        ]


async def test_an_eviction_deletes_the_pod_and_spares_a_finished_one(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage, 2)
        one, two = await stage.pods(2)
        await stage.answer(await stage.place(await stage.group(J), [one, two]))
        await stage.report(one, "Succeeded")
        await stage.report(two, "Running")
        group = await stage.group(J)
        evictions = tuple(
            scheduling.Eviction(
                namespace="default", pod=it.metadata.name, uid=it.metadata.uid, reason="reclaim"
            )
            for it in (one, two)
        )
        decision = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=evictions
        )
        answer = await stage.answer(decision)
        assert [it.result for it in answer.tasks] == ["refused", "executed"]


async def test_a_pod_that_is_evicted_at_once_was_preempted_all_the_same(stage: Stage) -> None:
    """It is marked before it is deleted, as Kubernetes does, so that policies by cause act."""
    policy = LifecyclePolicy(event="Preempted", action="RestartPod", max_retries=1)
    async with stage.controller():
        await enqueued(stage, 2, policies=[policy])
        pods = await stage.pods(2)
        group = await stage.group(J)
        await stage.answer(await stage.place(group, pods))
        for pod in pods:
            await stage.report(pod, "Running")
        await stage.job(J, "Running")
        one = pods[0].metadata
        eviction = scheduling.Eviction(
            namespace="default", pod=one.name, uid=one.uid, reason="preempt"
        )
        decision = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=(eviction,)
        )
        await stage.answer(decision)
        await stage.until(kinds.JOBS, J, lambda job: job.status.policy_retries == {"/0": 1})
        told = await stage.told(
            topics.BATCH_EVENTS,
            batch.TaskChanged,
            lambda it: it.pod_uid == one.uid and it.after == "Terminating",
        )
        assert told.reason == "Preempted"


@pytest.mark.parametrize("stage", [None, 1, 2, 1027], indirect=True)
async def test_an_evicted_pod_is_told_first_and_ends_when_it_was_told(stage: Stage) -> None:
    """Also if the controller is another one by then, or if somebody else writes the pod at the same
    moment (1027); meanwhile it goes on with its work, however many wait."""
    async with stage.controller(decisions_in_hand=1):
        await enqueued(stage, 2)
        one, two = await stage.pods(2)
        await stage.answer(await stage.place(await stage.group(J), [one]))
        await stage.report(one, "Running")
        group = await stage.group(J)
        eviction = scheduling.Eviction(
            namespace="default",
            pod=one.metadata.name,
            uid=one.metadata.uid,
            reason="preempt",
            notice_s=3600.0,
        )
        decision = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=(eviction,)
        )
        told = await stage.until(
            kinds.PODS,
            one.metadata.key,
            lambda it: any(each.type == "DisruptionTarget" for each in it.status.conditions),
        )
        due = told.metadata.annotation(keys.EVICTED_AT)
        assert due
        assert told.metadata.deletion_timestamp is None
        await stage.answer(await stage.place(group, [two]))
    stage.ahead = timedelta(hours=1)
    async with stage.controller(sync_max_age_s=10**6):
        answer = await stage.answer(decision)
        assert [it.result for it in answer.tasks] == ["executed"]


async def test_a_decision_is_answered_once_for_all_however_often_it_comes(stage: Stage) -> None:
    """In disorder the log repeats decisions and the cluster loses answers."""
    async with stage.controller():
        await enqueued(stage, 5)
        group, pods = await stage.group(J), await stage.pods(5)
        decisions = [await stage.place(group, [pod]) for pod in pods]
        for decision in decisions:
            await stage.answer(decision)
    answers = stage.all_told(topics.OUTCOMES, scheduling.DecisionAnswered)
    for decision in decisions:
        results = {it.tasks[0].result for it in answers if it.decision == decision}
        assert results == {"executed"}


async def test_answers_say_from_where_a_restart_has_to_read(stage: Stage) -> None:
    async with stage.controller():
        answer = await enqueued(stage)
        last = await stage.bus.last(topics.DECISIONS)
        assert last is not None
        assert answer.unanswered_from <= last.offset
        assert answer.outcomes_from <= last.offset + 100
        *_, opened = [it for it in stage.read[topics.OUTCOMES.name] if it.key == log.OPENED_KEY]
        assert answer.outcomes_from > opened.offset


async def test_a_decision_for_a_pod_group_that_is_gone_is_refused(stage: Stage) -> None:
    async with stage.controller():
        decision = await stage.decide(pod_group="default/none", pod_group_uid="u", enqueue=True)
        assert (await stage.answer(decision)).enqueue == "refused"


async def test_records_of_sessions_are_no_decisions(stage: Stage) -> None:
    async with stage.controller():
        await stage.submit(make_job(name="later"))
        await stage.group("default/later")
        recorded = scheduling.SessionRecorded(
            session=1, offsets={}, now=runtime.utc_now(), configuration=""
        )
        draft = envelope.Draft(
            topic=topics.DECISIONS, key="$session", message=recorded, time=runtime.utc_now()
        )
        await stage.append_decision(draft)
        decision = await stage.enqueue(await stage.group("default/later"))
        assert (await stage.answer(decision)).enqueue == "executed"


async def test_a_command_is_carried_out(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage)
        await stage.submit(make_command("c1", "TerminateJob", await stage.job(J, "Pending")))
        await stage.job(J, "Terminated")
        await stage.told(topics.BATCH_EVENTS, batch.CommandTaken, lambda it: it.command == "c1")
        assert await stage.names(kinds.COMMANDS) == []


async def test_a_finished_job_goes_when_its_time_is_up(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage, 1, ttl_seconds_after_finished=0)
        (pod,) = await stage.pods(1)
        await stage.report(pod, "Succeeded")
        await stage.told(topics.BATCH_EVENTS, batch.JobDeleted, lambda it: it.job == J)


async def test_the_next_controller_goes_on_where_the_last_one_stopped(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage, 3)
        pods = await stage.pods(3)
    await stage.cluster.delete(
        kinds.PODS, "default", pods[0].metadata.name, uid=pods[0].metadata.uid, grace_seconds=0
    )
    decision = await stage.place(await stage.group(J), pods[1:])
    async with stage.controller():
        answer = await stage.answer(decision)
        assert [it.result for it in answer.tasks] == ["executed", "executed"]
        again = await stage.pods(3)
    assert {it.metadata.name for it in again} == {it.metadata.name for it in pods}
    assert stage.phases() == ["Pending"], "nothing is told twice"


async def test_other_peoples_jobs_are_left_alone(stage: Stage) -> None:
    async with stage.controller():
        await stage.submit(make_job("theirs", scheduler="default-scheduler"))
        await enqueued(stage)
        theirs = await stage.until(kinds.JOBS, "default/theirs", lambda _: True)
    assert theirs.status.state.phase == ""


async def test_many_jobs_do_not_wait_for_a_large_one(stage: Stage) -> None:
    """Writes are served in turn: the large job's pods do not come first."""
    if stage.disorder is not None:
        return
    async with stage.controller(writes_at_once=2):
        await stage.submit(make_job("large", tasks=[make_task(replicas=300)]))
        large = await stage.group("default/large")
        await stage.submit(make_job("small"))
        small = await stage.group("default/small")
        await stage.enqueue(large)
        await stage.enqueue(small)
        await stage.until(kinds.PODS, "default/small-worker-0", lambda _: True)
        made = await stage.names(kinds.PODS)
    assert len(made) < 300


async def test_a_controller_stopped_in_the_middle_leaves_nothing_double(stage: Stage) -> None:
    async with stage.controller(writes_at_once=4):
        await stage.submit(make_job(tasks=[make_task(replicas=40)]))
        await stage.enqueue(await stage.group(J))
        await stage.until(kinds.PODS, "default/j1-worker-3", lambda _: True)
    async with stage.controller():
        pods = await stage.pods(40)
        await stage.until(kinds.JOBS, J, lambda job: job.status.pending == 40)
    assert {pod.metadata.name for pod in pods} == {f"j1-worker-{i}" for i in range(40)}


async def test_a_tree_of_queues_is_closed_and_opened_though_the_controller_changes(
    stage: Stage,
) -> None:
    """What one controller began the next one ends; the queue's numbers are kept all the time."""
    for name, parent in (("org", "root"), ("team", "org"), ("leaf", "team")):
        await stage.submit(make_queue(name, parent=parent, state=""))
    async with stage.controller():
        await enqueued(stage, 2, queue="leaf")
        await stage.answer(await stage.place(await stage.group(J), await stage.pods(2)))
        await stage.until(
            kinds.QUEUES, "root", lambda it: (it.status.allocated or {}).get("pods") == "2"
        )
        org = await stage.until(kinds.QUEUES, "org", lambda it: it.status.state == "Open")
        await stage.submit(make_command("c1", "CloseQueue", org))
        await stage.until(kinds.QUEUES, "org", lambda it: it.status.state == "Closed")
    async with stage.controller():
        await stage.until(kinds.QUEUES, "leaf", lambda it: it.status.state == "Closing")
        for pod in await stage.pods(2):
            await stage.report(pod, "Succeeded")
        await stage.job(J, "Completed")
        await stage.until(kinds.QUEUES, "leaf", lambda it: it.status.state == "Closed")
        await stage.until(kinds.QUEUES, "root", lambda it: it.status.allocated == {})
        assert await stage.names(kinds.COMMANDS) == []
        await stage.submit(make_command("c2", "OpenQueue", org))
    async with stage.controller():
        await stage.until(kinds.QUEUES, "leaf", lambda it: it.status.state == "Open")


async def test_pods_of_a_replica_set_are_placed_though_the_controller_changes(stage: Stage) -> None:
    """No job of ours: a label names the queue, and all goes with the owner."""
    kind, labels = kinds.REPLICA_SETS, {keys.QUEUE_NAME: "default"}
    metadata = {"name": "web", "annotations": {keys.GROUP_MIN_MEMBER: "2"}}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    made = await stage.cluster.create(kind, "default", msgspec.json.encode(body))
    owner = kinds.metadata_of(made)
    refers = meta.OwnerReference(
        api_version=kind.api_version, kind=kind.kind, name="web", uid=owner.uid, controller=True
    )
    for name in ("web-a", "web-b"):
        pod = make_pod(name, labels=labels)
        owned = msgspec.structs.replace(pod.metadata, owner_references=(refers,))
        await stage.submit(msgspec.structs.replace(pod, metadata=owned))
    key = f"default/podgroup-{owner.uid}"
    async with stage.controller():
        group = await stage.until(kinds.POD_GROUPS, key, lambda it: it.spec.min_member == 2)
    async with stage.controller():
        for name in ("web-a", "web-b"):
            await stage.until(
                kinds.PODS,
                f"default/{name}",
                lambda it: it.metadata.annotation(keys.GROUP_NAME) == group.metadata.name,
            )
        await stage.answer(await stage.enqueue(group))
        placed = await stage.answer(await stage.place(group, await stage.pods(2)))
        assert [it.result for it in placed.tasks] == ["executed", "executed"]
        for pod in await stage.pods(2):
            await stage.report(pod, "Running")
        await stage.until(kinds.POD_GROUPS, key, lambda it: it.status.phase == "Running")
    async with stage.controller():
        now = {"metadata": {"annotations": {keys.GROUP_MIN_MEMBER: "1"}}}
        changed = msgspec.json.encode(now)
        await stage.cluster.patch(kind, "default", "web", changed, patch_type="merge")
        await stage.until(kinds.POD_GROUPS, key, lambda it: it.spec.min_member == 1)
        again = {"metadata": {"annotations": {keys.PREEMPTABLE: "true"}}}
        changed = msgspec.json.encode(again)
        await stage.cluster.patch(kind, "default", "web", changed, patch_type="merge")
        await stage.until(
            kinds.POD_GROUPS, key, lambda it: it.metadata.annotation(keys.PREEMPTABLE) == "true"
        )
        await stage.cluster.delete(kind, "default", "web")
        while (found := await stage.cluster.list(kinds.POD_GROUPS)).items:
            await stage.change(kinds.POD_GROUPS, found.resource_version)


async def test_a_gang_that_was_sent_back_is_let_in_again_whatever_was_seen_of_it(
    stage: Stage,
) -> None:
    """The scheduler may know sooner than the controller that its PodGroup waits outside again."""
    back = msgspec.json.encode({"status": {"phase": "Pending"}})
    async with stage.controller():
        await enqueued(stage)
        group = await stage.group(J)
        namespace, name = group.metadata.namespace, group.metadata.name
        for _ in range(5):
            await stage.cluster.patch(kinds.POD_GROUPS, namespace, name, back, patch_type="merge")
            answer = await stage.answer(await stage.enqueue(group))
            raw = await stage.cluster.get(kinds.POD_GROUPS, namespace, name)
            entered = kinds.POD_GROUPS.decode(raw)
            assert entered.status.phase == "Inqueue"
            assert (answer.enqueue, answer.entered_version) == (
                "executed",
                entered.metadata.version,
            )


async def test_decisions_that_come_again_let_nobody_in_a_second_time(stage: Stage) -> None:
    """They were answered, but an earlier one is still in hand when the controller stops."""
    back = msgspec.json.encode({"status": {"phase": "Pending"}})
    async with stage.controller():
        await enqueued(stage)
        one = (await stage.pods(2))[0].metadata
        slow = scheduling.Eviction(
            namespace="default", pod=one.name, uid=one.uid, reason="preempt", notice_s=86_400
        )
        group = await stage.group(J)
        await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=(slow,)
        )
        namespace, name = group.metadata.namespace, group.metadata.name
        await stage.cluster.patch(kinds.POD_GROUPS, namespace, name, back, patch_type="merge")
        entries = []
        for _ in range(3):
            entries.append(await stage.enqueue(group))
            await stage.answer(entries[-1])
            await stage.cluster.patch(kinds.POD_GROUPS, namespace, name, back, patch_type="merge")
    async with stage.controller():
        again = [await stage.republish(decision) for decision in entries]
        answers = [await stage.answer_at(offset) for offset in again]
        raw = await stage.cluster.get(kinds.POD_GROUPS, namespace, name)
        seen = kinds.POD_GROUPS.decode(raw)
        assert seen.status.phase == "Pending"
        for answer in answers:
            assert answer.enqueue == "executed"
            assert 0 < answer.entered_version <= seen.metadata.version
        new = await stage.answer(await stage.enqueue(group))
        assert new.entered_version > seen.metadata.version, "a new decision does"


async def test_a_replaced_scheduler_is_not_obeyed_by_a_controller_that_was_away(
    stage: Stage,
) -> None:
    """Nobody else guards nodes against what it did not know when it was paused."""
    paused = await stage.bus.open_writer("scheduler", "paused")
    async with stage.controller():
        await enqueued(stage)
        await stage.submit(make_job("j2"))
        other = await stage.group("default/j2")
    late = scheduling.StatementDecided(
        session=1, pod_group=other.metadata.key, pod_group_uid=other.metadata.uid, enqueue=True
    )
    draft = envelope.Draft(
        topic=topics.DECISIONS, key=late.pod_group, message=late, time=runtime.utc_now()
    )
    (zombie,) = await paused.append(draft)
    async with stage.controller():
        await stage.answer(await stage.enqueue(await stage.group(J)))
    answered = stage.all_told(topics.OUTCOMES, scheduling.DecisionAnswered)
    assert zombie.id not in {answer.decision for answer in answered}
    assert (await stage.group("default/j2")).status.phase == "Pending"


async def test_a_replaced_monitor_is_not_believed_after_the_log_was_away(stage: Stage) -> None:
    """It wakes up while the controller cannot read, and says that a job is gone."""
    assert stage.replaced_monitor is not None
    breaking_bus = breaking.BreakingBus(stage.bus)
    stage.bus = breaking_bus
    async with stage.controller():
        await enqueued(stage)
        one, two = await stage.pods(2)
        async with breaking_bus.cut(folds=1):
            await stage.replaced_monitor.append(gone(await stage.job(J, "Pending")))
        await stage.answer(await stage.place(await stage.group(J), [one, two]))
        for pod in (one, two):
            await stage.report(pod, "Running")
        await stage.job(J, "Running")
    assert stage.all_told(topics.BATCH_EVENTS, batch.JobDeleted) == []
