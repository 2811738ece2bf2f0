"""A bug that one object triggers stops the handling of no other object."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.controller.tests.support import service_harness
from stromboli.controller.core.store import controller_cache, event_history, queue_accounting
from stromboli.shared import errors, keys, snapshot
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import records
from stromboli.testkit.builders import make_job, make_pod, make_record, make_task, snapshot_of

GOOD, BAD = "default/good", "default/bad"


class FaultyCluster:
    """A client with a bug that requests about some objects trigger."""

    def __init__(self, cluster: port.Cluster) -> None:
        self._cluster = cluster
        self.faulty: set[tuple[str, str]] = set()
        """(verb, the beginning of a name)."""

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._cluster, verb)
        if verb not in ("create", "patch", "delete", "bind"):
            return call

        async def called(*given: Any, **named: Any) -> Any:
            text = " ".join(str(it) for it in given if isinstance(it, str | bytes))
            if any(verb == what and name in text for what, name in self.faulty):
                raise ZeroDivisionError("a bug")
            return await call(*given, **named)

        return called


def faulty(harness: service_harness.Harness, *triggers: tuple[str, str]) -> FaultyCluster:
    cluster = FaultyCluster(harness.cluster)
    cluster.faulty.update(triggers)
    client: Any = cluster
    harness.cluster = client
    return cluster


async def test_an_internal_error_in_a_job_is_reported_and_others_continue(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(records.DEADLINE_S),
        service_harness.set_up(tmp_path, faults=None) as harness,
    ):
        cluster = faulty(harness, ("create", "bad-"))
        async with harness.controller():
            await harness.submit(make_job("bad"))
            job = await harness.until(
                kinds.JOBS, BAD, lambda it: bool(it.metadata.annotation(keys.HELD))
            )
            assert "ZeroDivisionError" in (job.metadata.annotation(keys.HELD) or "")
            await harness.submit(make_job("good", tasks=[make_task(replicas=1)]))
            await harness.answer(await harness.enqueue(await harness.group(GOOD)))
            await harness.pods(1)
            cluster.faulty.clear()
            await harness.until(kinds.JOBS, BAD, lambda it: not it.metadata.annotation(keys.HELD))
            await harness.group(BAD)


async def test_a_bind_that_fails_by_a_bug_is_answered_and_others_are_executed(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(records.DEADLINE_S),
        service_harness.set_up(tmp_path, faults=None) as harness,
    ):
        faulty(harness, ("bind", "good-worker-0"))
        async with harness.controller():
            await harness.submit(make_job("good", tasks=[make_task(replicas=2)]))
            await harness.answer(await harness.enqueue(await harness.group(GOOD)))
            group, pods = await harness.group(GOOD), await harness.pods(2)
            for _ in range(2):  # the process continues: a second decision is answered, too
                answer = await harness.answer(await harness.place(group, pods))
                results = {it.pod: (it.result, it.reason) for it in answer.tasks}
                assert results["good-worker-0"] == ("refused", "InternalError")
            assert (await harness.pods(2))[1].spec.node_name == "n1"


async def test_an_event_that_fails_by_a_bug_keeps_back_no_other(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(records.DEADLINE_S),
        service_harness.set_up(tmp_path, faults=None) as harness,
    ):
        faulty(harness, ("create", '"kind":"Event","lastTimestamp"'))
        async with harness.controller():
            await harness.submit(make_job("bad"))
            await harness.submit(make_job("good"))
            await harness.group(BAD)
            await harness.group(GOOD)


class FaultyBooks(queue_accounting.QueueAccounting):
    """A bug that pods with this name trigger, in their indexing."""

    def follow(
        self, change: snapshot.Change, group: str | None
    ) -> Iterator[queue_accounting.Touched]:
        if change.key == "default/bad" and not isinstance(change.after, snapshot.Unknown):
            raise ZeroDivisionError
        yield from super().follow(change, group)


def test_an_object_that_cannot_be_indexed_is_unknown_and_others_are_folded() -> None:
    cache = controller_cache.ControllerCache(("volcano",), event_history.EventHistory())
    cache.queue_usage = FaultyBooks(5)
    folded = cache.apply(make_record(snapshot_of(make_pod("bad"))))
    assert "ZeroDivisionError" in folded.undecodable
    assert set(cache.unknown_pods()) == {"default/bad"}
    assert cache.apply(make_record(snapshot_of(make_pod("good")))).undecodable == ""
    assert cache.pod("default/good") is not None


class Inconsistent(queue_accounting.QueueAccounting):
    """A rule across objects that does not hold."""

    def follow(
        self, change: snapshot.Change, group: str | None
    ) -> Iterator[queue_accounting.Touched]:
        raise errors.InvariantError(change.key)


def test_a_broken_invariant_across_objects_is_not_isolated() -> None:
    cache = controller_cache.ControllerCache(("volcano",), event_history.EventHistory())
    cache.queue_usage = Inconsistent(5)
    with pytest.raises(errors.InvariantError):
        cache.apply(make_record(snapshot_of(make_pod("good"))))
