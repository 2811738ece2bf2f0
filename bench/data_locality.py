"""Cost of the plugin ``data-locality``: ``python -m bench.data_locality``.

10,000 nodes hold copies of 1,000 data sets, 20 each, of which a running pod uses one. A round is
one report of a cache that changes a copy, and one session of a long-running scheduler that places a
gang of 8 pods with a data set; the decision is not applied. Sessions with the plugin are compared
with sessions without it, in the same process one after another. The last line of stdout is one JSON
object: the best and the median of the rounds in milliseconds.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench import session_long_running
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import batch, meta
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.testkit import builders

GB = 10**9
COPIES = 20
"""Copies on each node."""
GANG = 8
PLUGINS = ("gang", "predicates", "nodeorder")


def _uri(at: int) -> str:
    return f"s3://bucket/{at}"


def _notes(at: int) -> dict[str, str]:
    named = batch.DataSet(name="d", uri=_uri(at), size=10 * GB, mount_path="/d")
    return {keys.DATA_SETS: data_sets.annotation((data_sets.request_of(named),))}


def report(node: int, sets: int, first: str = "Complete") -> data.DataObserved:
    """The report of a node's cache: its running pod uses the first copy."""
    copies = [
        data.DataCopy(
            key=data_sets.content_key(uri := _uri((node * 7 + at * 13) % sets), ""),
            uri=uri,
            bytes=10 * GB,
            state="Complete" if at else first,  # type: ignore[arg-type]  # a CopyState
            in_use=not at,
        )
        for at in range(min(COPIES, sets))
    ]
    return data.DataObserved(
        node=f"n{node:05}",
        observed_at=builders.NOON,
        capacity_bytes=500 * GB,
        copies=tuple({copy.key: copy for copy in copies}.values()),
        read_bytes_per_s={"s3": 200_000_000},
    )


def objects(nodes: int, sets: int) -> Iterator[meta.Object]:
    """Nodes, a running pod with a data set on each, and the gang."""
    yield builders.make_queue()
    yield builders.make_pod_group("runs", 1, phase="Running")
    for at in range(nodes):
        name = f"n{at:05}"
        yield builders.make_node(name, cpu="64", memory="256Gi")
        notes = _notes(at * 7 % sets)
        yield builders.make_pod(
            f"runs-{at:05}", "runs", cpu="1", node=name, phase="Running", annotations=notes
        )
    yield builders.make_pod_group("gang", GANG)
    for at in range(GANG):
        yield builders.make_pod(f"gang-{at}", "gang", cpu="1", annotations=_notes(3))


def measured(nodes: int, sets: int, rounds: int, *, has_plugin: bool) -> dict[str, Any]:
    """Measure reports and sessions."""
    names = (*PLUGINS, "data-locality") if has_plugin else PLUGINS
    tiers = [{"plugins": [{"name": name} for name in names]}]
    life = session_long_running.LongRunningScheduler(
        {"actions": "enqueue, allocate", "tiers": tiers}
    )
    life.see(*objects(nodes, sets))
    for at in range(nodes):
        _put(life, report(at, sets))
    gc.collect()
    gc.freeze()
    applied, sessions = [], []
    for at in range(rounds + 1):
        began = time.perf_counter()
        _put(life, report(at, sets, "Fetching"))
        applied.append(time.perf_counter() - began)
        life.cache.request_session("again")
        began = time.perf_counter()
        decided = life.decide()
        sessions.append(time.perf_counter() - began)
        assert sum(len(each.binds) for each in decided.decisions) == GANG
    gc.unfreeze()
    return {
        "report_ms": _ms(statistics.median(applied[1:])),
        "session_best_ms": _ms(min(sessions[1:])),
        "session_median_ms": _ms(statistics.median(sessions[1:])),
    }


def _put(life: session_long_running.LongRunningScheduler, message: data.DataObserved) -> None:
    draft = envelope.Draft(topic=topics.DATA, key=message.node, message=message, time=builders.NOON)
    life.fold([life.log.append(draft)])


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--data-sets", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    found = {
        name: measured(given.nodes, given.data_sets, given.rounds, has_plugin=has_plugin)
        for name, has_plugin in (("without", False), ("with", True))
    }
    print(json.dumps({"nodes": given.nodes, "data_sets": given.data_sets, **found}))


if __name__ == "__main__":
    main()
