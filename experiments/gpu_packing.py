"""GPU fragmentation: jobs of 1, 2, 4 and 8 GPUs on nodes of 8, packed or spread."""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {score}]
"""
SPREAD = "{name: nodeorder}"
PACK = """{name: binpack, arguments: {
  binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 10}}"""
JOBS = 400
SIZES, PARTS = (1, 2, 4, 8), (0.5, 0.2, 0.15, 0.15)


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """The same jobs with nodeorder and with binpack."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(60, JOBS))
    sizes = random.choice(SIZES, JOBS, p=PARTS)
    jobs = [
        support.job(
            f"gpus{sizes[at]}-{at}",
            float(arrivals[at]),
            float(random.lognormal(np.log(1500), 0.8)),
            gpus=int(sizes[at]),
        )
        for at in range(JOBS)
    ]
    cluster = support.nodes(16, gpus=8)
    return {
        "spread": support.scenario(cluster, jobs, TEXT.format(score=SPREAD)),
        "pack": support.scenario(cluster, jobs, TEXT.format(score=PACK)),
    }


EXPERIMENT = support.Experiment(
    "gpu_packing",
    scenarios,
    {
        "idle GPUs on partly used nodes": lambda ran: ran.summary.fragmentation,
        "mean wait, 8 GPUs, s": lambda ran: support.mean(ran.waits_s, "gpus8"),
        "mean wait, 1 GPU, s": lambda ran: support.mean(ran.waits_s, "gpus1"),
        "mean JCT, s": lambda ran: ran.summary.jct_mean_s,
        "GPU utilisation": lambda ran: ran.summary.gpu_utilisation,
    },
)
