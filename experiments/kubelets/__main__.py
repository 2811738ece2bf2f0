"""``python -m experiments.kubelets``: run these experiments, print their tables, write the page.

Needs root and what ``make kubelet-tools`` installs.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from experiments import page, support
from experiments.kubelets import cluster, training
from experiments.kubelets.cluster import Outcome
from stromboli.embedded.simulation.core import comparison

GANG = training.Size(cpu="160m", steps=20, bytes=25_000, compute_s=0.15)
"""Six pods on each node: room for two jobs. The link is no limit."""
TOPOLOGY = training.Size(cpu="110m", steps=20, bytes=250_000, compute_s=0.15)
"""Nine pods on each node: room for three jobs, one of which has pods on both."""
RAW = Path("bench") / "experiments_on_kubelets.json"


class Variant(msgspec.Struct, frozen=True):
    """``count``: how many jobs are submitted together."""

    count: int
    create: cluster.Create


def ours(size: training.Size, annotations: Mapping[str, str] | None = None) -> cluster.Create:
    """Jobs of Stromboli."""
    of_stromboli = training.of_stromboli
    return lambda name, shared: of_stromboli(name, size, shared, dict(annotations or {}))


def theirs(size: training.Size) -> cluster.Create:
    """Jobs of Kubernetes."""
    return lambda name, shared: training.of_kubernetes(name, size, shared)


VARIANTS: Mapping[str, Mapping[str, Variant]] = {
    "gang_on_kubelets": {
        f"{count} job{'s' * (count > 1)}, {scheduler}": Variant(count, create)
        for count in (1, 2, 5)
        for scheduler, create in (("Stromboli", ours(GANG)), ("kube-scheduler", theirs(GANG)))
    },
    "task_topology_on_kubelets": {
        "kube-scheduler": Variant(3, theirs(TOPOLOGY)),
        "Stromboli": Variant(3, ours(TOPOLOGY)),
        "Stromboli, task-topology": Variant(3, ours(TOPOLOGY, training.AFFINITY)),
    },
}
MEASURES: Mapping[str, Mapping[str, Callable[[Outcome], float]]] = {
    "gang_on_kubelets": {
        "finished jobs": lambda it: len(it.jcts_s),
        "makespan, s": lambda it: max(it.jcts_s, default=0.0),
        "mean JCT, s": lambda it: _mean(it.jcts_s),
        "runs in which all finished": lambda it: float(len(it.jcts_s) == it.jobs),
    },
    "task_topology_on_kubelets": {
        "mean training time, s": lambda it: _mean(it.trained_s),
        "mean JCT, s": lambda it: _mean(it.jcts_s),
        "pairs on different nodes": lambda it: it.apart,
        "MB over the link": lambda it: it.link_mb,
        "finished jobs": lambda it: len(it.jcts_s),
    },
}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def summarize(name: str, outcomes: Mapping[str, list[Outcome]]) -> support.Found:
    """Variant -> heading -> mean with its 95 % interval."""
    return {
        variant: {
            heading: comparison.interval([measure(each) for each in of_variant])
            for heading, measure in MEASURES[name].items()
        }
        for variant, of_variant in outcomes.items()
    }


def main() -> None:
    """Run the experiments that are named, both by default; repeats alternate between variants."""
    parser = argparse.ArgumentParser(prog="python -m experiments.kubelets", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(VARIANTS)}")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--write", action="store_true", help=f"write charts, {page.PAGE} and {RAW}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in VARIANTS]
    if unknown:
        parser.error(f"no experiment is named {unknown[0]!r}; use some of {', '.join(VARIANTS)}")
    raw = {}
    with tempfile.TemporaryDirectory() as folder, cluster.running(Path(folder) / "run") as running:
        for name in arguments.names or VARIANTS:
            outcomes: dict[str, list[Outcome]] = {variant: [] for variant in VARIANTS[name]}
            for repeat in range(arguments.repeats):
                for variant, wanted in VARIANTS[name].items():
                    outcome = running.run(wanted.count, wanted.create)
                    outcomes[variant].append(outcome)
                    line = {"repeat": repeat, "variant": variant, **msgspec.to_builtins(outcome)}
                    sys.stderr.write(f"{json.dumps(line)}\n")
            raw[name] = msgspec.to_builtins(outcomes)
            found = summarize(name, outcomes)
            print(f"{name}\n\n{support.table(found)}\n", flush=True)
            if arguments.write:
                page.write(name, found)
    if arguments.write:
        RAW.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
