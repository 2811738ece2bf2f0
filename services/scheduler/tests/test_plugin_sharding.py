"""Sharding: a scheduler keeps to its nodes, or prefers them."""

import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.shared.api import meta, shard
from stromboli.testkit import builders


def node_shard(name: str, *nodes: str, in_use: tuple[str, ...] = ()) -> shard.NodeShard:
    return shard.NodeShard(
        metadata=builders.make_meta("shard", name),
        spec=shard.NodeShardSpec(nodes_desired=nodes),
        status=shard.NodeShardStatus(nodes_in_use=in_use),
    )


def decided(
    mode: str, *objects: meta.Object, run: str = "allocate", **flags: bool
) -> tuple[dict[str, str], list[str]]:
    plugin = sessions.plugin("sharding", {"sharding.mode": mode, "sharding.name": "ours"}, **flags)
    closed = default_sessions.closed(*objects, tier=[*default_sessions.TIER, plugin], run=run)
    return default_sessions.binds(closed), closed.complaints


NODES = [builders.make_node("n1", cpu=64), builders.make_node("n2", cpu=4)]


def test_hard_means_no_other_node() -> None:
    """What does not fit the shard waits, however free the others are."""
    objects = [
        *NODES,
        *default_sessions.gang("small", 1, cpu=3),
        *default_sessions.gang("tall", 1, cpu=8),
    ]
    assert decided("hard", *objects, node_shard("ours", "n2"))[0] == {"small-0": "n2"}


def test_soft_prefers_the_shard_to_any_score() -> None:
    """A node outside is taken only by what does not fit inside."""
    objects = [
        *NODES,
        *default_sessions.gang("small", 1, cpu=3),
        *default_sessions.gang("tall", 1, cpu=8),
    ]
    assert decided("soft", *objects, node_shard("ours", "n2"))[0] == {
        "small-0": "n2",
        "tall-0": "n1",
    }


def test_idle_nodes_outside_the_shard_come_before_nominations_inside() -> None:
    """Soft: waiting for the shard is worse than running elsewhere."""
    leaving = builders.make_pod("old", node="n2", phase="Running", cpu=4, deleting=builders.NOON)
    objects = [*NODES, leaving, *default_sessions.gang("new", 1, cpu=3)]
    assert decided("soft", *objects, node_shard("ours", "n2"))[0] == {"new-0": "n1"}


@pytest.mark.parametrize("action", ["allocate", "backfill"])
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_every_action_that_binds_keeps_to_the_shard(action: str, mode: str) -> None:
    """Including pods without requests."""
    amount = None if action == "backfill" else 1
    gang = default_sessions.gang("g", 1, cpu=amount, memory=None)
    assert decided(mode, *NODES, *gang, node_shard("ours", "n2"), run=action)[0] == {"g-0": "n2"}


def test_nodes_that_another_still_uses_are_not_ours_yet() -> None:
    """A node moves between shards only once it is given up."""
    shards = [node_shard("ours", "n1", "n2"), node_shard("theirs", in_use=("n1",))]
    assert decided("hard", *NODES, *default_sessions.gang("g", 1), *shards)[0] == {"g-0": "n2"}


def test_a_shard_that_is_missing_has_no_nodes_and_is_complained_of() -> None:
    """Hard places nothing then, soft places as ever."""
    binds, complaints = decided("hard", *NODES, *default_sessions.gang("g", 1))
    assert binds == {}
    assert complaints == ["plugin sharding: NodeShard ours does not exist"]
    assert decided("soft", *NODES, *default_sessions.gang("g", 1))[0] == {"g-0": "n1"}


def test_an_unknown_mode_is_complained_of_and_does_nothing() -> None:
    """A typo must not keep everything off every node."""
    binds, complaints = decided(
        "firm", *NODES, *default_sessions.gang("g", 1), node_shard("ours", "n2")
    )
    assert binds == {"g-0": "n1"}
    assert complaints == [
        "plugin sharding: arguments.sharding.mode: 'firm' is not one of none, hard, soft; "
        "'none' is used"
    ]
