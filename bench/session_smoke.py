"""How fast a session places gangs: ``python -m bench.session_smoke --nodes 1000 --gangs 100``.

Nodes of 32 cores and 256 GiB, gangs of equal pods of 1 core and 1 GiB, one queue. Folds the
snapshots, then times whole sessions (door, placement, statements, explanations) on the same
picture. The last line of stdout is one JSON.
"""

import argparse
import json
import statistics
import time

from stromboli.scheduler.core import configuration, session, state
from stromboli.testkit import builders, topic_log

ROUNDS = 5


def picture(nodes: int, gangs: int, size: int) -> tuple[state.State, float]:
    """The folded picture, and the seconds folding took."""
    log = topic_log.TopicLog()
    log.see(builders.make_queue())
    log.see(*(builders.make_node(f"n{at:05}", cpu="32", memory="256Gi") for at in range(nodes)))
    for gang in range(gangs):
        name = f"g{gang}"
        log.see(builders.make_pod_group(name, size))
        log.see(*(builders.make_pod(f"{name}-w-{at}", name, index=at) for at in range(size)))
    folded = state.State(("volcano",))
    started = time.perf_counter()
    for record in log.records:
        folded.apply(record)
    return folded, time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gangs", type=int, default=100)
    parser.add_argument("--size", type=int, default=20)
    given = parser.parse_args()
    folded, fold_seconds = picture(given.nodes, given.gangs, given.size)
    policy = configuration.Configuration(max_unanswered_binds=given.gangs * given.size)
    seconds, pods = [], 0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        decided = session.decide(folded, builders.NOON, policy)
        seconds.append(time.perf_counter() - started)
        pods = sum(len(statement.binds) for statement in decided.decisions)
    median = statistics.median(seconds)
    result = {
        "nodes": given.nodes,
        "pods": pods,
        "fold_seconds": round(fold_seconds, 4),
        "seconds": round(median, 4),
        "pods_per_second": round(pods / median),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
