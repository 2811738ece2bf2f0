"""The speed of a session that places gangs: ``python -m bench.session --nodes 10000 --gangs 1000``.

The configuration is the chart's: enqueue, allocate, backfill with its eleven plugins. A session is
timed from opening to close, with explanations, on a cache that is already built. In the same run, a
bare NumPy loop takes one argmax per pod over the same nodes. Because machines differ, the result is
the ratio of both, in CPU seconds if the machine is shared. The last line of stdout is one JSON
object.

``--steady`` measures a long-running scheduler instead, from the last record of one new gang to its
decision, ``--minutes 10`` the same while gangs come and go for ten minutes of its clock;
``--victims 1000 --by preempt`` measures a session that evicts.
"""

import argparse
import hashlib
import json
import resource
import statistics
import time
from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np

from bench import session_clusters, session_long_running
from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.core.framework import interfaces, opening, session
from stromboli.testkit.oracle import session as reference_session

CHART: dict[str, Any] = dict(config_reader.DEFAULT)
"""The configuration that Volcano's Helm chart installs."""
EVICTING: dict[str, Any] = {
    "actions": "enqueue, allocate, preempt, reclaim, backfill",
    "tiers": [
        {"plugins": [*CHART["tiers"][0]["plugins"], {"name": "sla"}]},
        CHART["tiers"][1],
    ],
}
"""The same with the evicting actions and ``sla``."""


class Timed(msgspec.Struct):
    """One session: what it decided, and the seconds from opening to close."""

    closed: session.Session
    seconds: float
    cpu_seconds: float


def run_timed(cluster: cluster_objects.Cluster) -> Timed:
    """Run a whole session. Reading objects is not timed: a running scheduler has read them
    before."""
    configured = config_reader.read_configuration(CHART, actions.NAMES, plugins.NAMES)
    started: list[tuple[float, float]] = []

    def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        # A session begins when the first plugin is opened: the model exists then.
        if not started:
            started.append((time.perf_counter(), time.process_time()))
        return plugins.find(name, already_open)

    for tier in configured.tiers:
        for options in tier:
            plugins.find(options.name, ())  # A running scheduler has imported its plugins before.
    opened = opening.open_session(configured, cluster, find)
    simulate.run_actions(opened)
    for job in opened.jobs.values():
        if job.key not in opened.decisions.binds and not job.is_ready:
            job.explain()
    ended = (time.perf_counter(), time.process_time())
    return Timed(opened, ended[0] - started[0][0], ended[1] - started[0][1])


def argmax_loop(
    cluster: cluster_objects.Cluster, options: session_clusters.Options
) -> tuple[float, float]:
    """Pods per second, and per CPU second, of a bare loop: each pod is placed on the node with the
    most idle CPU that has room.

    It does nothing else: one comparison, one choice and one argmax over all nodes.
    """
    idle = np.full(len(cluster.nodes), session_clusters.CORES * 1000 * (1 - options.prefill))
    kinds = session_clusters.shapes(options)
    started = (time.perf_counter(), time.process_time())
    for at in range(options.gangs):
        wanted = kinds[at % len(kinds)].cpu_milli
        for _ in range(options.size):
            row = np.where(idle >= wanted, idle, -1.0).argmax()
            idle[row] -= wanted
    ended = (time.perf_counter(), time.process_time())
    pods = options.gangs * options.size
    return pods / (ended[0] - started[0]), pods / (ended[1] - started[1])


def measure(options: session_clusters.Options, rounds: int) -> dict[str, Any]:
    """All numbers of one setting."""
    cluster = session_clusters.build_cluster(options)
    seconds, cpu_seconds, loops, digests, pods = [], [], [], set(), 0
    for _ in range(rounds):
        loops.append(argmax_loop(cluster, options))
        timed = run_timed(cluster)
        seconds.append(timed.seconds)
        cpu_seconds.append(timed.cpu_seconds)
        pods = len(timed.closed.decisions.binds)
        digests.add(_digest(timed.closed))
        del timed
    best, loop = min(seconds), max(wall for wall, _ in loops)
    cpu_best, cpu_loop = min(cpu_seconds), max(cpu for _, cpu in loops)
    return {
        "pods": pods,
        "seconds": round(best, 4),
        "seconds_median": round(statistics.median(seconds), 4),
        "pods_per_second": round(pods / best),
        "argmax_loop_pods_per_second": round(loop),
        "ratio_to_loop": round(pods / best / loop, 3),
        "cpu_seconds": round(cpu_best, 4),
        "argmax_loop_pods_per_cpu_second": round(cpu_loop),
        "cpu_ratio_to_loop": round(pods / cpu_best / cpu_loop, 3),
        "decisions_sha256": " and ".join(sorted(digests)),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "rounds": [round(each, 4) for each in seconds],
        "cpu_rounds": [round(each, 4) for each in cpu_seconds],
        "loop_rounds": [round(wall) for wall, _ in loops],
    }


def verify(options: session_clusters.Options) -> bool:
    """Whether the reference session binds the same pods to the same nodes, in the same order."""
    cluster = session_clusters.build_cluster(options)
    ours = run_timed(cluster).closed.decisions.binds
    objects = [*cluster.nodes, *cluster.pods, *cluster.pod_groups, *cluster.queues]
    return list(ours.items()) == list(reference_session.decide(objects).binds.items())


def _digest(closed: session.Session) -> str:
    outcome = msgspec.json.encode(simulate.summarize("", closed), order="sorted")
    return hashlib.sha256(outcome).hexdigest()


def main() -> None:
    """Measure and print."""
    usual = session_clusters.Options()
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("nodes", "gangs", "size", "shapes", "queues"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    for name in ("prefill", "selectors", "taints"):
        parser.add_argument(f"--{name}", type=float, default=getattr(usual, name))
    for name in ("as_served", "token_volumes"):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            action=argparse.BooleanOptionalAction,
            default=getattr(usual, name),
            help="pods as an API server with the default admission plugins returns them",
        )
    parser.add_argument("--preset", choices=("volcano",), help="gangs of 100 pods of 1 core, 1 GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="also compare the decisions with those of the reference session; takes minutes",
    )
    parser.add_argument(
        "--steady", action="store_true", help="measure one new gang in a full cluster"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="measure one new gang every 0.5 s of the scheduler's clock, for this many minutes",
    )
    parser.add_argument(
        "--evicting",
        action="store_true",
        help="with --steady and --minutes: enable preempt, reclaim and sla",
    )
    parser.add_argument(
        "--waiting", type=int, default=0, help="with --steady: number of further pending gangs"
    )
    parser.add_argument(
        "--starving",
        action="store_true",
        help="with --waiting: these gangs would fit on empty nodes",
    )
    parser.add_argument(
        "--victims", type=int, default=0, help="number of pods to evict for one gang"
    )
    parser.add_argument("--by", choices=("preempt", "reclaim"), default="preempt")
    given = parser.parse_args()
    options = session_clusters.Options(
        **{name: getattr(given, name) for name in usual.__struct_fields__ if name != "is_equal"}
    )
    if given.minutes:
        configuration = EVICTING if given.evicting else CHART
        print(json.dumps(session_long_running.turnover(configuration, options, given.minutes)))
        return
    if given.steady:
        steady = session_long_running.steady(
            EVICTING if given.evicting else CHART,
            options,
            given.waiting,
            rounds=10 * given.rounds,
            is_starving=given.starving,
        )
        print(json.dumps(steady))
        return
    if given.victims:
        print(
            json.dumps(
                session_long_running.victims(given.nodes, given.victims, given.by, given.rounds)
            )
        )
        return
    if given.preset:
        options = msgspec.structs.replace(options, size=100, shapes=1, is_equal=True)
    setting = msgspec.to_builtins(options)
    result = {**setting, **measure(options, given.rounds)}
    if given.verify:
        result["verify"] = verify(options)
    print(json.dumps(result))
    if not result.get("verify", True):
        raise SystemExit("the session decided differently from the reference session")


if __name__ == "__main__":
    main()
