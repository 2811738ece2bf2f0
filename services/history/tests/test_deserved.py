"""What queues deserved in an interval, from the changes of queues; on both databases."""

from typing import Any

import msgspec
import pytest

from services.history.tests.support import events
from services.history.tests.test_cluster_changes import apply, at
from stromboli.history.core import deserved
from stromboli.history.core.deserved import QueueChange, QueueState
from stromboli.history.store import usage, writer
from stromboli.history.store.database import Database
from stromboli.shared import envelope
from stromboli.shared.api import scheduling
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.testkit.builders import make_queue, snapshot_of, tombstone_of

GPU = "nvidia.com/gpu"
FOUR = {"spec.deserved.nvidia.com/gpu": "4"}


def queue(name: str, version: int, **spec: Any) -> scheduling.Queue:
    made = make_queue(name, version=version)
    metadata = msgspec.structs.replace(made.metadata, creation_timestamp=events.at(0))
    spec_ = msgspec.structs.replace(made.spec, **spec)
    return msgspec.structs.replace(made, spec=spec_, metadata=metadata)


def seen(second: float, made: scheduling.Queue) -> envelope.Record:
    return at(snapshot_of(made), second)


async def shares(
    store: Database, begin: float, end: float, now: float = 10_000, **query: Any
) -> dict[str, tuple[float, float, float, float]]:
    """Queue -> core-seconds, deserved ones, GPU-seconds, deserved ones."""
    wanted = accounting.UsageQuery(since=events.at(begin), until=events.at(end), **query)
    usage_report = await usage.report(store, wanted, events.at(now))
    return {
        it.queue: (
            it.cpu_seconds,
            it.deserved_cpu_seconds,
            it.gpu_seconds,
            it.deserved_gpu_seconds,
        )
        for it in usage_report.shares
    }


async def test_a_share_counts_for_the_time_for_which_a_queue_had_it(store: Database) -> None:
    """From its creation, with each change, until its deletion; and for the elapsed part only."""
    last = queue("gpu", 4, deserved={"cpu": "500m"})
    await apply(
        store,
        seen(100, queue("gpu", 1, deserved={GPU: "2", "cpu": "10"})),
        seen(300, queue("gpu", 2, deserved={GPU: "4", "cpu": "10"}, weight=3)),
        seen(350, queue("gpu", 3, deserved={GPU: "4", "cpu": "10"}, weight=4)),
        seen(400, last),
        at(tombstone_of(last), 500),
        seen(100, queue("free", 1)),
    )
    assert await shares(store, 200, 300) == {"gpu": (0, 1000, 0, 200)}
    assert await shares(store, 200, 350) == {"gpu": (0, 1500, 0, 200 + 200)}
    assert await shares(store, 0, 1000) == {"gpu": (0, 4000 + 50, 0, 600 + 400)}
    assert await shares(store, 200, 1000, now=210) == {"gpu": (0, 100, 0, 20)}
    assert await shares(store, 600, 1000) == {}


async def test_usage_of_children_counts_for_their_parents(store: Database) -> None:
    await apply(
        store,
        seen(0, queue("org", 1, deserved={GPU: "1"})),
        seen(0, queue("gpu", 1, deserved={GPU: "1"}, parent="org")),
    )
    pods = writer.Writer(store)
    begin = await pods.position()
    records = events.records(
        events.phase("Pending", 0, 1), events.task("Pending", 0), events.task("Bound", 10, node="n")
    )
    assert await pods.apply(records, port.Position(begin.positions, {}, {})) == []
    found = await shares(store, 0, 110)
    assert found == {"org": (200, 0, 100, 110), "gpu": (200, 0, 100, 110)}
    for filtered in ({"namespace": "team"}, {"user": "ann"}, {"by": ("user",)}):
        assert await shares(store, 0, 110, **filtered) == {}


def test_a_tree_is_in_preorder_and_a_cycle_of_parents_counts_usage_once() -> None:
    states = [
        QueueState("b", FOUR | {"spec.parent": "org"}),
        QueueState("a", FOUR | {"spec.parent": "b"}),
        QueueState("org", FOUR),
        QueueState("x", FOUR | {"spec.parent": "y"}),
        QueueState("y", FOUR | {"spec.parent": "x"}),
    ]
    none: dict[str, Any] = dict.fromkeys(
        (it.name for it in msgspec.structs.fields(accounting.Usage) if it.name != "group"), 0
    )
    used = [accounting.Usage(group={"queue": "x"}, **{**none, "gpu_seconds": 5.0})]
    queue_shares = deserved.shares(states, [], used, (0, 1_000_000))
    tree = [(it.queue, it.depth) for it in queue_shares if it.queue not in "xy"]
    assert tree == [("org", 0), ("b", 1), ("a", 2)]
    assert [it.gpu_seconds for it in queue_shares if it.queue in "xy"] == [5.0, 5.0]


@pytest.mark.parametrize("value", ["", "many", "-"])
def test_a_quantity_that_is_none_counts_as_none(value: str) -> None:
    states = [QueueState("a", {"spec.deserved.cpu": value})]
    assert deserved.shares(states, [], [], (0, 1_000_000)) == ()


def test_a_change_after_the_interval_does_not_concern_it() -> None:
    changes = [QueueChange("a", 2_000_000, "changed", {"spec.deserved.nvidia.com/gpu": "2"})]
    (queue_share,) = deserved.shares([QueueState("a", FOUR)], changes, [], (0, 1_000_000))
    assert queue_share.deserved_gpu_seconds == 2.0
