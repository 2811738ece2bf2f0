"""The cost of anti-affinity terms of placed pods: ``python -m bench.carried_terms --classes 1000
--terms 500``.

Each of ``--terms`` running pods carries a different anti-affinity term against pods of another
application. Each waiting pod belongs to a different application, hence to a different class, and
carries such a term too. A session must find for every class the carried terms that select it:
without an index that is classes x terms comparisons in every session. The configuration is the
chart's, timed as in ``bench.session``, with and without the terms of the running pods. The last
line of stdout is one JSON object: the best of the rounds in CPU seconds.
"""

import argparse
import json
from collections.abc import Iterator

from bench import session
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.shared.api import core
from stromboli.testkit import builders

HOST = "kubernetes.io/hostname"
APPLICATION = "app"


def build_cluster(nodes: int, classes: int, terms: int) -> cluster_objects.Cluster:
    """A cluster with ``terms`` running pods, each with a term, and ``classes`` gangs of one pod."""
    names = [f"n{at:05}" for at in range(nodes)]
    running = [
        builders.make_pod(
            f"svc-{at}",
            cpu="1",
            node=names[at % nodes],
            phase="Running",
            labels={APPLICATION: f"svc-{at}"},
            affinity=_apart_from(f"svc-{at}"),
        )
        for at in range(terms)
    ]
    waiting = [
        builders.make_pod(
            f"job-{at}",
            f"g{at:05}",
            cpu="1",
            labels={APPLICATION: f"job-{at}"},
            affinity=_apart_from(f"job-{at}"),
        )
        for at in range(classes)
    ]
    return cluster_objects.Cluster(
        now=builders.NOON,
        nodes=tuple(builders.make_node(name, cpu="32", labels={HOST: name}) for name in names),
        pods=(*running, *waiting),
        pod_groups=tuple(builders.make_pod_group(f"g{at:05}", 1) for at in range(classes)),
        queues=(builders.make_queue(),),
    )


def _apart_from(application: str) -> core.Affinity:
    selector = core.LabelSelector(match_labels={APPLICATION: application})
    term = core.PodAffinityTerm(topology_key=HOST, label_selector=selector)
    rule = core.PodAffinity(
        required_during_scheduling_ignored_during_execution=(term,),
        preferred_during_scheduling_ignored_during_execution=(
            core.WeightedPodAffinityTerm(weight=10, pod_affinity_term=term),
        ),
    )
    return core.Affinity(pod_anti_affinity=rule)


def measured(nodes: int, classes: int, terms: int, rounds: int) -> Iterator[float]:
    """CPU seconds of each round. Raises AssertionError if a pod was not placed."""
    for _ in range(rounds):
        timed = session.run_timed(build_cluster(nodes, classes, terms))
        assert len(timed.closed.decisions.binds) == classes, "a pod was not placed"
        yield timed.cpu_seconds


def main() -> None:
    """Print the CPU seconds with and without the terms of running pods."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--terms", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = {
        "with_terms_s": min(measured(given.nodes, given.classes, given.terms, given.rounds)),
        "without_terms_s": min(measured(given.nodes, given.classes, 0, given.rounds)),
    }
    shown = {name: round(seconds, 3) for name, seconds in found.items()}
    print(json.dumps({**vars(given), **shown}))


if __name__ == "__main__":
    main()
