"""``strom simulate pack``: its options."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

PUBLISHED_SEEDS = "42-51"
NODE_COLUMNS = "sn, cpu_milli, memory_mib, gpu, model"
POD_COLUMNS = "name, cpu_milli, memory_mib, num_gpu, gpu_milli"
DESCRIPTIONS = {
    "random": "any node that fits, then any GPU that fits",
    "dot-product": "least product of requested and free resources, as in Tetris",
    "gpu-packing": "shared GPUs first, then idle ones on used nodes, then idle nodes",
    "gpu-clustering": "nodes that hold pods with the same GPU count, as in Gandiva",
    "best-fit": "least cpu and GPU left on the node",
    "fgd": "least growth of the GPU capacity that typical pods cannot use (Weng et al. 2023)",
    "least-stranded": "as fgd, and least growth of the GPU capacity that stays free when nodes are "
    "filled with pods of one kind; our own",
}
"""Policy -> its placement rule."""
Policy = StrEnum("Policy", {name: name for name in DESCRIPTIONS})  # type: ignore[misc]  # from data
POLICY_HELP = "The placement policy. " + "; ".join(
    f"{name}: {description}" for name, description in DESCRIPTIONS.items()
)


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"


def pack(
    nodes: Annotated[Path, typer.Option(metavar="FILE", help=f"CSV: {NODE_COLUMNS}.")],
    pods: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help=f"CSV: {POD_COLUMNS}; gpu_spec if pods request GPU models.",
        ),
    ],
    policy: Annotated[Policy, typer.Option(help=POLICY_HELP)],
    seeds: Annotated[
        str,
        typer.Option(metavar="SEEDS", help="Seeds of the arrival sequences: 42-51, 42,45 or 7."),
    ] = PUBLISHED_SEEDS,
    output_format: Annotated[
        Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = Format.TABLE,
) -> None:
    """Measure how many GPUs are allocated under load.

    Pods arrive until they request 130 % of all GPUs; the result is the allocated share.
    The protocol of the Alibaba 2023 traces: no pod leaves, and a pod that does not fit is dropped.
    The last line of stdout is one JSON object; --output json prints nothing else there.
    """
    from stromboli.embedded import pack

    pack.pack(nodes=nodes, pods=pods, policy=str(policy), seeds=seeds, output_format=output_format)
