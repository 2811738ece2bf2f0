"""What one object triggers stops that object and nothing else; what none can be blamed for stops
the process. The world here has faults that no known object reaches."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions
from services.scheduler.tests.support.harness import POLICY, SchedulerHarness, draft
from stromboli.scheduler.core import schedule
from stromboli.scheduler.core.cache import cluster_cache, quarantine
from stromboli.scheduler.core.cluster import cluster_model
from stromboli.shared import errors, topics
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.messages import cluster
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")
OTHER = builders.make_node("n2", cpu="4")
ODD = {"odd": "yes"}


class OddText(str):
    """Reading it raises."""

    def __len__(self) -> int:
        raise OverflowError("too long")


class FragileWorld(cluster_model.ClusterModel):
    """Fails on objects that are annotated as odd, when all of the change is made; and a session on
    the explanation of a PodGroup that is."""

    def put_pod(
        self, pod: core.Pod, assumed_node: str = "", *, is_evicted: bool = False, key: str = ""
    ) -> None:
        super().put_pod(pod, assumed_node, is_evicted=is_evicted, key=key)
        self._fail(pod)

    def put_node(self, node: core.Node) -> None:
        super().put_node(node)
        self._fail(node)

    def put_queue(self, queue: scheduling.Queue) -> None:
        super().put_queue(queue)
        self._fail(queue)

    def put_pod_group(
        self, group: scheduling.PodGroup, *, is_enqueued: bool = False, key: str = ""
    ) -> None:
        super().put_pod_group(group, is_enqueued=is_enqueued, key=key)
        job = self.job(group.metadata.key)
        if job is not None and group.metadata.annotation("odd"):
            job.start_estimate_text = OddText()

    def settle(self) -> None:
        super().settle()
        if any(each.metadata.annotation("broken") for each in self.nodes.objects):
            raise errors.InvariantError("sums differ")

    def _fail(self, obj: meta.Object) -> None:
        if obj.metadata.annotation("odd"):
            raise OverflowError("Python int too large to convert to C long")


def fragile(*objects: meta.Object) -> SchedulerHarness:
    harness = SchedulerHarness()
    harness.cache = cluster_cache.ClusterCache(POLICY.scheduler_names, make_model=FragileWorld)
    harness.see(*objects)
    harness.cache.model.settle()
    return harness


def odd(found: Any, annotations: Mapping[str, str] = ODD, version: int = 1) -> Any:
    noted = {**(found.metadata.annotations or {}), **annotations}
    metadata = msgspec.structs.replace(
        found.metadata, annotations=noted, resource_version=str(version)
    )
    return msgspec.structs.replace(found, metadata=metadata)


def placed(decided: schedule.SessionResult) -> dict[str, str]:
    return {bind.pod: bind.node for each in decided.decisions for bind in each.binds}


def running(name: str, node: str) -> core.Pod:
    return builders.make_pod(name, cpu="1", node=node, phase="Running")


def test_a_change_that_cannot_be_applied_is_rolled_back_and_its_object_isolated() -> None:
    """The node is closed, since the resources of the pod are unknown; none of its
    changes remains.
    """
    harness = fragile(
        QUEUE, NODE, OTHER, odd(running("bad", "n1")), *default_sessions.gang("fine", 2)
    )
    assert placed(harness.session()) == {"fine-0": "n2", "fine-1": "n2"}
    assert list(harness.cache.model.nodes.excluded) == ["n1"]
    assert harness.used_cpu("n1") == 0
    assert "Pod default/bad is isolated: internal error: OverflowError" in "".join(
        harness.cache.quarantine.complaints()
    )


def test_a_start_isolates_each_object_that_cannot_be_applied() -> None:
    """A second one must not end the process, which would end the same way after a restart."""
    bad = (odd(running("bad", "n1")), odd(running("worse", "n1")))
    harness = SchedulerHarness()
    harness.cache = cluster_cache.ClusterCache(
        POLICY.scheduler_names, is_deferred=True, make_model=FragileWorld
    )
    harness.see(QUEUE, NODE, OTHER, *bad, *default_sessions.gang("fine", 2))
    harness.cache.build()
    assert placed(harness.session()) == {"fine-0": "n2", "fine-1": "n2"}
    assert len(harness.cache.quarantine) == 2


def test_a_rebuilt_model_equals_the_previous_one() -> None:
    """Pods, decisions in flight among them, count as before."""
    harness = fragile(
        QUEUE, NODE, OTHER, running("other", "n2"), *default_sessions.gang("fine", 2, cpu="2")
    )
    first = placed(harness.session())
    before = {name: harness.used_cpu(name) for name in ("n1", "n2")}
    harness.see(odd(running("bad", "n1")))
    assert {name: harness.used_cpu(name) for name in ("n1", "n2")} == before
    assert len(first) == 2
    assert placed(harness.session()) == {}


@pytest.mark.parametrize("kind", ["node", "queue"])
def test_an_isolated_node_or_queue_takes_nothing(kind: str) -> None:
    bad = odd(builders.make_node("n0", cpu="64") if kind == "node" else builders.make_queue("bad"))
    objects = [QUEUE, NODE, bad, *default_sessions.gang("fine", 2)]
    gang = default_sessions.gang("waits", 1)
    if kind == "queue":
        group = builders.make_pod_group("waits", 1, queue="bad", phase="Inqueue")
        gang = [group, *gang[1:]]
    harness = fragile(*objects, *gang)
    found = placed(harness.session())
    assert set(found.values()) == {"n1"}
    assert ("waits-0" in found) is (kind == "node")


def test_a_job_that_a_session_fails_on_is_frozen_and_its_pods_still_count() -> None:
    (group, pod) = default_sessions.gang("bad", 1, cpu="64")
    harness = fragile(QUEUE, NODE, odd(group), pod, *default_sessions.gang("fine", 2))
    decided = harness.session()
    assert placed(decided) == {"fine-0": "n1", "fine-1": "n1"}
    explained = decided.explanations["default/bad"]
    assert explained is not None
    assert "internal error: OverflowError: too long" in explained.message


def test_an_isolated_object_is_tried_again_when_it_changes() -> None:
    harness = fragile(QUEUE, NODE, odd(running("bad", "n1")))
    assert harness.cache.model.nodes.excluded
    harness.see(odd(running("bad", "n1"), {"odd": ""}, version=2))
    assert not harness.cache.model.nodes.excluded
    assert harness.used_cpu("n1") == 1000
    assert len(harness.cache.quarantine) == 0


def test_an_object_that_fails_repeatedly_is_not_tried_again() -> None:
    """Each failure costs a world; another object under the name is tried."""
    harness = fragile(QUEUE, NODE, odd(running("bad", "n1")))
    for version in range(2, 10):
        harness.see(odd(running("bad", "n1"), version=version))
    assert len(harness.cache.quarantine.unreported) == quarantine.MAX_FAILURES
    harness.see(odd(running("bad", "n1"), {"odd": ""}, version=10))
    assert len(harness.cache.quarantine) == 1
    another = builders.make_pod("bad", cpu="1", node="n1", phase="Running", generation=2)
    harness.see(odd(another, {"odd": ""}, version=11))
    assert len(harness.cache.quarantine) == 0


def test_a_deleted_pod_is_no_longer_isolated() -> None:
    bad = odd(running("bad", "n1"))
    harness = fragile(QUEUE, NODE, bad)
    harness.apply(*harness.log.lose(bad))
    assert len(harness.cache.quarantine) == 0
    assert not harness.cache.model.nodes.excluded


def test_a_broken_invariant_ends_the_process_with_the_last_changes() -> None:
    harness = fragile(QUEUE, NODE, *default_sessions.gang("fine", 2))
    harness.see(odd(OTHER, {"broken": "yes"}))
    with pytest.raises(errors.InvariantError, match="sums differ"):
        harness.session()


def test_an_error_that_no_object_can_be_blamed_for_ends_the_process() -> None:
    def fail(what: str, of: str) -> Any:
        raise OverflowError("no session can be opened")

    harness = fragile(QUEUE, NODE, *default_sessions.gang("fine", 2))
    with pytest.raises(
        errors.InvariantError, match=r"no session can be opened.*last changes: .*n1"
    ):
        schedule.run_session(harness.cache, builders.NOON, POLICY, timed=fail)


def test_a_pod_that_was_never_readable_closes_its_node() -> None:
    """The resources that it uses are unknown, and there is no earlier snapshot of it."""
    harness = fragile(QUEUE, NODE, OTHER, *default_sessions.gang("fine", 2))
    stub = cluster.Unreadable(uid="u", resource_version="1", reason="too large", node="n1")
    harness.apply(harness.log.append(draft(topics.PODS, "default/bad", stub)))
    assert set(placed(harness.session()).values()) == {"n2"}
