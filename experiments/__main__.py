"""``python -m experiments``: run experiments, print their tables, write charts and the page."""

import argparse
import sys

from experiments import (
    attained_service,
    data_locality,
    drf,
    elastic,
    fair_share,
    fair_users,
    gang,
    gpu_packing,
    hierarchy,
    large_jobs,
    numa,
    page,
    rack_locality,
    shortest_first,
    sla,
    support,
    task_topology,
)
from stromboli.embedded.simulation import svg

EXPERIMENTS = {
    each.name: each
    for each in (
        gang.EXPERIMENT,
        task_topology.EXPERIMENT,
        fair_share.EXPERIMENT,
        fair_users.EXPERIMENT,
        hierarchy.EXPERIMENT,
        large_jobs.EXPERIMENT,
        sla.EXPERIMENT,
        shortest_first.EXPERIMENT,
        attained_service.EXPERIMENT,
        attained_service.PHILLY,
        elastic.EXPERIMENT,
        drf.EXPERIMENT,
        gpu_packing.EXPERIMENT,
        rack_locality.EXPERIMENT,
        numa.EXPERIMENT,
        data_locality.EXPERIMENT,
    )
}


def charts_over_time(experiment: support.Experiment) -> dict[str, str]:
    """File name -> the shares over time with the first seed."""
    found = {}
    shares = experiment.shares or support.shares_over_time
    scenarios = experiment.scenarios(0) if experiment.over_time else {}
    for number, variant in enumerate(experiment.over_time):
        text = svg.areas(f"Shares over time: {variant}", *shares(scenarios[variant]))
        found[f"experiment-{experiment.name}-over-time-{number}.svg"] = text.partition("<ul")[0]
    return found


def main() -> None:
    """Run the experiments that are named, all by default."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--seeds", type=int, default=5, help="repeats of each variant")
    parser.add_argument("--write", action="store_true", help=f"write charts and {page.PAGE}")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment is named {unknown[0]!r}; use some of {', '.join(EXPERIMENTS)}")
    for name in given.names or EXPERIMENTS:
        intervals = support.run(EXPERIMENTS[name], given.seeds)
        print(f"{name}\n\n{support.table(intervals)}\n")
        if given.write:
            page.write(name, intervals)
            for file, drawn in charts_over_time(EXPERIMENTS[name]).items():
                (page.IMAGES / file).write_text(drawn + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
