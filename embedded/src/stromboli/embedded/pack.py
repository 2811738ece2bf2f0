"""``strom simulate pack``: the share of a cluster's GPUs that a policy allocates to a list of
pods.
"""

import re
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import typer

from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.scheduler.core.packing import arrivals, policies, trace
from stromboli.shared.formats.counts import counted

MOST_SEEDS = 1000


class Seed(msgspec.Struct, frozen=True):
    """The result of one arrival sequence. ``seconds``: decision time, without reading, compilation
    and measurement.
    """

    seed: int
    gpu_allocation_ratio_percent: float
    fragmented_percent: float
    gpu_allocation_ratio_percent_at_100: float
    fragmented_percent_at_100: float
    placed: int
    dropped: int
    seconds: float


class Report(msgspec.Struct, frozen=True):
    """Means over the seeds. ``*_sd``: the sample standard deviation; ``seconds``: the sum over the
    seeds."""

    nodes: str
    pods: str
    policy: str
    gpu_allocation_ratio_percent: float
    gpu_allocation_ratio_percent_sd: float
    fragmented_percent: float
    gpu_allocation_ratio_percent_at_100: float
    fragmented_percent_at_100: float
    seconds: float
    per_seed: list[Seed]


def pack(*, nodes: Path, pods: Path, policy: str, seeds: str, output_format: str) -> None:
    """Run the protocol and print its result."""
    wanted = parse_seeds(seeds)
    cluster, requested = read(nodes, pods)
    report = run(cluster, requested, policy, wanted, (str(nodes), str(pods)))
    if output_format == "table":
        output.show_table(*table(report))
    typer.echo(msgspec.json.encode(report).decode())


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as ``42-51`` or ``42,45``, or both; each seed once, in the given order."""
    unique_seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip(), re.ASCII)
        if match is None:
            raise typer.BadParameter(
                f"{part!r} is not a seed; write 42-51 or 42,45", param_hint="--seeds"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise typer.BadParameter(
                f"{part}: the range is descending; write {last}-{first}", param_hint="--seeds"
            )
        if last - first + len(unique_seeds) >= MOST_SEEDS:
            raise typer.BadParameter(
                f"at most {MOST_SEEDS} seeds are allowed", param_hint="--seeds"
            )
        unique_seeds.update(dict.fromkeys(range(first, last + 1)))
    return list(unique_seeds)


def read(nodes: Path, pods: Path) -> tuple[trace.Nodes, trace.Pods]:
    """Read the lists of nodes and pods. Raises CommandError."""
    try:
        with nodes.open(encoding="utf-8", newline="") as lines:
            cluster = trace.read_nodes(lines, str(nodes))
        with pods.open(encoding="utf-8", newline="") as lines:
            requested = trace.read_pods(lines, str(pods), cluster.models)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(str(error.filename), why, "specify a file that you may read") from None
    except (trace.TraceError, UnicodeDecodeError) as error:
        raise CommandError(
            "cannot read the lists",
            str(error),
            "pass --nodes and --pods files with the columns of Alibaba's cluster-trace-gpu-v2023",
        ) from error
    homeless = int(requested.counts[requested.shapes[:, 4] == 0].sum())
    if homeless:
        output.show_note(f"strom: no node has the GPU models of {counted(homeless, 'pod')}")
    return cluster, requested


def run(
    nodes: trace.Nodes, pods: trace.Pods, name: str, seeds: list[int], paths: tuple[str, str]
) -> Report:
    """Run the policy for each seed and report each result on stderr."""
    # Importing Numba takes half a second, which would slow down --help and the other commands.
    from stromboli.scheduler.core.packing import simulation

    simulation.compile_kernels(nodes, pods)
    policy = policies.POLICIES[name]
    tried: list[Seed] = []
    for seed in seeds:
        chance = np.random.default_rng(seed)
        sequence = arrivals.arrival_sequence(pods, nodes.total_milli, chance)
        luck = simulation.RandomDraws(
            chance.permutation(len(nodes.cpu_milli)), chance.random((len(sequence), 2))
        )
        begun = time.perf_counter()
        outcome = simulation.place(nodes, pods, policy, sequence, luck)
        seconds = time.perf_counter() - begun
        full = simulation.measure(nodes, pods, sequence, outcome)
        early = simulation.measure(nodes, pods, sequence, outcome, 100)
        placed = int((outcome.node_of >= 0).sum())
        tried.append(
            Seed(
                seed=seed,
                gpu_allocation_ratio_percent=round(full.gpu_allocation_ratio_percent, 4),
                fragmented_percent=round(full.fragmented_percent, 4),
                gpu_allocation_ratio_percent_at_100=round(early.gpu_allocation_ratio_percent, 4),
                fragmented_percent_at_100=round(early.fragmented_percent, 4),
                placed=placed,
                dropped=len(sequence) - placed,
                seconds=round(seconds, 4),
            )
        )
        output.show_note(
            f"seed {seed}: {full.gpu_allocation_ratio_percent:.2f} % of GPU allocated "
            f"({len(tried)} of {len(seeds)}, {seconds:.2f} s)"
        )
    return summary(name, paths, tried)


def summary(policy: str, paths: tuple[str, str], tried: list[Seed]) -> Report:
    """Return the report over all seeds."""

    def mean(field: str) -> float:
        return round(float(np.mean([getattr(seed, field) for seed in tried])), 4)

    ratios = [seed.gpu_allocation_ratio_percent for seed in tried]
    return Report(
        nodes=paths[0],
        pods=paths[1],
        policy=policy,
        gpu_allocation_ratio_percent=mean("gpu_allocation_ratio_percent"),
        gpu_allocation_ratio_percent_sd=round(
            float(np.std(ratios, ddof=min(1, len(tried) - 1))), 4
        ),
        fragmented_percent=mean("fragmented_percent"),
        gpu_allocation_ratio_percent_at_100=mean("gpu_allocation_ratio_percent_at_100"),
        fragmented_percent_at_100=mean("fragmented_percent_at_100"),
        seconds=round(sum(seed.seconds for seed in tried), 4),
        per_seed=tried,
    )


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return headers and one row per seed, the mean last."""
    headers = ["SEED", "ALLOCATED %", "FRAGMENTED %", "AT 100 %", "PLACED", "DROPPED", "SECONDS"]

    def row(name: str, of: Any, placed: str, dropped: str) -> list[str]:
        return [
            name,
            f"{of.gpu_allocation_ratio_percent:.2f}",
            f"{of.fragmented_percent:.2f}",
            f"{of.gpu_allocation_ratio_percent_at_100:.2f}",
            placed,
            dropped,
            f"{of.seconds:.2f}",
        ]

    rows = [
        row(str(seed.seed), seed, str(seed.placed), str(seed.dropped)) for seed in report.per_seed
    ]
    return headers, [*rows, row("all", report, "", "")]
