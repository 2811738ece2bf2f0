"""Gang scheduling: distributed training jobs that arrive together on a cluster with room for two.

Each job has two parameter servers and four workers, and trains only while all six run.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

WITH = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf, enablePreemptable: false}, {name: predicates}, {name: nodeorder}]
"""
WITHOUT = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}]
- plugins: [{name: drf, enablePreemptable: false}, {name: predicates}, {name: nodeorder}]
"""
TASKS = 6
"""2 parameter servers and 4 workers, of one CPU each."""


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """1, 2 and 5 jobs, with and without the plugin gang."""
    random = np.random.default_rng(seed)
    durations = [float(each) for each in random.lognormal(np.log(300), 0.3, 5)]
    cluster = support.nodes(3, cpu=4)
    found = {}
    for count in (1, 2, 5):
        gangs = [
            support.job(f"training-{at}", 0, duration_s, tasks=TASKS, cpu=1, is_synchronous=True)
            for at, duration_s in enumerate(durations[:count])
        ]
        single = [msgspec.structs.replace(each, min_available=1) for each in gangs]
        plural = "" if count == 1 else "s"
        found[f"{count} job{plural}, gang"] = support.scenario(cluster, gangs, WITH)
        found[f"{count} job{plural}, no gang"] = support.scenario(cluster, single, WITHOUT)
    return found


EXPERIMENT = support.Experiment(
    "gang",
    scenarios,
    {
        "finished jobs": lambda ran: ran.summary.finished,
        "makespan, s": lambda ran: ran.summary.makespan_s,
        "mean JCT, s": lambda ran: ran.summary.jct_mean_s,
    },
)
